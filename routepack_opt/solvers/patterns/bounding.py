"""A lower bound from row patterns: the set-partitioning relaxation, by column generation over all subsets.

Guarantees: the bound holds for every layout and is computed in exact integers from whole-number duals, so the
linear programs that only suggest the duals need not be trusted; it is refused where subsets are too many.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.bounds.score import score_step
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.solvers.patterns import _kernels as kernels
from routepack_opt.solvers.patterns.master import Master
from routepack_opt.solvers.patterns.table import PatternTable

_SMOOTHING = 0.7  # share of the best duals so far in those that are priced


@dataclass(frozen=True)
class PatternBound:
    """A bound with the duals that prove it.

    Parameters
    ----------
    total : int
        No layout has a smaller sum of row-shard costs (second component of the score), scaled.
    problem : Problem
        What it speaks of.
    duals : numpy.ndarray of int64, shape (M,)
        Worth of every item, times `scale`.
    scale : int
        What the duals are multiplied by.
    least : int
        Least ``scale * cost - duals`` of a set.
    rounds : int
        Linear programs solved.
    converged : bool
        Whether more rounds could not raise the bound.
    """

    total: int
    problem: Problem
    duals: IntArray
    scale: int
    least: int
    rounds: int = 0
    converged: bool = False

    def components(self, rows: int) -> tuple[int, int, int]:
        """Return what follows for the three components: the shares of the costliest shard and row-shard."""
        shards = self.problem.topology.num_shards
        parts = (-(-self.total // shards), self.total, -(-self.total // (rows * shards)))
        step = score_step(self.problem)
        primary, total, row_peak = (-(-value // step) * step for value in parts)
        return primary, total, row_peak


def pattern_bound(
    problem: Problem,
    placement: Placement,
    rows: int,
    *,
    start: Layout | None = None,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> PatternBound:
    """Bound the score of every layout by the row-pattern relaxation.

    For any numbers u, every layout's total is at least ``sum(u) + R G min_S (J(S) - u(S))``, over the sets S
    that a row-shard can hold. The best u are the duals of the set-partitioning program over such sets.

    Parameters
    ----------
    problem : Problem
        Within the limits of :func:`refusal`.
    placement : Placement
        Fixed.
    rows : int
        R.
    start : Layout, optional
        Its row-shards are the first columns.
    seconds : float, optional
        Time limit; the best bound by then is returned.
    clock : callable
        Returns seconds; for tests.

    Returns
    -------
    PatternBound

    Raises
    ------
    InputError
        When the problem is outside the limits, naming the reason.
    """
    started = clock()
    table = PatternTable(problem, placement.demand(problem.item_counts), rows)
    return generate(table, start, None if seconds is None else started + seconds, clock)


def generate(
    table: PatternTable, start: Layout | None, deadline: float | None, clock: Callable[[], float]
) -> PatternBound:
    """Raise the bound by column generation until it converges or time is up."""
    scale = _scale(table)
    master = Master(table, start)
    found: PatternBound | None = None
    centre, share, rounds, converged = np.zeros(0), _SMOOTHING, 0, False
    while not converged and (found is None or deadline is None or clock() < deadline):
        wanted, value = master.solve()
        duals = wanted if found is None else share * centre + (1 - share) * wanted
        whole = np.rint(duals * scale).astype(np.int64)
        least, sets = table.price(whole, scale)
        total = -(-(int(whole.sum()) + table.blocks * int(least.min())) // scale)
        rounds += 1
        if found is None or total > found.total:
            found, centre = PatternBound(total, table.problem, whole, scale, int(least.min())), duals
        news = master.add(sets, wanted)
        converged = found.total >= value - 0.5 or (share == 0.0 and not news)
        share = _SMOOTHING if news else 0.0  # price the program's own duals before believing it is done
    assert found is not None
    return replace(found, rounds=rounds, converged=converged)


def _scale(table: PatternTable) -> int:
    """Largest power of two up to 1024 by which sums of costs can be multiplied within 62 bits."""
    finite = table.cost[table.cost < kernels.IMPOSSIBLE]
    if finite.size == 0:
        raise InputError("rows that some layout has", f"{table.rows}", "rows")
    room = 2**61 // (max(int(finite.max()), 1) * (table.blocks + 1))
    return 1 << min(max(room.bit_length() - 1, 0), 10)
