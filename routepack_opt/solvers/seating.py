"""Seat the cells of every row on the slots of their shard so that the fewest assignments leave their node.

Guarantees: no cell changes its row or its shard, so the three components of the score stay what they are; the
crossings are the fewest that any such exchange reaches; cells move only when that saves something.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.crossings import staying
from routepack_opt.layout import Layout
from routepack_opt.problem import Problem


def seat_cells(problem: Problem, demand: npt.NDArray[np.integer], layout: Layout) -> Layout:
    """Return the layout with its cells exchanged inside every row and shard.

    Parameters
    ----------
    problem : Problem
        Topology with `ranks_per_node`, and rules.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    layout : Layout
        A layout that keeps the rules.

    Notes
    -----
    One linear assignment for every row and shard. Under `equal_samples_per_slot` the slots of a shard
    exchange their cells of all rows together, which keeps the number of samples of every slot: one assignment
    per shard.
    """
    seat = np.tile(np.arange(layout.dp), (layout.rows, 1))
    for slots, gains in zip(problem.topology.shards, staying(problem, demand, layout), strict=True):
        places = np.asarray(slots)
        if problem.rules.equal_samples_per_slot:
            seat[:, places] = places[_best_seats(gains.sum(axis=0))]
        else:
            for r, gain in enumerate(gains):
                seat[r, places] = places[_best_seats(gain)]
    row, slot = np.divmod(layout.cell_of_sample, layout.dp)
    return Layout(row * layout.dp + seat[row, slot], layout.rows, layout.dp)


def _best_seats(gain: IntArray) -> IntArray:
    """Return the place of everyone with the largest sum of gains; all stay unless moving gains."""
    from scipy.optimize import linear_sum_assignment

    stay = np.arange(gain.shape[0])
    _, seats = linear_sum_assignment(gain, maximize=True)
    better = int(gain[stay, seats].sum()) > int(np.trace(gain))
    return np.asarray(seats if better else stay, np.int64)
