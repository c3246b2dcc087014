"""Cost of every set of items as one row-shard.

Guarantees: an entry is the cost of the best row-shard that holds exactly those items, or a lower bound on it;
sets that no row-shard of a valid layout holds are marked. Refused where subsets are too many.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.errors import InputError
from routepack_opt.problem import Problem
from routepack_opt.solvers.patterns import _kernels as kernels

MOST_ITEMS = 24  # the table of 2^M costs takes 128 MiB there
_LOW_BITS = 12
_PARTS = 64  # columns per round: the best set of every part of the table


def refusal(problem: Problem) -> str | None:
    """Say why row patterns do not cover a problem, or None when they do."""
    widths = {len(part) for part in problem.topology.shards}
    if problem.items.size > MOST_ITEMS:
        return f"{problem.items.size} items; subsets of at most {MOST_ITEMS} are enumerated"
    if len(widths) > 1:
        return "EDP shards of different sizes"
    if problem.items.alone.any():
        return "items over the capacity"
    return None


@dataclass
class PatternTable:
    """Cost of every set of items as one row-shard.

    Parameters
    ----------
    problem : Problem
        Within the limits of :func:`refusal`.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item.
    rows : int
        R.

    Attributes
    ----------
    cost : numpy.ndarray of int64, shape (2^M,)
        Scaled cost, or a lower bound on it while `exact` is False there.
    blocks : int
        Row-shards R * G.
    """

    problem: Problem
    demand: npt.NDArray[np.integer]
    rows: int
    cost: IntArray = field(init=False)
    exact: npt.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        reason = refusal(self.problem)
        if reason is not None:
            raise InputError("a problem that row patterns cover", reason, "problem")
        size = 1 << self.problem.items.size
        self.cost, self.exact = np.empty(size, np.int64), np.zeros(size, np.bool_)
        demand = np.ascontiguousarray(self.demand, np.int64)
        tokens = self.problem.items.tokens
        kernels.cost_table(
            demand, self.work, tokens, self.width, self.problem.expert_unit, self._limits(), self.cost
        )

    @property
    def width(self) -> int:
        """Cells of a row-shard."""
        return len(self.problem.topology.shards[0])

    @property
    def blocks(self) -> int:
        """Row-shards R * G."""
        return self.rows * self.problem.topology.num_shards

    @property
    def work(self) -> IntArray:
        """Scaled attention work of every item in every stage, int64 (stages, M)."""
        items, linear, quadratic = self.problem.items, self.problem.linear, self.problem.quadratic
        return np.ascontiguousarray(
            linear[:, None] * items.tokens + quadratic[:, None] * items.squares, np.int64
        )

    def _limits(self) -> IntArray:
        """Least and most tokens, least and most items of a row-shard, from what the others can hold."""
        room, others = self.width * self.problem.cell_cap, self.blocks - 1
        items = self.problem.items
        least = int(items.tokens.sum()) - others * room
        most = items.size - others * self.width
        return np.array([least, room, self.width, most], np.int64)

    def price(self, duals: IntArray, scale: int) -> tuple[IntArray, IntArray]:
        """Return the least ``scale * cost - duals`` in every part of the table, and the sets that have it."""
        low, high = self.halves(duals)
        parts = min(_PARTS, self.cost.size)
        best, choice = np.empty(parts, np.int64), np.empty(parts, np.int64)
        pair = (self.work, self.problem.items.tokens, self.problem.cell_cap, self.width)
        kernels.price(self.cost, self.exact, scale, low, high, pair, best, choice)
        return best, choice

    def halves(self, duals: IntArray) -> tuple[IntArray, IntArray]:
        """Tables of the duals' sums over the first items and over the others."""
        bits = min(_LOW_BITS, duals.size)
        low, high = np.empty(1 << bits, np.int64), np.empty(1 << (duals.size - bits), np.int64)
        kernels.half_sums(duals, bits, low, high)
        return low, high

    def column(self, mask: int) -> int:
        """Cost of one set, made exact if it was not."""
        members = np.zeros(64, np.int64)
        if not self.exact[mask]:
            tokens, cap = self.problem.items.tokens, self.problem.cell_cap
            kernels.refine(mask, self.cost, self.exact, self.work, tokens, cap, self.width, members)
        return int(self.cost[mask])
