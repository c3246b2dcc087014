"""Numba kernels that split one layer's experts into equal sets, exhaustively and within a budget of steps.

Guarantees: "impossible" is a proof, "found" comes with the split, and what is left open when the steps run
out is said to be open; integers only, so the same loads give the same answer on every host.
"""

from typing import Any

import numpy as np
from numba import njit

IMPOSSIBLE, FOUND, OPEN = 0, 1, 2


@njit(cache=True, nogil=True)
def narrow(loads: Any, order: Any, ranks: int, low: int, steps: int, slot: Any) -> Any:
    """Raise a lower bound on a layer's busiest rank, and find placements on the way.

    Parameters
    ----------
    loads : int64 [E]
        Loads of the experts.
    order : int64 [E]
        The experts by falling load.
    ranks : int
        Ranks P >= 2, which own H >= 2 experts each.
    low : int
        A bound already known.
    steps : int
        Work allowed; a step takes some ten nanoseconds.
    slot : int64 [E]
        Filled with the best placement found, if any.

    Returns
    -------
    low, high : int
        No placement is below `low`; `slot` has the peak `high`, or `high` is -1. Limits are tried at growing
        distances above `low` until one can be met, and then by bisection.
    """
    falling = loads[order]
    high, stride = -1, 0
    while steps > 0 and (high < 0 or low < high):
        limit = low + stride if high < 0 else (low + high) // 2
        answer, peak, used = split(falling, order, ranks, limit, steps, slot)
        steps -= used
        if answer == OPEN:
            break
        if answer == FOUND:
            high = peak
        else:
            low = limit + 1
            stride = 2 * stride + 1
    return low, high, max(steps, 0)


@njit(cache=True, nogil=True)
def split(falling: Any, order: Any, ranks: int, limit: int, steps: int, slot: Any) -> Any:
    """Search for a split of the loads `falling` [E] into P sets of equal size with no sum above `limit`.

    The hottest expert left opens the next rank and takes every set of companions in turn that keeps the rank
    at or below the limit, and so close to it that the other ranks can take the rest.

    Returns
    -------
    answer : int
        ``IMPOSSIBLE``, ``FOUND`` (then `slot` [E] is filled) or ``OPEN`` (out of steps).
    peak, used : int
        Largest sum of the split found; steps taken.
    """
    experts = falling.size
    per_rank = experts // ranks
    rest = np.empty((ranks, experts), np.int64)  # positions in `falling` still free at each depth
    load = np.empty((ranks, experts), np.int64)
    prefix = np.zeros((ranks, experts + 1), np.int64)
    chosen = np.zeros((ranks, per_rank), np.int64)  # the rank's set, as indices into `rest`; the first is 0
    slack = np.empty(ranks, np.int64)  # by how much the ranks from here on may stay below the limit, together
    slack[0] = ranks * limit - falling.sum()
    if slack[0] < 0:
        return IMPOSSIBLE, 0, 1
    rest[0] = np.arange(experts)
    depth, fresh, used = 0, True, 0
    while used <= steps:
        size = experts - depth * per_rank
        if fresh:
            for k in range(size):
                load[depth, k] = falling[rest[depth, k]]
                prefix[depth, k + 1] = prefix[depth, k] + load[depth, k]
            used += size // 4
        top = limit - load[depth, 0]
        found, taken = next_set(
            load[depth, :size], prefix[depth], chosen[depth], fresh, top - slack[depth], top, steps - used
        )
        used += taken
        if not found:
            depth -= 1
            fresh = False
            if depth < 0:
                return (IMPOSSIBLE if used <= steps else OPEN), 0, used
            continue
        total = np.int64(0)
        for k in chosen[depth]:
            total += load[depth, k]
        if depth == ranks - 2:
            _drop(rest, chosen, depth, size)
            return FOUND, _number(falling, order, rest, chosen, slot), used
        _drop(rest, chosen, depth, size)
        slack[depth + 1] = slack[depth] - (limit - total)
        depth += 1
        fresh = True
    return OPEN, 0, used


@njit(cache=True, nogil=True)
def next_set(load: Any, prefix: Any, chosen: Any, fresh: bool, low: int, high: int, steps: int) -> Any:
    """Advance `chosen` [H] to the next set whose sum, without the first member, is from `low` to `high`.

    `load` [n] falls and `prefix` [n + 1] holds its running sums. Sets come in lexicographic order; of sets
    with the same loads only the first comes. Returns whether there was one, and the steps taken.
    """
    size, last, used = load.size, chosen.size - 1, 0
    chosen[0] = 0
    partial = np.int64(0)
    if fresh:
        place = 1
        chosen[1] = 1
    else:
        place = last
        for k in range(1, last):
            partial += load[chosen[k]]
        chosen[last] = _lighter(load, chosen[last])
    while used <= steps:
        used += 1
        k = last - place  # members still to come after this one
        c = chosen[place]
        if c + k < size:
            cold = prefix[size] - prefix[size - k]
            if partial + load[c] + cold > high:
                c = _first_at_most(load, c + 1, size, high - partial - cold)
                chosen[place] = c
        if c + k >= size or partial + prefix[c + k + 1] - prefix[c] < low:
            place -= 1
            if place == 0:
                return False, used
            partial -= load[chosen[place]]
            chosen[place] = _lighter(load, chosen[place])
        elif k == 0:
            return True, used
        else:
            partial += load[c]
            place += 1
            chosen[place] = c + 1
    return False, used


@njit(cache=True, nogil=True)
def _lighter(load: Any, c: int) -> int:
    k = c + 1
    while k < load.size and load[k] == load[c]:
        k += 1
    return k


@njit(cache=True, nogil=True)
def _first_at_most(load: Any, low: int, high: int, value: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if load[middle] <= value:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, nogil=True)
def _drop(rest: Any, chosen: Any, depth: int, size: int) -> None:
    """Fill the next depth's `rest` with what the set chosen at this depth leaves."""
    k, kept = 0, 0
    for c in range(size):
        if k < chosen.shape[1] and chosen[depth, k] == c:
            k += 1
        else:
            rest[depth + 1, kept] = rest[depth, c]
            kept += 1


@njit(cache=True, nogil=True)
def _number(falling: Any, order: Any, rest: Any, chosen: Any, slot: Any) -> int:
    ranks, per_rank = chosen.shape
    chosen[ranks - 1] = np.arange(per_rank)
    peak = np.int64(0)
    for p in range(ranks):
        total = np.int64(0)
        for k in range(per_rank):
            position = rest[p, chosen[p, k]]
            slot[order[position]] = p * per_rank + k
            total += falling[position]
        peak = max(peak, total)
    return int(peak)
