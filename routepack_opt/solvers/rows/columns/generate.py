"""Column generation for the Gilmore-Gomory LP, with smoothed duals.

Guarantees: the bound that it returns is a :class:`~routepack_opt.bounds.rows.WeightBound` in whole numbers,
with K recomputed exactly; no floating-point value of the LP is part of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from routepack_opt.bounds.rows import WeightBound
from routepack_opt.solvers.rows.columns.master import FloatArray, IntArray, Master, Sizes

SCALE = 10**7
SMOOTHING = 0.8
LARGEST_TABLE = 150_000_000  # bytes of the pricing table
COLUMNS_PER_ROUND = 8


@dataclass(frozen=True)
class Columns:
    """The outcome of column generation.

    Attributes
    ----------
    master : Master
    bound : WeightBound
        Best bound found, over sizes.
    bins : int
        What it proves.
    value : float
        Value of the last restricted LP.
    use : float64[patterns]
        Its solution.
    converged : bool
        Whether no pattern could improve the LP (up to rounding).
    """

    master: Master
    bound: WeightBound
    bins: int
    value: float
    use: FloatArray
    converged: bool


def table_fits(sizes: Sizes) -> bool:
    """Whether the pricing table of these sizes stays within memory."""
    return int(sizes.demand.sum()) * (sizes.cap + 1) <= LARGEST_TABLE


def whole_duals(dual: FloatArray) -> IntArray:
    """Duals in units of 1 / SCALE, rounded down."""
    return np.floor(dual * SCALE + 1e-3).astype(np.int64)


def generate(
    sizes: Sizes,
    patterns: list[IntArray],
    enough: int,
    deadline: float,
    clock: Callable[[], float] = time.monotonic,
    rounds: int = 10_000,
) -> Columns:
    """Solve the pattern LP by column generation.

    Parameters
    ----------
    sizes : Sizes
    patterns : list of int64[m]
        To start from.
    enough : int
        Stop at a bound of so many bins.
    deadline, clock : float, callable
    rounds : int
        Most pricing rounds.
    """
    master = Master(sizes, patterns)
    pricing = _Pricing(master, WeightBound(sizes.size, sizes.cap, "sum of tokens"))
    value, use, converged = float("inf"), np.empty(0), False
    for _ in range(rounds):
        solved = master.solve(deadline - clock())
        if solved is None:
            break
        value, use, dual = solved
        if not pricing.improve(dual):
            converged = True
            break
        if pricing.bins >= enough or clock() >= deadline:
            break
        if pricing.ratio > value - 1e-6 * value:
            converged = True
            break
    return Columns(master, pricing.best, pricing.bins, value, use, converged)


@dataclass
class _Pricing:
    """Prices at duals smoothed towards the best ones so far, and keeps the best bound."""

    master: Master
    best: WeightBound
    bins: int = 0
    ratio: float = 0.0
    center: FloatArray | None = None

    def improve(self, dual: FloatArray) -> bool:
        """Add patterns that improve the LP, priced at the smoothed dual first; False when there is none."""
        center = dual if self.center is None else self.center
        for point in (SMOOTHING * center + (1 - SMOOTHING) * dual, dual):
            added = [self.master.add(p.copy()) for p in self._price(point) if float(dual @ p) > 1 + 1e-7]
            if any(added):
                return True
        return False

    def _price(self, point: FloatArray) -> IntArray:
        """Give good patterns at a dual, and take its bound over if it is better."""
        from routepack_opt.solvers.rows.columns._kernels import knapsack

        sizes, weights = self.master.sizes, whole_duals(point)
        k, found = knapsack(sizes.size, sizes.demand, weights, sizes.cap, COLUMNS_PER_ROUND)
        total = int((weights * sizes.demand).sum())
        if k > 0 and total / k > self.ratio:
            self.ratio, self.center = total / k, point
            self.best, self.bins = WeightBound(weights, k, "column generation"), -(-total // k)
        return found


def patterns_of(where: IntArray, size_of_item: IntArray, sizes: int) -> list[IntArray]:
    """Patterns of a packing: copies of every size in every bin."""
    grid = np.zeros((int(where.max(initial=-1)) + 1, sizes), dtype=np.int64)
    np.add.at(grid, (where, size_of_item), 1)
    return list(grid)


def items_of(patterns: list[IntArray], size_of_item: IntArray) -> IntArray | None:
    """Packing of covering patterns: bin of every item, or None when an item is left over."""
    where = np.full(size_of_item.size, -1, dtype=np.int64)
    left = [
        np.flatnonzero(size_of_item == j)[::-1].tolist() for j in range(int(size_of_item.max(initial=-1)) + 1)
    ]
    for number, pattern in enumerate(patterns):
        for j in np.flatnonzero(pattern):
            for _ in range(int(pattern[j])):
                if left[j]:
                    where[left[j].pop()] = number
    return None if bool((where < 0).any()) else where
