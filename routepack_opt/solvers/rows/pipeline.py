"""The certification pipeline: cheap bounds and heuristics first, exact methods last, stop at the first proof.

Guarantees: the deadline counts from the call; an interrupt keeps the best bound and packing; the cheap
stages do a bounded amount of work and give the same answer wherever they run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from routepack_opt.bounds.dff import best_dff_bound
from routepack_opt.bounds.rows import WeightBound, item_count_bound, l2_bound, sample_count_bound, sum_bound
from routepack_opt.certificates import RowBound, RowCertificate
from routepack_opt.errors import InputError
from routepack_opt.solvers.rows import heuristics
from routepack_opt.solvers.rows.columns.stage import (
    coarse_bounds,
    column_bounds,
    column_stage,
    core_dive,
    fine_bounds,
    finest_bounds,
    quick_dive,
)
from routepack_opt.solvers.rows.fixed import model_stage
from routepack_opt.solvers.rows.instance import RowTask
from routepack_opt.solvers.rows.polish import (
    cheap_anneal,
    fill_and_anneal,
    guided_anneal,
    long_anneal,
    long_fill,
    longest_fill,
    short_anneal,
)
from routepack_opt.solvers.rows.rules import Contradiction, contradiction, slot_bound, too_few_items
from routepack_opt.solvers.rows.slots import equal_slot_packing
from routepack_opt.solvers.rows.state import ClassState, Progress, RowState

if TYPE_CHECKING:
    from routepack_opt.problem import Problem

QUICK_WORK, FULL_WORK = 500_000, 10_000_000  # ranges of dual feasible functions
QUICK_STEPS, FULL_STEPS = 4_000_000, 40_000_000  # of the subset-sum table
Stage = tuple[str, Callable[[RowState], None]]


def certify_rows(
    problem: Problem,
    time_limit: float = 10.0,
    stages: str = "all",
    rows: int | None = None,
    progress: Progress | None = None,
) -> RowCertificate:
    """Find the least number of rows, and prove it.

    Parameters
    ----------
    problem : Problem
    time_limit : float
        Seconds, counted from the call.
    stages : str
        ``all``, or ``cheap`` for the bounds and heuristics that take milliseconds and no solver.
    rows : int, optional
        Pack this many rows instead of the fewest; the lower bound stays the bound on the fewest.
    progress : callable, optional
        Called after each stage with ``{"stage", "lower", "upper", "seconds"}``.

    Returns
    -------
    RowCertificate
        ``certified``, ``best_known``, ``infeasible`` (with the rule that binds) or ``unknown``.

    Raises
    ------
    InputError
        For an unknown ``stages``, a time limit that is not positive, or fewer than one row.
    """
    _check_arguments(time_limit, stages, rows)
    started = time.monotonic()
    task = RowTask.from_problem(problem)
    found = contradiction(problem)
    if found is not None:
        return _refuse(problem, task, found, time.monotonic() - started)
    state = RowState(
        problem,
        task,
        [ClassState(c) for c in task.classes],
        started + time_limit,
        progress=progress,
        forced=rows,
    )
    return _certificate(problem, state, _run(state, _stages(stages)), started)


def _check_arguments(time_limit: float, stages: str, rows: int | None) -> None:
    if stages not in ("all", "cheap"):
        raise InputError("'all' or 'cheap'", repr(stages), "stages")
    if not time_limit > 0:
        raise InputError("a positive number of seconds", repr(time_limit), "time_limit")
    if rows is not None and rows < 1:
        raise InputError("at least one row", repr(rows), "rows")


def _run(state: RowState, stages: list[Stage]) -> str:
    """Run the stages until a proof, the deadline or an interrupt; why it stopped."""
    try:
        for name, stage in stages:
            begun = time.monotonic()
            stage(state)
            state.report(name, time.monotonic() - begun)
            if state.closed:
                return "proved"
            # a first packing takes less than a millisecond: it is never left out
            if state.remaining <= 0 and name != "counts":
                return "time_limit"
    except KeyboardInterrupt:
        return "interrupted"
    return "exhausted"


def _stages(which: str) -> list[Stage]:
    cheap: list[Stage] = [
        ("counts", _count_bounds),
        ("ffd", _first_fit),
        ("l2", _l2),
        ("bfd", _best_fit),
        ("subset-sum", _subset_sum),
        ("quick dff", lambda state: _dff(state, QUICK_WORK)),
        ("slots", _slots),
        ("anneal", cheap_anneal),
    ]
    thorough: list[Stage] = [
        ("fill", fill_and_anneal),
        ("short anneal", short_anneal),
        ("long subset-sum", lambda state: _subset_sum(state, FULL_STEPS)),
        ("dff", _dff),
        ("bound fill", fill_and_anneal),
        ("bound anneal", short_anneal),
        ("coarse columns", coarse_bounds),
        ("guided anneal", guided_anneal),
        ("long fill", long_fill),
        ("fine columns", fine_bounds),
        ("fine anneal", guided_anneal),
        ("longest fill", longest_fill),
        ("core dive", core_dive),
        ("finest columns", finest_bounds),
        ("finest anneal", guided_anneal),
        ("column bounds", column_bounds),
        ("dive", quick_dive),
        ("long anneal", long_anneal),
        ("columns", column_stage),
        ("model", model_stage),
    ]
    return cheap if which == "cheap" else cheap + thorough


def _dff(state: RowState, work: int = FULL_WORK) -> None:
    for known in state.classes:
        if known.bins.items.size and not known.closed:
            bound = best_dff_bound(known.bins.tokens, known.bins.cap, known.enough_bins, work)
            if bound is not None:
                known.raise_lower(state.task.size, bound)


def _count_bounds(state: RowState) -> None:
    size = state.task.size
    for known in state.classes:
        bins = known.bins
        known.raise_lower(size, WeightBound(np.zeros_like(bins.items), 1, "oversize samples"))
        if not bins.items.size:
            continue
        known.raise_lower(size, sum_bound(bins.tokens, bins.cap))
        known.raise_lower(size, item_count_bound(bins.tokens, bins.cap))
        if bins.max_samples is not None:
            known.raise_lower(size, sample_count_bound(bins.samples, bins.max_samples))
    if state.task.equal_slots:
        state.whole = slot_bound(state.task)


def _first_fit(state: RowState) -> None:
    for known in state.classes:
        known.offer_core(*heuristics.first_fit_decreasing(known.core.bins))


def _l2(state: RowState) -> None:
    for known in state.classes:
        if known.bins.items.size and not known.closed:
            known.raise_lower(state.task.size, l2_bound(known.bins.tokens, known.bins.cap))


def _best_fit(state: RowState) -> None:
    for known in state.classes:
        # quadratic, and rarely better than first fit: not for huge windows
        if not known.closed and known.core.bins.items.size <= 4096:
            known.offer_core(*heuristics.best_fit_decreasing(known.core.bins))


def _subset_sum(state: RowState, work: int = QUICK_STEPS) -> None:
    for known in state.classes:
        if not known.closed:
            known.offer_core(*heuristics.subset_sum_fill(known.core.bins, work))


def _slots(state: RowState) -> None:
    """Under ``equal_samples_per_slot``, pack the first legal row count from the bound up that will go."""
    task = state.task
    if not task.equal_slots:
        return
    least = [c.lower for c in state.classes]
    rows = state.lower if state.forced is None else task.legal(state.forced)
    last = task.most_rows if state.forced is None else rows
    while rows <= last and (state.upper is None or rows < state.upper):
        found = equal_slot_packing(task, least, rows)
        if found is not None:
            state.offer_layout(found, rows)
            return
        rows = task.legal(rows + 1)


def _refuse(problem: Problem, task: RowTask, why: Contradiction, seconds: float) -> RowCertificate:
    bound = RowBound(task.most_rows + 1, "rule", why.rule)
    return RowCertificate(
        None, task.legal(bound.rows), "infeasible", (bound,), None, problem.rows_digest, "proved",
        why.rule, why.message, why.dummies, seconds,
    )  # fmt: skip


def _certificate(problem: Problem, state: RowState, stop: str, started: float) -> RowCertificate:
    """Build the certificate from what the state holds."""
    lower, packing = state.lower, None if state.infeasible else state.packing()
    rows = None if packing is None else state.upper
    why: Contradiction | None = None
    status = "unknown"
    least = [c.lower for c in state.classes]
    too_many = any(r > c.most_rows for r, c in zip(least, state.task.classes, strict=True))
    if lower > state.task.most_rows or too_many:
        status, why = "infeasible", too_few_items(state.task, least, lower, state.whole)
        lower = max(lower, state.task.legal(state.task.most_rows + 1))
    elif rows is not None:
        status = "certified" if rows == lower else "best_known"
    elif state.forced is not None:
        why = _cannot_force(state)
    return RowCertificate(
        rows, lower, status, state.bounds(), packing, problem.rows_digest, stop,
        why.rule if why else None, why.message if why else None, why.dummies if why else None,
        time.monotonic() - started, tuple(state.stages),
    )  # fmt: skip


def _cannot_force(state: RowState) -> Contradiction | None:
    rows, task = state.forced, state.task
    assert rows is not None
    if task.legal(rows) != rows:
        rule = "min_rows" if rows < task.min_rows else "row_multiple"
        return Contradiction(rule, f"{rows} rows were asked for, the rule allows {task.legal(rows)}")
    if rows < state.lower:
        return Contradiction("rows", f"{rows} rows were asked for, at least {state.lower} are needed")
    if rows > task.most_rows:
        dummies = rows * task.dp - task.size
        return Contradiction(
            "rows",
            f"{rows} rows of {task.dp} slots have {rows * task.dp} cells, none empty, but there are "
            f"{task.size} items; {dummies} dummy sample(s) would fill them",
            dummies,
        )
    return None
