"""Evaluation runs: every window of a suite, in several processes or on a cluster, resumable.

Guarantees: the finished table does not depend on who runs a window (only its `plan_seconds` do), nor on
whether the run was stopped in between; rows are on disk as soon as all windows before them are.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from routepack_opt._version import __version__
from routepack_opt.arrays import whole_number
from routepack_opt.errors import InputError
from routepack_opt.suite.evaluation.measuring import measure_window
from routepack_opt.suite.evaluation.results import (
    KIND,
    LAYOUTS,
    SCHEMA,
    Results,
    Row,
    append,
    open_results,
    write_csv,
    write_results,
)
from routepack_opt.suite.evaluation.scenarios import EvaluationSuite, Scenario

#: Called with windows done, windows in all, and the newest rows.
Progress = Callable[[int, int, Sequence[Row]], None]
#: Maps a function over items and keeps their order, as `map` does.
Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
_Unit = tuple[Scenario, int, tuple[int, ...]]


def run_evaluation(
    suite: EvaluationSuite,
    *,
    seeds: int = 1,
    proposals: int | None = None,
    deadline: float | None = None,
    processes: int = 1,
    mapper: Mapper | None = None,
    output: Path | None = None,
    progress: Progress | None = None,
) -> Results:
    """Run Baseline, Reorder and RoutePack on every window of a suite.

    Parameters
    ----------
    suite : EvaluationSuite
        What to run.
    seeds : int, default 1
        Plans per window, with seeds 0, 1, ...
    proposals, deadline : int or float, optional
        Budget of every plan, or its seconds; at most one. Neither means the default budget.
    processes : int, default 1
        Processes that share the windows; one runs them here.
    mapper : callable, optional
        Runs the windows instead, such as :func:`routepack_opt.integrations.ray.ray_map`.
    output : Path, optional
        JSON-lines file, written as the run goes on and continued by a second run; a CSV of the rows is
        written beside it at the end.
    progress : callable, optional
        Called after every window.

    Returns
    -------
    Results

    Raises
    ------
    InputError
        For both budgets, both processes and a mapper, or an output of another run.
    """
    if proposals is not None and deadline is not None:
        raise InputError("at most one of proposals and deadline", "both", "budget")
    if mapper is not None and processes != 1:
        raise InputError("at most one of processes and a mapper", f"{processes} processes and one", "mapper")
    chosen = tuple(range(whole_number(seeds, "seeds", low=1)))
    budget = {"proposals": proposals, "deadline": deadline}
    header = {
        "kind": KIND,
        "schema": SCHEMA,
        "version": __version__,
        "suite": dict(suite.record),
        "budget": budget,
        "assumptions": {scenario.name: scenario.assumptions for scenario in suite.scenarios},
    }
    rows = {_key(row): row for row in (open_results(output, header) if output is not None else [])}
    units = list(_units(suite, chosen, rows))
    windows = sum(len(scenario.windows) for scenario in suite.scenarios)
    done = windows - len(units)
    with _mapping(whole_number(processes, "processes", low=1), mapper) as run_all:
        for made in run_all(partial(_run, budget), units):
            done += 1
            rows |= {_key(row): row for row in made}
            if output is not None:
                append(output, made)
            if progress is not None:
                progress(done, windows, made)
    table = list(_ordered(suite, chosen, rows))
    if output is not None:
        write_results(output, header, table)
        write_csv(output.with_suffix(".csv"), table)
    return Results(header, table)


def _run(budget: Mapping[str, Any], unit: _Unit) -> list[Row]:
    return measure_window(*unit, budget)


def _key(row: Row) -> tuple[str, str, int, str]:
    return row["scenario"], row["window"], row["seed"], row["layout"]


def _units(suite: EvaluationSuite, seeds: Sequence[int], rows: Mapping[Any, Row]) -> Iterator[_Unit]:
    """Yield every window with the seeds that are missing."""
    for scenario in suite.scenarios:
        for k, window in enumerate(scenario.windows):
            missing = tuple(s for s in seeds if (scenario.name, window, s, LAYOUTS[0]) not in rows)
            if missing:
                yield scenario, k, missing


def _ordered(suite: EvaluationSuite, seeds: Sequence[int], rows: Mapping[Any, Row]) -> Iterator[Row]:
    kept = sorted({*seeds, *(row["seed"] for row in rows.values())})  # an earlier run may have had more
    for scenario in suite.scenarios:
        for window in scenario.windows:
            for seed in kept:
                keys = ((scenario.name, window, seed, layout) for layout in LAYOUTS)
                yield from (rows[key] for key in keys if key in rows)


@contextmanager
def _mapping(processes: int, mapper: Mapper | None) -> Iterator[Mapper]:
    """Give a map over units that keeps their order."""
    if mapper is not None or processes == 1:
        yield mapper or map
        return
    # A fork would copy the locks of threads that kernels and libraries have started.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(processes, mp_context=context)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
