"""Gap runs: how far a heuristic stays from the best known score of every instance of a suite.

Guarantees: every layout is rescored and checked before it counts; a run that was stopped goes on where it
stopped; a gap is None where there is nothing to divide by.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from routepack_opt.errors import FormatError
from routepack_opt.layout import Layout
from routepack_opt.models.layout import COMPONENTS
from routepack_opt.suite.instances import Instance, Record, Suite


@dataclass(frozen=True, eq=False)
class Attempt:
    """What a heuristic returns for one instance and seed.

    Parameters
    ----------
    layout : Layout
        Its answer.
    seconds : float
        Time taken.
    trace : sequence of (float, int)
        Seconds and scaled first component of every new best layout; may be empty.
    """

    layout: Layout
    seconds: float
    trace: Sequence[tuple[float, int]] = field(default_factory=tuple)


#: A heuristic: instance and seed to its answer.
Method = Callable[[Instance, int], Attempt]


@dataclass(frozen=True)
class GapRow:
    """Result of one heuristic on one instance with one seed.

    Parameters
    ----------
    instance, digest, method, seed
        What was run; `method` names the heuristic with its budget.
    score, best, bound : list of int
        Scaled components: found, best known before the run, and lower bound.
    proven : int
        How many components of `best` are proven.
    gap, bound_gap : float or None
        First component found, relative to the best known and to the bound.
    missed : str or None
        First component in which `score` is worse than `best`.
    seconds, time_to_best, primal_integral : float or None
        Time of the run, time until the first component was as good as the best known, and the mean
        relative distance to it over the run (1 before the first layout).
    """

    instance: str
    digest: str
    method: str
    seed: int
    score: list[int]
    best: list[int]
    bound: list[int]
    proven: int
    gap: float | None
    bound_gap: float | None
    missed: str | None
    seconds: float
    time_to_best: float | None
    primal_integral: float | None


def run_gap(
    suite: Suite,
    method: Method,
    seeds: Iterable[int],
    *,
    name: str,
    output: Path | None = None,
    update_best: bool = False,
    progress: Callable[[GapRow], None] | None = None,
    only: str = "",
) -> list[GapRow]:
    """Run a heuristic on every instance with every seed.

    Parameters
    ----------
    suite : Suite
        Instances with best known scores.
    method : callable
        The heuristic.
    seeds : iterable of int
        One run each.
    name : str
        Name of the heuristic with its budget; rows of the same name, instance and seed are not run again.
    output : Path, optional
        JSON-lines file that rows are appended to, and read from on a second run.
    update_best : bool, default False
        Take better layouts into the suite's manifest.
    progress : callable, optional
        Called with every new row.
    only : str
        Part of the instance names to run.

    Returns
    -------
    list of GapRow
        Old and new rows of this name, by instance and seed.

    Raises
    ------
    InputError
        When the heuristic returns a layout that breaks a rule.
    """
    rows = {(row.digest, row.seed): row for row in read_rows(output) if row.method == name}
    chosen, result = list(seeds), []
    for instance, record in suite:
        if only not in instance.name or record.best is None:
            continue
        for seed in chosen:
            row = rows.get((record.digest, seed))
            if row is None:
                row = _measure(instance, record, method(instance, seed), seed, name, suite, update_best)
                _append(output, row)
                if progress is not None:
                    progress(row)
            result.append(row)
        if update_best:
            suite.save()
    return result


def read_rows(path: Path | None) -> Iterator[GapRow]:
    """Yield the rows of a results file; a missing file has none.

    Raises
    ------
    FormatError
        Naming the line that is no row. A last line without its end is ignored: the run was stopped there.
    """
    if path is None or not path.exists():
        return
    text = path.read_text()
    for number, line in enumerate(text.split("\n")[:-1]):
        try:
            yield GapRow(**json.loads(line))
        except (ValueError, TypeError) as error:
            raise FormatError("a gap row", f"line {number + 1}: {error}", str(path)) from error


def _append(path: Path | None, row: GapRow) -> None:
    if path is None:
        return
    kept = path.read_text() if path.exists() else ""
    if kept and not kept.endswith("\n"):  # the run was stopped while writing
        path.write_text(kept[: kept.rfind("\n") + 1])
    with path.open("a") as file:
        file.write(json.dumps(asdict(row), sort_keys=True) + "\n")


def _measure(
    instance: Instance, record: Record, attempt: Attempt, seed: int, name: str, suite: Suite, update: bool
) -> GapRow:
    found = list(instance.score(attempt.layout).components)
    best, bound = list(record.best or found), list(record.bound or [0, 0, 0])
    pairs = zip(COMPONENTS, found, best, strict=True)
    worse = next((c for c, value, known in pairs if value != known), None) if found > best else None
    row = GapRow(
        instance.name,
        record.digest,
        name,
        seed,
        found,
        best,
        bound,
        record.proven,
        relative(found[0], best[0]),
        relative(found[0], bound[0]),
        worse,
        attempt.seconds,
        next((seconds for seconds, value in attempt.trace if value <= best[0]), None),
        primal_integral(attempt.trace, best[0], attempt.seconds),
    )
    if update:
        suite.improve(instance, attempt.layout)
    return row


def relative(value: int, base: int) -> float | None:
    """Return (value - base) / base, or None when the base is 0."""
    return (value - base) / base if base else None


def primal_integral(trace: Sequence[tuple[float, int]], best: int, seconds: float) -> float | None:
    """Average over the run of the distance ``(value - best) / value`` of the best layout so far.

    Parameters
    ----------
    trace : sequence of (float, int)
        Seconds and value, ascending in time.
    best : int
        Best known value.
    seconds : float
        Length of the run.

    Returns
    -------
    float or None
        From 0 (best from the start) to 1 (nothing found); None without a trace.
    """
    if not trace or seconds <= 0:
        return None
    area, since, distance = 0.0, 0.0, 1.0
    for moment, value in trace:
        moment = min(moment, seconds)
        area += distance * (moment - since)
        since, distance = moment, max(value - best, 0) / value if value else 0.0
    return (area + distance * (seconds - since)) / seconds


def summary(rows: Sequence[GapRow]) -> dict[str, Any]:
    """Summarise rows: share that reached the best known score, misses by component, mean and largest gap.

    Parameters
    ----------
    rows : sequence of GapRow
        Of one method.
    """
    gaps = [row.gap for row in rows if row.gap is not None]
    to_bound = [row.bound_gap for row in rows if row.bound_gap is not None]
    reached = [row for row in rows if row.missed is None]
    missed = {c: sum(row.missed == c for row in rows) for c in COMPONENTS}
    return {
        "runs": len(rows),
        "instances": len({row.instance for row in rows}),
        "reached": len(reached),
        "reached_share": len(reached) / len(rows) if rows else None,
        "improved": sum(row.score < row.best for row in rows),
        "missed": missed,
        "mean_gap": sum(gaps) / len(gaps) if gaps else None,
        "largest_gap": max(gaps, default=None),
        "mean_bound_gap": sum(to_bound) / len(to_bound) if to_bound else None,
        "seconds": sum(row.seconds for row in rows),
    }


def planner_method(method: str = "annealing", **options: Any) -> Method:
    """Return the planner as a heuristic: the instance's placement and rows are given to it.

    Parameters
    ----------
    method : str
        As in :func:`routepack_opt.plan`.
    **options
        Passed on, such as `budget` or `deadline`.
    """
    from routepack_opt.planner import plan

    def run(instance: Instance, seed: int) -> Attempt:
        started = time.perf_counter()
        made = plan(
            instance.problem,
            seed=seed,
            method=method,  # type: ignore[arg-type]
            placement=instance.placement,
            rows=instance.rows,
            baselines=False,
            **options,
        )
        seconds = time.perf_counter() - started
        trace = [(float(level["seconds"]), int(level["incumbent"][0])) for level in made.trace]
        return Attempt(Layout.from_cells(made.cells, size=instance.problem.window.size), seconds, trace)

    return run
