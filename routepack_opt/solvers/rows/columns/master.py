"""The restricted master problem: fewest patterns that cover the demand of every size.

Guarantees: floating point stays inside; what leaves are whole numbers (duals rounded down) whose bound is
recomputed exactly by the pricing knapsack, and LP values that only guide the search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from routepack_opt.solvers.highs import quiet_highs

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Sizes:
    """A cutting stock view of items: distinct sizes, decreasing, with their demand."""

    size: IntArray
    demand: IntArray
    cap: int

    @classmethod
    def of(cls, tokens: IntArray, cap: int) -> tuple[Sizes, IntArray]:
        """Group tokens into sizes; also the size index of every item."""
        values, inverse, counts = np.unique(-tokens, return_inverse=True, return_counts=True)
        return cls(-values, counts.astype(np.int64), cap), inverse.astype(np.int64)

    def less(self, used: IntArray) -> Sizes:
        """Give the sizes with part of the demand met; sizes keep their index."""
        return Sizes(self.size, self.demand - used, self.cap)


class Master:
    """An LP over a growing list of patterns, warm-started.

    Parameters
    ----------
    sizes : Sizes
    patterns : list of int64[m]
        Copies of every size; sizes without demand are ignored.
    """

    def __init__(self, sizes: Sizes, patterns: list[IntArray]) -> None:
        import highspy

        self.sizes = sizes
        self.patterns: list[IntArray] = []
        self._known: set[bytes] = set()
        self._solver = quiet_highs()
        self._optimal = highspy.HighsModelStatus.kOptimal
        self._solver.setOptionValue("threads", 1)
        for demand in sizes.demand.tolist():
            self._solver.addRow(float(demand), float("inf"), 0, np.empty(0, np.int32), np.empty(0))
        for j in np.flatnonzero(sizes.demand):
            single = np.zeros(sizes.size.size, dtype=np.int64)
            single[j] = min(int(sizes.demand[j]), sizes.cap // int(sizes.size[j]))
            self.add(single)
        for pattern in patterns:
            self.add(np.minimum(pattern, sizes.demand))

    def add(self, pattern: IntArray) -> bool:
        """Add a pattern; False when it is already there or empty."""
        key = pattern.tobytes()
        rows = np.flatnonzero(pattern).astype(np.int32)
        if key in self._known or not rows.size:
            return False
        self._known.add(key)
        self.patterns.append(pattern)
        self._solver.addCol(1.0, 0.0, float("inf"), rows.size, rows, pattern[rows].astype(np.float64))
        return True

    def solve(self, seconds: float, interior: bool = False) -> tuple[float, FloatArray, FloatArray] | None:
        """Solve the LP: its value, the use of every pattern, the dual of every size; None when out of time.

        With ``interior``, by interior point without crossover, which gives a dual in the middle of the
        optimal face.
        """
        self._solver.setOptionValue("time_limit", self._solver.getRunTime() + max(seconds, 0.01))
        self._solver.setOptionValue("solver", "ipm" if interior else "simplex")
        self._solver.setOptionValue("run_crossover", "off" if interior else "on")
        self._solver.run()
        if self._solver.getModelStatus() != self._optimal:
            return None
        solution = self._solver.getSolution()
        use = np.array(solution.col_value)
        return float(use.sum()), use, np.maximum(np.array(solution.row_dual), 0.0)
