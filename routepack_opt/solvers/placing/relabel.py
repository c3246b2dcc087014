"""Rename ranks and slots so that the fewest experts move away from a previous placement.

Guarantees: which experts share a rank changes only by exchanges of equal loads, so every rank load is kept up
to the naming of ranks; an expert that stays on its rank keeps its slot.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.placement import Placement


def relabel(loads: IntArray, slots: IntArray, previous: Placement) -> IntArray:
    """Return `slots` with ranks and slots renamed after `previous`.

    Parameters
    ----------
    loads : ndarray of int64, shape [layers, experts]
        Expert loads, which tell the experts that may be exchanged for nothing.
    slots : ndarray of int64, shape [layers, experts]
        Slot of each expert.
    previous : Placement
        Where the experts live now.

    Returns
    -------
    ndarray of int64, shape [layers, experts]
        Per layer, the naming of ranks that keeps the most experts in place (linear assignment).
    """
    from routepack_opt.solvers.placing._kernels import bring_home

    renamed = np.empty_like(slots)
    per_rank = max(previous.slots_per_rank, 1)
    for layer in range(slots.shape[0]):
        home = previous.rank_of_expert[layer]
        rank = _rename_ranks(slots[layer] // per_rank, home, previous.ranks)
        bring_home(loads[layer], rank, home)
        renamed[layer] = keep_slots(rank, previous.slot_of_expert[layer], per_rank)
    return renamed


def _rename_ranks(rank: IntArray, home: IntArray, ranks: int) -> IntArray:
    from scipy.optimize import linear_sum_assignment

    overlap = np.zeros((ranks, ranks), dtype=np.int64)
    np.add.at(overlap, (rank, home), 1)
    _, name = linear_sum_assignment(overlap, maximize=True)
    renamed: IntArray = name.astype(np.int64)[rank]
    return renamed


def keep_slots(rank: IntArray, previous_slot: IntArray, per_rank: int) -> IntArray:
    """Return slots for the ranks of a layer: the old slot where the rank is the old one, else a free one."""
    stays = rank == previous_slot // per_rank
    slot = np.where(stays, previous_slot, -1)
    free = np.setdiff1d(np.arange(rank.size), previous_slot[stays])
    arriving = np.flatnonzero(~stays)
    # Both sides sorted by rank: as many slots are free on a rank as experts arrive there.
    slot[arriving[np.argsort(rank[arriving], kind="stable")]] = free
    return slot
