"""Numba kernel of the row-aware refinement of one layer.

Guarantees: (work of the busiest shard, work of all shards) falls with every swap, in int64; ties go to the
lowest expert; nothing depends on time or threads.
"""

from typing import Any

import numpy as np
from numba import njit

from routepack_opt.solvers.placing._kernels import three_largest


@njit(cache=True, nogil=True)
def descend_rows(loads: Any, shard: Any, work: Any, unit: int, slot: Any, ranks: int, max_sweeps: int) -> int:
    """Swap experts of a layer while that lowers (busiest shard, all shards).

    Parameters
    ----------
    loads : int64 [E, B]
        Load of each expert in each row of each shard.
    shard : int64 [B]
        Shard of each such row.
    work : int64 [G]
        Work of each shard, this layer's peaks included; updated in place.
    unit : int
        Work of one routed assignment.
    slot : int64 [E]
        Slot of each expert, changed in place.
    ranks, max_sweeps : int
        Ranks P; passes over the experts at most.

    Returns
    -------
    int
        Swaps done. Each pass takes the experts in order and gives each its best partner, if that improves.
    """
    rank = slot // (slot.size // ranks)
    total = np.zeros((loads.shape[1], ranks), np.int64)
    top = np.empty((loads.shape[1], 3), np.int64)
    for r in range(top.shape[0]):
        for e in range(slot.size):
            total[r, rank[e]] += loads[e, r]
        _fill_top(top[r], total[r])
    change, best = np.empty_like(work), np.empty_like(work)
    swaps = 0
    for _ in range(max_sweeps):
        before = swaps
        for a in range(slot.size):
            b = _best_partner(a, loads, rank, total, top, shard, work, unit, change, best)
            if b >= 0:
                for g in range(work.size):
                    work[g] += unit * best[g]
                for r in range(top.shape[0]):
                    d = loads[a, r] - loads[b, r]
                    total[r, rank[a]] -= d
                    total[r, rank[b]] += d
                    _fill_top(top[r], total[r])
                slot[a], slot[b] = slot[b], slot[a]
                rank[a], rank[b] = rank[b], rank[a]
                swaps += 1
        if swaps == before:
            break
    return swaps


@njit(cache=True, nogil=True)
def _fill_top(top: Any, total: Any) -> None:
    top[0], top[1], top[2] = three_largest(total)


@njit(cache=True, nogil=True)
def _best_partner(
    a: int,
    loads: Any,
    rank: Any,
    total: Any,
    top: Any,
    shard: Any,
    work: Any,
    unit: int,
    change: Any,
    best: Any,
) -> int:
    """Return the expert whose exchange with `a` helps most, or -1, and fill `best` [G] with its change."""
    partner, least_peak, least_sum = -1, work.max(), np.int64(0)
    for b in range(rank.size):
        if rank[b] == rank[a]:
            continue
        _fill_change(loads[a], loads[b], total, top, rank[a], rank[b], shard, change)
        peak, summed = work[0] + unit * change[0], change[0]
        for g in range(1, work.size):
            peak = max(peak, work[g] + unit * change[g])
            summed += change[g]
        if peak < least_peak or (peak == least_peak and summed < least_sum):
            partner, least_peak, least_sum = b, peak, summed
            for g in range(work.size):
                best[g] = change[g]
    return partner


@njit(cache=True, nogil=True)
def _fill_change(a: Any, b: Any, total: Any, top: Any, p: int, q: int, shard: Any, change: Any) -> None:
    """Fill `change` [G] with what exchanging `a` of rank p and `b` of rank q adds to the rows' peaks."""
    change[:] = 0
    for r in range(shard.size):
        # The busiest rank that the exchange leaves alone is among the three largest.
        k = 0
        while k < 3 and (top[r, k] == p or top[r, k] == q):
            k += 1
        d = a[r] - b[r]
        peak = max(total[r, p] - d, total[r, q] + d)
        if k < 3 and top[r, k] >= 0:
            peak = max(peak, total[r, top[r, k]])
        change[shard[r]] += peak - total[r, top[r, 0]]
