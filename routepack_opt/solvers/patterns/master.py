"""The set-partitioning program over the row patterns known so far; its duals say what an item is worth.

Guarantees: nothing here is trusted, since a bound is recomputed in integers from whatever duals it suggests.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.layout import Layout
from routepack_opt.solvers.highs import quiet_highs
from routepack_opt.solvers.patterns import _kernels as kernels
from routepack_opt.solvers.patterns.table import PatternTable

Floats = npt.NDArray[np.float64]


class Master:
    """Cover every item once with R G patterns at least cost; slack at a high price keeps it feasible.

    Parameters
    ----------
    table : PatternTable
        Costs.
    start : Layout or None
        Its row-shards are the first patterns.
    """

    def __init__(self, table: PatternTable, start: Layout | None) -> None:
        self.table = table
        self.items = table.problem.items.size
        finite = table.cost[table.cost < kernels.IMPOSSIBLE]
        self.unit = max(float(finite.mean()), 1.0) / 1000.0  # costs of some hundreds suit the solver
        self.known: set[int] = set()
        self._solver = quiet_highs()
        rows = [*([1.0] * self.items), float(table.blocks)]
        for side in rows:
            self._solver.addRow(side, side, 0, np.empty(0, np.int32), np.empty(0))
        price = 10.0 * float(finite.max()) / self.unit
        for row in range(self.items + 1):
            self._column(price, np.array([row], np.int32))
        if start is not None:
            self.add(np.array(_patterns(table, start), np.int64), None)

    def _column(self, cost: float, rows: npt.NDArray[np.int32]) -> None:
        self._solver.addCol(cost, 0.0, self._solver.getInfinity(), rows.size, rows, np.ones(rows.size))

    def add(self, sets: IntArray, worth: Floats | None) -> int:
        """Add the new ones of these sets that pay under `worth` (all of them without); return how many."""
        count = 0
        for mask in sets.tolist():
            if mask < 0 or mask in self.known:
                continue
            members = np.array([m for m in range(self.items) if mask >> m & 1], np.int32)
            cost = self.table.column(mask)
            if cost == kernels.IMPOSSIBLE:
                continue
            if worth is not None and cost - worth[members].sum() >= self._floor - 1e-9 * abs(cost):
                continue
            self.known.add(mask)
            self._column(cost / self.unit, np.append(members, np.int32(self.items)))
            count += 1
        return count

    def solve(self) -> tuple[Floats, float]:
        """Return the worth of every item and the program's value, both scaled as the costs."""
        self._solver.run()
        dual: Any = self._solver.getSolution().row_dual
        worth = np.asarray(dual, np.float64) * self.unit
        self._floor = float(worth[-1])
        return worth[:-1], float(self._solver.getInfo().objective_function_value) * self.unit


def _patterns(table: PatternTable, layout: Layout) -> list[int]:
    """Return the sets of the row-shards of a layout."""
    masks: dict[tuple[int, int], int] = {}
    topology = table.problem.topology
    shard_of = {d: g for g, part in enumerate(topology.shards) for d in part}
    for item, cell in enumerate(layout.cell_of_item(table.problem).tolist()):
        block = cell // topology.dp, shard_of[cell % topology.dp]
        masks[block] = masks.get(block, 0) | 1 << item
    return sorted(masks.values())
