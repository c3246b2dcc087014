"""Exact placements: the least busiest rank of one layer, and the joint optimum of tiny problems.

Guarantees: results are rescored in integers; a bound that is not proven is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.models.cpsat import build_cpsat
from routepack_opt.models.layout import COMPONENTS
from routepack_opt.models.layout.joint import build_joint_model
from routepack_opt.models.placement import build_makespan_model
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import Score, loads_of, score_of
from routepack_opt.solvers.interruptible import search


@dataclass(frozen=True)
class MakespanResult:
    """Busiest rank of one layer: `peak` under `owner` (rank of every expert), and its lower bound."""

    owner: npt.NDArray[np.int64]
    peak: int
    bound: int

    @property
    def optimal(self) -> bool:
        """Whether no placement has a less busy busiest rank."""
        return self.bound >= self.peak


def place_layer_exactly(
    loads: npt.NDArray[np.integer],
    ranks: int,
    *,
    owner: npt.NDArray[np.integer] | None = None,
    backend: Literal["cpsat", "highs"] = "cpsat",
    seed: int = 0,
    time_limit: float | None = None,
) -> MakespanResult:
    """Place the experts of one layer, E / P to a rank, so that the busiest rank is least busy.

    Parameters
    ----------
    loads : numpy.ndarray of int, shape (E,)
        Load of every expert.
    ranks : int
        P.
    owner : numpy.ndarray of int, shape (E,), optional
        Ranks to start from; the result is never worse. By default Algorithm 1 refined by swaps.
    backend : {"cpsat", "highs"}
        Solver. HiGHS runs in this process without a guard on its time limit.
    seed : int
        Seed of the solver.
    time_limit : float, optional
        Seconds.
    """
    from routepack_opt.solvers.placing import place_loads

    if owner is None:
        owner = place_loads(np.asarray(loads)[None], ranks).placement.rank_of_expert[0]
    model = build_makespan_model(loads, ranks)
    hint = model.hint(owner, loads)
    solve = {"cpsat": _cpsat, "highs": _highs}[backend]
    values, bound = solve(model.linear, model.peak, (), hint, seed, time_limit)
    best = np.asarray(owner, np.int64)
    low = max(model.linear.bounds[model.peak][0], bound if bound is not None else 0)
    if values is not None:
        found = model.owner(values)
        if _peak(loads, found, ranks) < _peak(loads, best, ranks):
            best = found
    return MakespanResult(best, _peak(loads, best, ranks), low)


def _peak(loads: npt.NDArray[np.integer], owner: npt.NDArray[np.integer], ranks: int) -> int:
    totals = np.zeros(ranks, np.int64)
    np.add.at(totals, owner, np.asarray(loads, np.int64))
    return int(totals.max())


@dataclass(frozen=True)
class JointResult:
    """Best score over all placements and layouts, with both; `proven` when it is the optimum."""

    score: Score
    placement: Placement
    layout: Layout
    proven: bool


def solve_joint(
    problem: Problem, rows: int, *, seed: int = 0, time_limit: float | None = None
) -> JointResult | None:
    """Find the best placement and layout together (CP-SAT), for tiny problems.

    Parameters
    ----------
    problem : Problem
        A few items, experts and layers.
    rows : int
        R.
    seed : int
        Seed of the solver.
    time_limit : float, optional
        Seconds per component.

    Returns
    -------
    JointResult or None
        None when no layout was found.
    """
    model = build_joint_model(problem, rows)
    locks: list[tuple[int, int]] = []
    best: JointResult | None = None
    hint: Sequence[int] | None = None
    for component in COMPONENTS:
        objective = model.layout.objective[component]
        values, bound = _cpsat(model.layout.linear, objective, locks, hint, seed, time_limit)
        if values is None:
            return best
        placement, layout = model.placement(values), model.layout.layout(values)
        score = score_of(problem, loads_of(problem, placement.demand(problem.item_counts), layout))
        proven = bound == values[objective]
        if best is None or score <= best.score:
            best = JointResult(score, placement, layout, proven)
        if not proven:
            return JointResult(best.score, best.placement, best.layout, False)
        hint = values
        locks.append((objective, values[objective]))
    return best


def _cpsat(
    linear: Any,
    objective: int,
    locks: Sequence[tuple[int, int]],
    hint: Sequence[int] | None,
    seed: int,
    seconds: float | None,
) -> tuple[list[int] | None, int | None]:
    """Return the best values and the bound."""
    from ortools.sat.python import cp_model

    built = build_cpsat(linear, objective, locks, hint)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.random_seed = 1, seed
    if seconds is not None:
        solver.parameters.max_time_in_seconds = seconds
    status, interrupted = search(solver, built.model)
    if interrupted:
        raise KeyboardInterrupt
    if status == cp_model.INFEASIBLE:
        return None, None
    bound = int(solver.response_proto.inner_objective_lower_bound)
    if status == cp_model.UNKNOWN:
        return None, bound
    return [int(solver.value(v)) for v in built.variables], bound


def _highs(
    linear: Any,
    objective: int,
    locks: Sequence[tuple[int, int]],
    hint: Sequence[int] | None,
    seed: int,
    seconds: float | None,
) -> tuple[list[int] | None, int | None]:
    """Return the best values and the claimed bound, rounded up to a whole load."""
    from routepack_opt.solvers.exact.child import solve_highs

    job = {"objective": objective, "locks": list(locks), "hint": hint, "seconds": seconds}
    answer = solve_highs(linear, job, {"seed": seed, "workers": 1}, lambda _: None)
    if answer["status"] == "error":
        raise InputError("an answer from HiGHS", answer["message"], "backend")
    values, bound = answer["values"], answer["bound"]
    whole = None if bound is None else int(np.ceil(bound - 0.01))
    return (None if values is None else [round(v) for v in values]), whole
