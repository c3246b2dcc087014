"""Enumeration of every pattern that a packing into K bins can use, and an exact cover over them.

Guarantees: with whole duals y (no pattern weighs over k) a packing into K bins uses only patterns that weigh
at least ``k - (K k - y d)``; maximal ones suffice, because covering more than the demand does no harm. So an
infeasible cover proves that K bins do not do, also where the rounded-up LP says they might.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.solvers.interruptible import search
from routepack_opt.solvers.rows.columns.generate import Columns, whole_duals
from routepack_opt.solvers.rows.columns.master import IntArray, Sizes

LARGEST_TABLE = 40_000_000  # entries of the suffix table
MOST_PATTERNS = 60_000


@dataclass(frozen=True)
class Enumeration:
    """All patterns within the slack.

    Attributes
    ----------
    weights : int64[m]
        Whole duals y of the sizes.
    k : int
        Most weight of a pattern.
    least : int
        Weight below which a pattern was left out.
    patterns : list of int64[m]
    """

    weights: IntArray
    k: int
    least: int
    patterns: list[IntArray]


def enumerate_within(
    sizes: Sizes, columns: Columns, count: int, seconds: float, most: int = MOST_PATTERNS
) -> Enumeration | None:
    """Enumerate, with the dual (vertex or interior) of least slack; None when the patterns are too many."""
    from routepack_opt.solvers.rows.columns._kernels import knapsack

    if sizes.size.size * (sizes.cap + 1) > LARGEST_TABLE:
        return None
    candidates = [columns.bound.weights]
    central = columns.master.solve(seconds, interior=True)
    if central is not None:
        candidates.append(whole_duals(central[2]))
    best: Enumeration | None = None
    for weights in candidates:
        k, _ = knapsack(sizes.size, sizes.demand, weights, sizes.cap, 1)
        slack = count * k - int((weights * sizes.demand).sum())
        if k <= 0 or slack < 0:
            continue
        found = list_patterns(sizes, weights, k - slack, most if best is None else len(best.patterns))
        if found is not None and (best is None or found.shape[0] < len(best.patterns)):
            best = Enumeration(weights, k, k - slack, [_dense(row, sizes) for row in found])
    return best


def list_patterns(
    sizes: Sizes, weights: IntArray, least: int, most: int, first: int = -1
) -> NDArray[np.int16] | None:
    """Maximal patterns of weight at least ``least`` as rows of size indices; None when over ``most``."""
    from routepack_opt.solvers.rows.columns._kernels import enumerate_patterns, suffix_values

    alive = sizes.demand > 0
    width = min(int(sizes.demand.sum()), sizes.cap // int(sizes.size[alive].min()))
    out = np.empty((most, max(1, width)), dtype=np.int16)
    table = suffix_values(sizes.size, sizes.demand, weights, sizes.cap)
    found = enumerate_patterns(sizes.size, sizes.demand, weights, sizes.cap, least, table, out, first)
    return None if found < 0 else out[:found]


def _dense(row: NDArray[np.int16], sizes: Sizes) -> IntArray:
    return np.bincount(row[row >= 0], minlength=sizes.size.size).astype(np.int64)


def solve_cover(
    sizes: Sizes, patterns: list[IntArray], count: int, seconds: float, seed: int = 0
) -> tuple[str, list[IntArray] | None]:
    """Cover the demand with at most ``count`` of the patterns, by CP-SAT.

    Returns
    -------
    status : str
        ``feasible``, ``infeasible`` or ``unknown``.
    chosen : list of int64[m] or None
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    grid = np.array(patterns)
    most = [int((sizes.demand[p > 0] // p[p > 0]).max()) + 1 for p in grid]
    # tokens left over in all bins bound how far a size can be covered beyond its demand
    spare = count * sizes.cap - int((sizes.size * sizes.demand).sum())
    use = [model.new_int_var(0, min(m, count), f"p{i}") for i, m in enumerate(most)]
    for j in np.flatnonzero(sizes.demand):
        holders = np.flatnonzero(grid[:, j])
        covered: list[Any] = [int(grid[p, j]) * use[p] for p in holders]
        demand = int(sizes.demand[j])
        model.add_linear_constraint(sum(covered), demand, demand + spare // int(sizes.size[j]))
    model.add(sum(use) <= count)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.01, seconds)
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = seed
    status, interrupted = search(solver, model)
    if interrupted:
        raise KeyboardInterrupt
    if status == cp_model.INFEASIBLE:
        return "infeasible", None
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "unknown", None
    return "feasible", [grid[p] for p, v in enumerate(use) for _ in range(solver.value(v))]
