"""`routepack evaluate`: Baseline, Reorder and RoutePack over sequences of windows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from routepack_opt.cli import options as o
from routepack_opt.cli.output import err, number, out, percent, print_json, print_table
from routepack_opt.errors import InputError
from routepack_opt.suite.evaluation import read_suite, run_evaluation, summary
from routepack_opt.suite.evaluation.results import LAYOUTS, Row
from routepack_opt.suite.evaluation.runs import Mapper
from routepack_opt.suite.evaluation.tables import RATES

_NAMES = {"baseline": "Baseline", "reorder": "Reorder", "routepack": "RoutePack"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("evaluate")(evaluate)


def evaluate(
    suite: Annotated[Path, typer.Argument(help="Suite file (JSON).", metavar="SUITE")],
    seeds: Annotated[int, typer.Option(help="Plans per window, with seeds 0, 1, ...", min=1)] = 1,
    proposals: Annotated[int | None, typer.Option("--proposals", help="Budget of every plan.")] = None,
    deadline: Annotated[
        float | None, typer.Option("--deadline", help="Seconds of every plan instead.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Processes that share the windows.", min=1)] = 1,
    ray: Annotated[
        bool, typer.Option("--ray", help="Share the windows among the cores of a Ray instead.")
    ] = False,
    only: Annotated[str, typer.Option(help="Only scenarios whose name has this in it.")] = "",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Compare Baseline, Reorder and RoutePack over sequences of windows; step times are simulated.

    Example: routepack evaluate instances/evaluation/paper.json --seeds 3 -o results.jsonl
    """
    asked = read_suite(suite)
    chosen = tuple(scenario for scenario in asked.scenarios if only in scenario.name)
    if not chosen:
        names = ", ".join(repr(scenario.name) for scenario in asked.scenarios)
        raise InputError(f"a part of {names}", repr(only), "--only")
    results = run_evaluation(
        replace(asked, scenarios=chosen),
        seeds=seeds,
        proposals=proposals,
        deadline=deadline,
        processes=processes,
        mapper=_ray_map() if ray else None,
        output=output,
        progress=_Progress(),
    )
    facts = summary(results)
    if json:
        print_json({"summary": facts, "assumptions": results.header["assumptions"]})
        return
    for scenario in facts:
        _print(scenario, results.header["assumptions"][scenario["scenario"]])
    if output is not None:
        out.print(f"written to {output} and {output.with_suffix('.csv')}")


def _ray_map() -> Mapper:
    try:
        from routepack_opt.integrations.ray import ray_map
    except ModuleNotFoundError as error:
        remedy = "Install it with: pip install 'routepack_opt[ray]'"
        raise InputError("the package ray", "none", "--ray", remedy) from error
    return ray_map


class _Progress:
    """Tells on standard error which window is done and how long the rest will take."""

    def __init__(self) -> None:
        self.started, self.first = time.monotonic(), 0

    def __call__(self, done: int, windows: int, rows: Sequence[Row]) -> None:
        self.first = self.first or done
        spent = time.monotonic() - self.started
        left = spent / (done - self.first + 1) * (windows - done)
        name = f"{rows[0]['scenario']}: {rows[0]['window']}"
        err.print(f"{done} of {windows} windows, {left:.0f} s left  {name}", soft_wrap=True)


def _print(scenario: dict[str, Any], assumptions: dict[str, Any]) -> None:
    rows = []
    for layout in LAYOUTS:
        rate, cv, parts = (
            scenario[RATES][layout],
            scenario["cv_global"][layout],
            scenario["simulated"][layout],
        )
        rows.append(
            [
                _NAMES[layout],
                number(cv["mean"], 4),
                _thousands(rate["mean"]),
                _thousands(rate["deviation"]),
                _thousands(rate["tenth"]),
                percent(parts["exchange_share"], 1),
                percent(parts["idle_share"], 1),
            ]
        )
    title = f"{scenario['scenario']}: {scenario['windows']} windows, throughput simulated"
    head = ("layout", "global CV", "1000 tokens/s", "deviation", "10th percentile", "exchange", "idle")
    print_table(title, head, rows)
    for found in scenario["comparisons"]:
        pair = f"{_NAMES[found['second']]} over {_NAMES[found['first']]}"
        gain = percent(found["ratio"] - 1, 2)
        out.print(
            f"simulated, {pair}: {gain} (p {found['bonferroni']:.2g} Bonferroni, {found['holm']:.2g} Holm)"
        )
    loads = scenario["loads"]
    before, after = loads["ep_balance_efficiency"]
    changes = ", ".join(
        f"{name.replace('_', ' ')} {percent(loads[name], 2)}"
        for name in ("ep_peak_sum", "ep_tail_peak", "attention", "joint")
    )
    out.print(f"RoutePack against Reorder: {changes}; EP balance efficiency {before:.3f} to {after:.3f}")
    least, most = _span(scenario["sensitivity"])
    out.print(f"any coefficient halved or doubled: simulated gain {percent(least, 1)} to {percent(most, 1)}")
    out.print(f"assumed: {_assumed(assumptions)}\n")


def _thousands(value: float | None) -> str:
    return number(None if value is None else value / 1000, 2)


def _span(sensitivity: dict[str, dict[str, float]]) -> tuple[float, float]:
    gains = [entry["routepack"] for entry in sensitivity.values()]
    return min(gains), max(gains)


def _assumed(assumptions: dict[str, Any]) -> str:
    device, share = assumptions["accelerator"], assumptions["efficiency"]
    parts = ", ".join(f"{name} {entry['value']:g}" for name, entry in share.items())
    return (
        f"{device['name']}, {device['peak_flops'] / 1e12:g} TFLOP/s, "
        f"{device['intra_node_bandwidth'] / 1e9:g} and {device['inter_node_bandwidth'] / 1e9:g} GB/s "
        f"inside and between nodes; reached: {parts}; "
        f"{assumptions['pipeline']} pipeline stages of {assumptions['chunks']} chunks"
    )
