"""Dives: fix patterns of the LP solution one after the other, and pack what is left.

Guarantees: a returned list of patterns covers the demand with at most the wanted number of bins.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from routepack_opt.solvers.rows.anneal import anneal_bins
from routepack_opt.solvers.rows.columns.generate import Columns, generate, patterns_of
from routepack_opt.solvers.rows.columns.master import IntArray, Sizes
from routepack_opt.solvers.rows.instance import ClassBins

FINISH_ITEMS = 120
ROUNDS = 8


def dive(
    sizes: Sizes,
    columns: Columns,
    count: int,
    deadline: float,
    seed: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[IntArray] | None:
    """Round the pattern LP to a packing into ``count`` bins, or return None.

    Parameters
    ----------
    sizes : Sizes
    columns : Columns
        Column generation on these sizes.
    count : int
    deadline, clock : float, callable
    seed : int, optional
        Randomize which pattern is fixed next; without it the largest LP value is.
    """
    rng = np.random.default_rng(np.random.SeedSequence(seed)) if seed is not None else None
    fixed: list[IntArray] = []
    left, now = sizes, columns
    while left.demand.any():
        if clock() >= deadline or len(fixed) + now.value > count + 1e-6:
            return None
        chosen = _round(now, left, count - len(fixed), rng)
        if not chosen:
            return None
        fixed += chosen
        left = left.less(np.sum(chosen, axis=0))
        if 0 < int(left.demand.sum()) <= FINISH_ITEMS:
            rest = finish(left, count - len(fixed), proposals=20_000, seed=len(fixed))
            if rest is not None:
                return fixed + rest
        if left.demand.any():
            now = generate(left, now.master.patterns, count - len(fixed) + 1, deadline, clock, ROUNDS)
    return fixed


def finish(left: Sizes, count: int, proposals: int, seed: int) -> list[IntArray] | None:
    """Pack the demand that is left into ``count`` bins by annealing."""
    index = np.repeat(np.arange(left.size.size), left.demand)
    tokens = left.size[index]
    none = np.empty(0, dtype=np.int64)
    bins = ClassBins(0, np.arange(tokens.size), tokens, np.ones_like(tokens), none, left.cap, 1, None)
    where = anneal_bins(bins, count, proposals, seed)
    return None if where is None else patterns_of(where, index, left.size.size)


def _round(columns: Columns, left: Sizes, room: int, rng: np.random.Generator | None) -> list[IntArray]:
    """Patterns to fix: all whole parts of the solution, else the one of largest (or drawn) use."""
    chosen: list[IntArray] = []
    demand = left.demand.copy()
    for p in np.flatnonzero(columns.use >= 1 - 1e-6):
        pattern = columns.master.patterns[p]
        for _ in range(int(columns.use[p] + 1e-6)):
            if len(chosen) < room and bool((pattern <= demand).all()):
                chosen.append(pattern)
                demand = demand - pattern
    if chosen or not room:
        return chosen
    use = np.maximum(columns.use, 0.0)  # the LP's tolerance leaves values just below zero
    pick = int(np.argmax(use)) if rng is None else int(rng.choice(use.size, p=use**3 / (use**3).sum()))
    pattern = np.minimum(columns.master.patterns[pick], demand)
    return [pattern] if pattern.any() else []
