"""Crossings: routed assignments that leave their node, counted exactly.

Guarantees: whole P-ths of an assignment in int64, without rounding; what the step simulator sends between
nodes is this count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.problem import Problem

_EXACT = 2**53  # linear assignment calculates with doubles, which hold whole numbers up to here


@dataclass(frozen=True)
class Crossings:
    """Crossings of a plan, in P-ths of a routed assignment.

    Parameters
    ----------
    before, after : int
        As the search left the cells, and as they are seated in the plan.
    total : int
        All assignments, whether or not they leave their node.
    ranks : int
        P, which turns the counts into assignments.
    ranks_per_node : int
        What was taken for a node.
    """

    before: int
    after: int
    total: int
    ranks: int
    ranks_per_node: int

    @property
    def share(self) -> float:
        """Part of all assignments that crosses nodes in the plan, for reading; 0 without assignments."""
        return self.after / self.total if self.total else 0.0

    @property
    def share_before(self) -> float:
        """The same as the search left the cells."""
        return self.before / self.total if self.total else 0.0

    @property
    def saved(self) -> float:
        """Part of the crossings that seating removed; 0 when there were none."""
        return 1 - self.after / self.before if self.before else 0.0


def held(slots: int, ranks: int) -> IntArray:
    """Return how many P-ths of a slot's tokens each rank holds, int64 (slots, ranks); rows sum to `ranks`.

    Notes
    -----
    The slots of a shard stand on its P ranks side by side in equal shares, and a slot's tokens are spread
    evenly over its ranks. Cut into slots * ranks pieces, slot j is the pieces from j * ranks, rank p those
    from p * slots.
    """
    low = np.maximum(np.arange(slots)[:, None] * ranks, np.arange(ranks) * slots)
    high = np.minimum(np.arange(1, slots + 1)[:, None] * ranks, np.arange(1, ranks + 1) * slots)
    return np.asarray(np.maximum(high - low, 0), np.int64)


def staying(problem: Problem, demand: npt.NDArray[np.integer], layout: Layout) -> list[IntArray]:
    """Count what every cell would keep inside its node at every slot of its shard.

    Parameters
    ----------
    problem : Problem
        Its topology says `ranks_per_node`; without it nothing leaves the one node there is.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    layout : Layout
        A complete layout.

    Returns
    -------
    list of numpy.ndarray of int64, shape (R, n, n)
        For a shard of n slots: P-ths of the assignments of the cell at (row, k-th slot) whose token and
        expert would be on one node if the cell ran at the j-th slot.

    Raises
    ------
    InputError
        When P times the assignments is 2^53 or more: they could not be compared exactly.
    """
    ranks = demand.shape[2]
    total = total_assignments(demand)
    if total >= _EXACT:
        found = f"{total} ({ranks} ranks)"
        raise InputError("ranks times assignments below 2^53", found, "topology.ranks_per_node")
    starts = np.arange(0, ranks, problem.topology.ranks_per_node or ranks)
    routed = np.zeros((layout.rows * layout.dp, starts.size), np.int64)  # by cell and node of the experts
    of_item = np.add.reduceat(demand.sum(axis=1, dtype=np.int64), starts, axis=1)
    np.add.at(routed, layout.cell_of_item(problem), of_item)
    by_node = routed.reshape(layout.rows, layout.dp, starts.size)
    gains = []
    for slots in problem.topology.shards:
        at_node = np.add.reduceat(held(len(slots), ranks), starts, axis=1)
        gains.append(np.asarray(by_node[:, list(slots)] @ at_node.T, np.int64))
    return gains


def count_crossings(problem: Problem, demand: npt.NDArray[np.integer], layout: Layout) -> int:
    """Count the P-ths of assignments whose token and expert are on different nodes; see :func:`staying`."""
    kept = sum(int(np.trace(gains.sum(axis=0))) for gains in staying(problem, demand, layout))
    return total_assignments(demand) - kept


def total_assignments(demand: npt.NDArray[np.integer]) -> int:
    """Return P times the assignments of a window: all of them, in P-ths."""
    return int(demand.shape[2]) * int(demand.sum(dtype=np.int64))
