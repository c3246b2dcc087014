"""Numba kernel that anneals the placement of one layer against the rows of a packing.

Guarantees: the best placement kept is never worse than the start in (work of the busiest shard, work of all
shards), compared in int64; the same stream gives the same result on every host.
"""

from typing import Any

import numpy as np
from numba import njit

from routepack_opt.solvers.annealing._kernels.random import below, exponential


@njit(cache=True, nogil=True)
def anneal_rows(
    loads: Any,
    order: Any,
    shard: Any,
    work: Any,
    unit: int,
    slot: Any,
    best_work: Any,
    best_slot: Any,
    ranks: int,
    temperature: float,
    moves: int,
    rng: Any,
) -> None:
    """Exchange random experts of a layer at one temperature.

    Parameters
    ----------
    loads : int64 [E, B]
        Load of each expert in each row of each shard.
    order : int64 [E]
        Experts by falling load; half of the exchanges are between close ones.
    shard : int64 [B]
        Shard of each such row.
    work, best_work : int64 [G]
        Work of each shard, this layer's peaks included, now and at best; updated in place.
    unit : int
        Work of one routed assignment.
    slot, best_slot : int64 [E]
        Slots now and at best; updated in place.
    ranks : int
        Ranks P.
    temperature : float
        In assignments. The energy is the mean of the busiest shard's work and the average shard's.
    moves : int
        Exchanges tried.
    rng : uint64 [4]
        Random stream.
    """
    experts = slot.size
    per_rank = experts // ranks
    total = _rank_loads(loads, slot, ranks)
    change = np.zeros(work.size, np.int64)
    scale = 2.0 * work.size * unit
    for _ in range(moves):
        i, near = below(rng, experts), below(rng, 16)
        j = below(rng, experts)
        if near < 8:
            j = (i + 1 + near) % experts
        a, b = order[i], order[j]
        p, q = slot[a] // per_rank, slot[b] // per_rank
        if p == q:
            continue
        _fill_change(loads[a], loads[b], total, p, q, shard, change)
        rise = _energy_rise(work, change, unit)
        if rise > 0.0 and rise > exponential(rng) * temperature * scale:
            continue
        for r in range(shard.size):
            d = loads[a, r] - loads[b, r]
            total[r, p] -= d
            total[r, q] += d
            total[r, ranks] = total[r, :ranks].max()
        for g in range(work.size):
            work[g] += unit * change[g]
        slot[a], slot[b] = slot[b], slot[a]
        if _better(work, best_work):
            best_work[:] = work
            best_slot[:] = slot


@njit(cache=True, nogil=True)
def _rank_loads(loads: Any, slot: Any, ranks: int) -> Any:
    # The last column holds the busiest rank's load.
    total = np.zeros((loads.shape[1], ranks + 1), np.int64)
    for r in range(loads.shape[1]):
        for e in range(slot.size):
            total[r, slot[e] // (slot.size // ranks)] += loads[e, r]
        total[r, ranks] = total[r, :ranks].max()
    return total


@njit(cache=True, nogil=True)
def _fill_change(a: Any, b: Any, total: Any, p: int, q: int, shard: Any, change: Any) -> None:
    """Fill `change` [G] with what exchanging `a` of rank p and `b` of rank q adds to the rows' peaks."""
    change[:] = 0
    ranks = total.shape[1] - 1
    for r in range(shard.size):
        d = a[r] - b[r]
        old, now_p, now_q = total[r, ranks], total[r, p], total[r, q]
        peak = max(now_p - d, now_q + d)
        if peak < old:
            if now_p < old and now_q < old:
                peak = old  # the busiest rank is another one
            else:
                for k in range(ranks):
                    if k != p and k != q:
                        peak = max(peak, total[r, k])
        change[shard[r]] += peak - old


@njit(cache=True, nogil=True)
def _energy_rise(work: Any, change: Any, unit: int) -> float:
    # As floats, because the product with the shards can exceed 64 bits; products round alike everywhere.
    before, after, summed = work[0], work[0] + unit * change[0], change[0]
    for g in range(1, work.size):
        before = max(before, work[g])
        after = max(after, work[g] + unit * change[g])
        summed += change[g]
    return float(work.size) * float(after - before) + float(unit) * float(summed)


@njit(cache=True, nogil=True)
def _better(work: Any, best: Any) -> bool:
    top, best_top = work.max(), best.max()
    return top < best_top or (top == best_top and work.sum() < best.sum())
