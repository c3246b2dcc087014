"""`routepack solve` and `routepack gap`: exact optima of instances, and heuristics held against them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from routepack_opt.cli import options as o
from routepack_opt.cli.output import err, number, out, percent, print_json, print_table
from routepack_opt.errors import CheckError, FormatError, InfeasibleError, NoLayoutError
from routepack_opt.models.layout import COMPONENTS
from routepack_opt.solvers.exact import ExactResult
from routepack_opt.suite.gap import GapRow, planner_method, run_gap, summary
from routepack_opt.suite.instances import MANIFEST, Instance, Suite

BACKENDS = ("cpsat", "highs", "pyomo", "patterns")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("solve")(solve)
    app.command("gap")(gap)


def solve(
    instance: Annotated[Path, typer.Argument(help="Instance file of a suite.", metavar="INSTANCE")],
    backend: Annotated[
        str, typer.Option(help="cpsat, highs, pyomo, or patterns (row patterns, small instances).")
    ] = "cpsat",
    time_limit: Annotated[float | None, typer.Option("--time-limit", help="Seconds for everything.")] = None,
    seed: o.Seed = 0,
    threads: Annotated[int, typer.Option("--threads", help="Threads of the solver.")] = 1,
    hint: Annotated[bool, typer.Option(help="Start from the planner's layout.")] = True,
    log: Annotated[bool, typer.Option("--log", help="Show incumbents and bounds over time.")] = False,
    json: o.Json = False,
) -> None:
    """Find the lexicographically best layout of an instance and prove it.

    Ctrl-C ends the solve and shows what it has found and proven by then.

    Example: routepack solve instances/exact-small/NAME.npz --backend highs --time-limit 60
    """
    from routepack_opt.solvers.exact import solve_exact

    asked = Instance.load(instance)
    result = solve_exact(
        asked.problem,
        placement=asked.placement,
        rows=asked.rows,
        backend=o.one_of(backend, BACKENDS, "--backend"),
        hint=_hint(asked, seed) if hint else None,
        seed=seed,
        workers=threads,
        time_limit=time_limit,
    )
    if log:
        for entry in result.log:
            err.print(f"{entry.seconds:8.2f} s  {entry.component:<9} {entry.kind:<9} {entry.value}")
    if json:
        print_json(_record(asked, result))
    elif result.score is not None or result.termination == "interrupted":
        _show(asked, result)
    if result.termination == "interrupted":
        raise typer.Exit(o.INTERRUPTED)
    if result.termination == "infeasible":
        rules = ", ".join(result.infeasible) or "all rules together"
        raise InfeasibleError(rules, f"{asked.rows} rows have no layout")
    if result.termination == "error":
        raise CheckError(result.message)
    if result.score is None:
        raise NoLayoutError(f"{asked.name}: no layout found in {time_limit} s, and none excluded")


def _hint(asked: Instance, seed: int) -> Any:
    """Return the planner's layout, or None when it finds none."""
    try:
        return planner_method()(asked, seed).layout
    except (InfeasibleError, NoLayoutError):
        return None


def _record(asked: Instance, result: ExactResult) -> dict[str, Any]:
    score = result.score
    return {
        "instance": asked.name,
        "backend": result.backend,
        "termination": result.termination,
        "solution_status": result.solution_status,
        "score": None if score is None else {c: str(getattr(score, c)) for c in COMPONENTS},
        "bound": {c: None if b is None else str(b) for c, b in zip(COMPONENTS, result.bound, strict=True)},
        "proven": dict(zip(COMPONENTS, result.proven, strict=True)),
        "infeasible": list(result.infeasible),
        "layout": None if result.layout is None else result.layout.cell_of_sample.tolist(),
        "log": [asdict(entry) for entry in result.log],
    }


def _show(asked: Instance, result: ExactResult) -> None:
    rows, unit = [], asked.problem.denominator
    values = result.score.components if result.score is not None else (None, None, None)
    for name, value, low, proven in zip(COMPONENTS, values, result.bound, result.proven, strict=True):
        score, bound = (None if v is None else v / unit for v in (value, low))
        rows.append([name, number(score, 6), number(bound, 6), "yes" if proven else "-"])
    print_table(f"{asked.name} ({result.backend}: {result.termination})", _HEAD, rows)


_HEAD = ("component", "score", "bound", "proven")


def gap(
    suite: Annotated[Path, typer.Argument(help="A suite's folder, or name in instances.", metavar="SUITE")],
    method: Annotated[str, typer.Option(help="annealing, paper or seed.")] = "annealing",
    seeds: Annotated[int, typer.Option(help="Runs per instance, with seeds 0, 1, ...", min=1)] = 10,
    proposals: Annotated[int | None, typer.Option("--proposals", help="Budget of every run.")] = None,
    deadline: Annotated[
        float | None, typer.Option("--deadline", help="Seconds of every run instead.")
    ] = None,
    only: Annotated[str, typer.Option(help="Only instances whose name has this in it.")] = "",
    update_best: Annotated[bool, typer.Option(help="Take better layouts into the manifest.")] = False,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Measure how far the planner stays from the best known scores of a suite.

    Example: routepack gap exact-small --seeds 10 -o gap.jsonl
    """
    from routepack_opt.planner import Budget, warm_up

    folder = _folder(suite)
    options: dict[str, Any] = {"deadline": deadline}
    if proposals is not None:
        options["budget"] = Budget(proposals=proposals)
    chosen = o.one_of(method, ("annealing", "paper", "seed"), "--method")
    warm_up()
    rows = run_gap(
        Suite(folder),
        planner_method(chosen, **options),
        range(seeds),
        name=f"{chosen}, {_budget(proposals, deadline)}",
        output=output,
        update_best=update_best,
        progress=_tell,
        only=only,
    )
    facts = summary(rows)
    if json:
        print_json({"summary": facts, "rows": [asdict(row) for row in rows]})
        return
    for row in rows:
        if row.missed is not None:
            out.print(f"{row.instance} seed {row.seed}: {row.missed} missed, gap {percent(row.gap, 4)}")
    share = percent(facts["reached_share"], 1)
    out.print(f"{facts['reached']} of {facts['runs']} runs at the best known score ({share})")
    out.print(f"mean gap {percent(facts['mean_gap'], 4)}, largest {percent(facts['largest_gap'], 4)}")


def _folder(suite: Path) -> Path:
    """Find a suite by its folder, or by its name below ``instances``."""
    for folder in (suite, Path("instances") / suite):
        if (folder / MANIFEST).exists():
            return folder
    raise FormatError("a suite", f"no {MANIFEST}", str(suite))


def _budget(proposals: int | None, deadline: float | None) -> str:
    if proposals is not None:
        return f"{proposals} proposals"
    return "default budget" if deadline is None else f"{deadline} s"


def _tell(row: GapRow) -> None:
    if err.is_terminal:
        err.print(f"{row.instance}  seed {row.seed}  {row.seconds:.2f} s  {row.missed or 'best known'}")
