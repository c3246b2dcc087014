"""`routepack plan`: the main job."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from routepack_opt.cli import options as o
from routepack_opt.cli.output import err, print_json
from routepack_opt.cli.summary import failure_record, plan_record, print_plan
from routepack_opt.errors import InfeasibleError, NoLayoutError
from routepack_opt.layout import Layout
from routepack_opt.planner import Budget, plan, warm_up
from routepack_opt.plans import Plan
from routepack_opt.problem import Topology
from routepack_opt.solvers.annealing.parameters import AnnealingParameters
from routepack_opt.window import Window


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("plan")(plan_window)


def plan_window(
    window: o.WindowFile,
    dp: o.Dp,
    capacity: o.Capacity = None,
    ep: o.Ep = 1,
    edp_shards: o.Shards = 1,
    ranks_per_node: o.RanksPerNode = None,
    stage: o.Stages = None,
    model: o.Preset = None,
    tp: o.Tp = 1,
    cp: o.Cp = 1,
    length_multiple: o.LengthMultiple = 1,
    cell_multiple: o.CellMultiple = 1,
    pad_routing: o.PadRouting = "none",
    min_rows: o.MinRows = 1,
    row_multiple: o.RowMultiple = 1,
    equal_samples_per_slot: o.EqualSamples = False,
    max_samples_per_cell: o.MaxSamples = None,
    same_cell: o.SameCell = None,
    row_class: o.RowClass = None,
    oversize: o.Oversize = "reject",
    row_order: o.RowOrder = "none",
    seed: o.Seed = 0,
    deadline: Annotated[
        float | None, typer.Option(help="Seconds; the plan is not reproducible.", rich_help_panel="Search")
    ] = None,
    proposals: Annotated[
        int | None, typer.Option(help="Reproducible amount of search.", rich_help_panel="Search")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(help="Save the search here after every level; go on from it.", rich_help_panel="Search"),
    ] = None,
    threads: o.Threads = 1,
    method: Annotated[
        str, typer.Option(help="annealing, paper or seed.", rich_help_panel="Search")
    ] = "annealing",
    refine_placement: Annotated[
        bool,
        typer.Option("--refine-placement", help="Move experts for the rows found.", rich_help_panel="Search"),
    ] = False,
    own: Annotated[
        Path | None, typer.Option(help="JSON file cells[row][slot] of the trainer's own layout.")
    ] = None,
    previous: Annotated[
        Path | None, typer.Option(help="Plan of the step before: fewest experts move.")
    ] = None,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Plan a window: place its experts, pack its samples, and compare with common layouts.

    Example: routepack plan window.npz --dp 8 --ep 8 --capacity 2048 --stage mla:2:2 --deadline 1
    """
    rules = o.rules_of(locals())
    size = o.needed(capacity, "--capacity")
    stages = o.stages_of(stage, model, size, tp, cp)
    topology = Topology(dp, ep, edp_shards, ranks_per_node)
    problem = o.problem_of(Window.load(window), topology, size, stages, rules)
    asked: dict[str, Any] = {
        "seed": seed,
        "deadline": deadline,
        "budget": None if proposals is None else Budget(proposals),
        "method": method,
        "refine_placement": refine_placement,
        "threads": threads,
        "checkpoint": checkpoint,
        "own": None
        if own is None
        else Layout.from_cells(o.read_json_list(own, "cells[row][slot] of sample ids")),
        "previous": None if previous is None else Plan.load(previous),
    }
    with _Watch(quiet=json or not err.is_terminal) as watch:
        warm = warm_up()
        try:
            result = plan(problem, progress=watch, **asked)
        except (InfeasibleError, NoLayoutError) as error:
            if json:
                print_json(failure_record(error))
            raise
    if output is not None:
        result.save(output)
    if json:
        print_json(plan_record(result) | {"warmup_seconds": warm})
    else:
        print_plan(result, warm, output)


def _own(path: Path) -> Layout:
    return Layout.from_cells(o.read_json_list(path, "cells[row][slot] of sample ids"))


class _Watch:
    """Live progress on standard error."""

    def __init__(self, quiet: bool) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn())
        self.bar = Progress(*columns, console=err, transient=True, disable=quiet)
        self.levels = AnnealingParameters().levels

    def __enter__(self) -> _Watch:
        self.bar.start()
        first = (
            "loading kernels"
            if os.environ.get("NUMBA_DISABLE_JIT")
            else "loading kernels (first time: compiling)"
        )
        self.task = self.bar.add_task(first, total=self.levels)
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def __call__(self, stage: str, facts: Mapping[str, Any]) -> None:
        if stage == "resumed":
            done = f"{facts['levels']} levels, {facts['proposals']:,} proposals done"
            err.print(f"going on from {facts['path']}: {done}", soft_wrap=True, highlight=False)
        elif stage == "level":
            level = facts["level"]
            text = f"annealing, {level.seconds:.1f} s, best {level.incumbent[0]:,}"
            self.bar.update(self.task, advance=1, description=text)
        else:
            self.bar.update(self.task, description=stage)
