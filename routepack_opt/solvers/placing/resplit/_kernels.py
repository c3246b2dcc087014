"""Numba kernel of the large-neighbourhood search over the placements of one layer.

Guarantees: a layer's peak never rises; integers and the random stream alone decide, so the same loads give
the same placement on every host.
"""

from typing import Any

import numpy as np
from numba import njit

from routepack_opt.bounds.placement._kernels import narrow
from routepack_opt.solvers.annealing._kernels.random import below


@njit(cache=True, nogil=True)
def resplit(
    loads: Any, order: Any, slot: Any, ranks: int, low: int, width: int, effort: int, steps: int, rng: Any
) -> int:
    """Re-split the busiest rank together with others, until its load is `low` or the steps are spent.

    Parameters
    ----------
    loads, order : int64 [E]
        Loads of the experts, and the experts by falling load.
    slot : int64 [E]
        Slot of each expert, changed in place.
    ranks : int
        Ranks P.
    low : int
        Where to stop.
    width : int
        Ranks re-split at a time, the busiest among them.
    effort, steps : int
        Steps of one re-split, and of all; see :func:`narrow`.
    rng : uint64 [4]
        Random stream.

    Returns
    -------
    int
        Load of the busiest rank.
    """
    per_rank = slot.size // ranks
    total = np.zeros(ranks, np.int64)
    for e in range(slot.size):
        total[slot[e] // per_rank] += loads[e]
    picked = np.arange(ranks)
    part = np.empty(width * per_rank, np.int64)
    found = np.empty(width * per_rank, np.int64)
    where = np.empty(ranks, np.int64)
    while steps > 0:
        top = np.argmax(total)
        if total[top] <= low or width < 2:
            break
        _pick(picked, int(top), width, rng)
        where[:] = -1
        summed = np.int64(0)
        for k in range(width):
            where[picked[k]] = k
            summed += total[picked[k]]
        count = 0
        for e in order:
            if where[slot[e] // per_rank] >= 0:
                part[count] = e
                count += 1
        floor = max(low, int(-(-summed // width)))
        steps -= effort // 8 + part.size
        if floor >= total[top]:
            continue
        part_loads = loads[part]
        _, high, left = narrow(part_loads, np.arange(part.size), width, floor, effort, found)
        steps -= effort - left
        if high < 0 or high >= total[top]:
            continue
        for k in range(width):
            total[picked[k]] = 0
        for k in range(part.size):
            p = picked[found[k] // per_rank]
            slot[part[k]] = p * per_rank + found[k] % per_rank
            total[p] += part_loads[k]
    return total.max()


@njit(cache=True, nogil=True)
def _pick(picked: Any, top: int, width: int, rng: Any) -> None:
    """Put the rank `top` and `width` - 1 others, drawn at random, in front."""
    for k in range(picked.size):
        if picked[k] == top:
            picked[0], picked[k] = picked[k], picked[0]
    for k in range(1, width):
        j = k + below(rng, picked.size - k)
        picked[k], picked[j] = picked[j], picked[k]
