"""A start for annealing from the pattern LP: its whole parts laid out, the rest to the least loaded bins.

Guarantees: every item has a bin below the count; the capacity may be overrun (patterns may come from coarse
tokens), which is what annealing then removes.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass

import numpy as np

from routepack_opt.solvers.rows.columns.generate import Columns
from routepack_opt.solvers.rows.instance import ClassBins, IntArray


@dataclass(frozen=True)
class Guide:
    """Whole parts of an LP solution.

    Attributes
    ----------
    patterns : list of int64[sizes]
        Each as often as the LP uses it, rounded down.
    index : int64[m]
        Size of every shared item; -1 for items too small to count.
    nominal : int64[sizes]
        Tokens that the patterns count for each size.
    bins : int
        Value of the LP, rounded up: about what can be packed.
    """

    patterns: list[IntArray]
    index: IntArray
    nominal: IntArray
    bins: int

    @classmethod
    def of(cls, columns: Columns, index: IntArray, unit: int = 1) -> Guide:
        """Round the last solution of column generation, on tokens in units, down."""
        whole = np.floor(columns.use + 1e-6).astype(np.int64)
        order = np.argsort(-whole, kind="stable")
        chosen = [columns.master.patterns[p] for p in order for _ in range(int(whole[p]))]
        return cls(chosen, index, columns.master.sizes.size * unit, math.ceil(columns.value - 1e-6))

    def start(self, bins: ClassBins, count: int) -> IntArray | None:
        """Give a bin below ``count`` to every item; None when the patterns alone are more bins."""
        if count < max(1, len(self.patterns)):
            return None
        where = np.full(bins.items.size, -1, dtype=np.int64)
        load = np.zeros(count, dtype=np.int64)
        queues = [deque(np.flatnonzero(self.index == j).tolist()) for j in range(self.nominal.size)]
        for place, pattern in enumerate(self.patterns):
            over = 0  # tokens beyond what the pattern counts: its next item makes up for them
            for j in np.flatnonzero(pattern):
                for _ in range(min(int(pattern[j]), len(queues[j]))):
                    item = queues[j].pop() if over > 0 else queues[j].popleft()
                    where[item] = place
                    over += int(bins.tokens[item]) - int(self.nominal[j])
                    load[place] += bins.tokens[item]
        heap = [(int(tokens), number) for number, tokens in enumerate(load)]
        heapq.heapify(heap)
        for item in np.flatnonzero(where < 0).tolist():  # decreasing tokens
            tokens, number = heapq.heappop(heap)
            where[item] = number
            heapq.heappush(heap, (tokens + int(bins.tokens[item]), number))
        return where
