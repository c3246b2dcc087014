"""The page of an evaluation: what each layout costs, and what a simulated step makes of it.

Guarantees: every number is that of :func:`routepack_opt.suite.evaluation.summary`; what is simulated says so
in its heading, with the assumptions beside it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from routepack_opt.report.facts import LAYOUTS
from routepack_opt.report.pages import fill
from routepack_opt.suite.evaluation import Results, summary

_LOADS = {"ep_peak_sum": "EP peak sum", "attention": "attention", "joint": "joint"}
_PARTS = {"attention": "attention", "dense": "dense", "expert": "experts", "exchange": "exchange"}
_RATE = "simulated_tokens_per_second"


class Table(NamedTuple):
    """A table of the page: heading, a sentence on how to read it, column names and rows of text."""

    title: str
    caption: str
    head: list[str]
    rows: list[list[str]]


def results_page(results: Results, title: str = "RoutePack evaluation") -> str:
    """Return the results of an evaluation as an HTML page.

    Parameters
    ----------
    results : Results
        From :func:`routepack_opt.suite.evaluation.read_results`.
    title : str
        Heading of the page.

    Raises
    ------
    InputError
        When an optional package is missing.
    """
    found = summary(results)
    tables = [make(found) for make in (loads, balance, rates, comparisons, parts, sensitivity)]
    assumptions = results.header.get("assumptions", {})
    return fill("results.html", title=title, tables=tables, assumptions=_assumed(assumptions))


def loads(found: list[dict[str, Any]]) -> Table:
    """Compare RoutePack with Reorder: same placement, same rows."""
    rows = []
    for one in found:
        before, after = one["loads"]["ep_balance_efficiency"]
        changes = [_change(one["loads"][key]) for key in _LOADS]
        rows.append([one["scenario"], f"{one['rows']:.2f}", *changes, f"{before:.3f} to {after:.3f}"])
    head = ["scenario", "rows", *_LOADS.values(), "EP balance efficiency"]
    return Table("What packing changes", "RoutePack against Reorder, exact.", head, rows)


def balance(found: list[dict[str, Any]]) -> Table:
    """Show the global coefficient of variation of rank loads, before and after placement."""
    rows = [
        [one["scenario"], *(_spread(one["cv_global"][key], 4) for key in ("baseline", "routepack"))]
        for one in found
    ]
    caption = "Coefficient of variation of the rank loads over the window, mean over layers; exact."
    return Table("Global EP-rank balance", caption, ["scenario", "before placement", "after"], rows)


def rates(found: list[dict[str, Any]]) -> Table:
    """Show simulated throughput by layout."""
    rows = []
    for one in found:
        base = one[_RATE]["baseline"]["mean"]
        for key, of in one[_RATE].items():
            gain = _change(of["mean"] / base - 1)
            rows.append([one["scenario"], LAYOUTS[key], _spread(of, 0), f"{of['tenth']:,.0f}", gain])
    head = ["scenario", "layout", "tokens/s", "10th percentile", "over Baseline"]
    caption = "Mean and sample standard deviation over windows. Nobody has measured these on a trainer."
    return Table("Simulated throughput", caption, head, rows)


def comparisons(found: list[dict[str, Any]]) -> Table:
    """Show the tests between layouts."""
    rows = [
        [one["scenario"], f"{LAYOUTS[test['first']]}, {LAYOUTS[test['second']]}"]
        + [f"{test[key]:.2g}" for key in ("p", "bonferroni", "holm")]
        for one in found
        for test in one["comparisons"]
    ]
    head = ["scenario", "layouts", "p", "Bonferroni", "Holm"]
    return Table("Simulated throughput, tested", "Two-sided Mann-Whitney U over windows.", head, rows)


def parts(found: list[dict[str, Any]]) -> Table:
    """Show where RoutePack's simulated step spends its time."""
    rows = []
    for one in found:
        step = one["simulated"]["routepack"]
        busy = sum(step[f"{key}_seconds"] for key in _PARTS) or 1.0
        shares = [f"{100 * step[f'{key}_seconds'] / busy:.0f} %" for key in _PARTS]
        sent = [f"{step[f'{level}_node_bytes'] / 2**30:,.1f}" for level in ("intra", "inter")]
        idle = f"{100 * step['idle_share']:.1f} %"
        rows.append([one["scenario"], f"{step['step_seconds']:.3f}", *shares, idle, *sent])
    head = ["scenario", "seconds", *_PARTS.values(), "pipeline idle", "GiB in the node", "GiB between nodes"]
    caption = "RoutePack's layouts. Where exchange is large, the network decides what is left."
    return Table("Where the simulated step goes", caption, head, rows)


def sensitivity(found: list[dict[str, Any]]) -> Table:
    """Show RoutePack's simulated gain over Baseline with one coefficient halved and doubled."""
    names = list(found[0]["sensitivity"]) if found else []
    rows = [
        [name.replace("_", " "), *(_change(one["sensitivity"][name]["routepack"]) for one in found)]
        for name in sorted(names, key=lambda name: (name != "as assumed", name))
    ]
    head = ["coefficient", *(one["scenario"] for one in found)]
    caption = "Simulated gain of RoutePack over Baseline when one assumption is off by a factor of two."
    return Table("If the assumptions are wrong", caption, head, rows)


def _assumed(assumptions: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the accelerator that each scenario is simulated on, with its source."""
    found = []
    for scenario, of in assumptions.items():
        chip = of.get("accelerator", {})
        text = ", ".join(f"{key} {value:g}" for key, value in chip.items() if isinstance(value, int | float))
        found.append((scenario, f"{chip.get('name', 'unknown')}: {text}"))
    return found


def _change(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:+.2f} %"


def _spread(of: Mapping[str, Any], digits: int) -> str:
    deviation = "" if of["deviation"] is None else f" ± {of['deviation']:,.{digits}f}"
    return f"{of['mean']:,.{digits}f}{deviation}"
