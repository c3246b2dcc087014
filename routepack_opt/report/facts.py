"""What a report says in words and tables: how sure the plan is, and what it costs beside other layouts.

Guarantees: every number is the plan's; what is unknown is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from routepack_opt.crossings import Crossings
from routepack_opt.plans import Plan
from routepack_opt.plotting.style import held, unit_of

#: How the layouts of a plan's table are called.
LAYOUTS = {
    "baseline": "Baseline",
    "reorder": "Reorder",
    "routepack": "RoutePack",
    "least_loaded": "least-loaded greedy",
    "own": "own layout",
}
#: Metrics of that table: heading and decimal digits.
METRICS = {
    "joint": ("joint", 2),
    "attention": ("attention", 2),
    "ep_peak_sum": ("EP peak sum", 0),
    "ep_tail_peak": ("EP tail peak", 0),
    "ep_balance_efficiency": ("EP efficiency", 4),
    "cv_global": ("global CV", 4),
}
_ROWS = {
    "certified": "certified: fewer rows cannot hold the window",
    "best_known": "best known; at least {bound} are needed",
    "infeasible": "proven infeasible",
    "unknown": "nothing is known about fewer rows",
}


class Fact(NamedTuple):
    """A number with its name, and a sentence that says how to read it."""

    name: str
    value: str
    note: str


def percent(value: float | None, digits: int = 2) -> str:
    """Write a share as a percentage."""
    return "unknown" if value is None else f"{100 * value:.{digits}f} %"


def facts_of(plan: Plan) -> list[Fact]:
    """Return what a reader wants to know first."""
    shot, rows = held(plan), plan.rows
    known = _ROWS.get(rows.status, rows.status).format(bound=rows.lower_bound)
    slots = shot.cell_tokens.shape[1]
    facts = [
        Fact("Execution rows", f"{rows.rows}", f"of {slots} slots; {known}"),
        Fact("Gap", percent(plan.gap), "of the first score component above a proven bound, this placement"),
        Fact("Gap, any placement", percent(plan.gap_any), "above a bound that no placement can beat"),
        Fact("Cells filled", percent(shot.fill, 1), f"of {shot.capacity:,} tokens on average"),
        Fact("Experts moved", _moves(plan), "to another rank, over all layers"),
        Fact("Rung", plan.rung, plan.reason or "the whole search was made"),
    ]
    if plan.crossings is not None:
        facts.append(Fact("Crossings", percent(plan.crossings.share), crossings_text(plan.crossings)))
    return facts


def crossings_text(found: Crossings) -> str:
    """Say how many assignments leave their node, and how many fewer than before seating."""
    away, routed = (f"{value / found.ranks:,.0f}" for value in (found.after, found.total))
    nodes = f"nodes of {found.ranks_per_node} ranks"
    return f"{away} of {routed} assignments leave their node ({nodes}); seating saved {percent(found.saved)}"


def _moves(plan: Plan) -> str:
    moves, moved = plan.provenance.get("moves"), plan.provenance.get("bytes_moved")
    size = f" ({moved / 2**30:.2f} GiB)" if isinstance(moved, int) else ""
    return "unknown" if moves is None else f"{moves:,}{size}"


def cautions(plan: Plan) -> list[str]:
    """Return what must not be overlooked."""
    shot, found = held(plan), []
    if plan.provenance.get("routing") == "predicted":
        found.append("The routing is a forecast: loads and scores are those of the forecast.")
    if not plan.feasible:
        found.append(f"The layout breaks a rule: {plan.broken_rule}.")
    if shot.alone.any():
        found.append(f"{int(shot.alone.sum())} samples over the capacity run alone in a cell.")
    return found + [note[:1].upper() + note[1:] + "." * (not note.endswith(".")) for note in shot.notes]


def layout_table(plan: Plan) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows of the comparison with other layouts."""
    table = held(plan).table
    head = ["layout", *(name for name, _ in METRICS.values())]
    return head, [[LAYOUTS[key], *metric_texts(table[key])] for key in LAYOUTS if key in table]


def metric_texts(row: Mapping[str, float] | None) -> list[str]:
    """Return the metrics of one layout as text; dashes where the layout was not found."""
    if row is None:
        return ["-"] * len(METRICS)
    return [f"{row[key]:,.{digits}f}" for key, (_, digits) in METRICS.items()]


def origin(plan: Plan) -> list[tuple[str, str]]:
    """Return where the plan comes from, for those who want to make it again."""
    unit, facts = unit_of(plan), plan.provenance
    found: dict[str, Any] = {
        "score": None if plan.score is None else ", ".join(f"{value:.6f}" for value in plan.score.as_float()),
        "bound of the first component": None if plan.bound is None else f"{plan.bound / unit:.6f}",
        "attention stages (name:alpha:beta)": ", ".join(held(plan).stages),
        "plan hash": plan.hash,
    }
    keys = ("problem", "window", "routing", "policy_version", "method", "seed", "deadline", "proposals")
    found |= {key: facts.get(key) for key in (*keys, "reproducible", "seconds", "version")}
    return [(key, str(value)) for key, value in found.items() if value not in (None, "")]
