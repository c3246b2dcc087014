"""Numba kernels over all sets of items that one row-shard can hold; a set is a bit mask, bit m for item m.

Guarantees: int64 throughout; ``IMPOSSIBLE`` marks a set that no row-shard of a valid layout holds; every
other entry is a lower bound on the cost of a row-shard with that set, until it is made exact.
"""

from typing import Any

import numpy as np
from numba import njit

IMPOSSIBLE = np.int64(2**62)


@njit(cache=True, nogil=True)
def cost_table(demand: Any, work: Any, tokens: Any, width: int, unit: int, limits: Any, out: Any) -> None:
    """Fill `out` [2^M] by Gray code: one item enters or leaves at every step.

    `demand` is int64 [M, L, P], `work` [stages, M] scaled attention work, `width` the cells of a row-shard,
    `unit` the scaled cost of one assignment, `limits` the least and most tokens and items of a row-shard.
    """
    items, layers, ranks = demand.shape
    stages = work.shape[0]
    load, total = np.zeros((layers, ranks), np.int64), np.zeros(stages, np.int64)
    mask, size, weight = 0, 0, np.int64(0)
    out[0] = IMPOSSIBLE
    for step in range(1, 1 << items):
        item = 0
        while (step >> item) & 1 == 0:
            item += 1
        mask ^= 1 << item
        sign = 1 if (mask >> item) & 1 else -1
        size += sign
        weight += sign * tokens[item]
        cost = np.int64(0)
        for s in range(stages):
            total[s] += sign * work[s, item]
            cost += -(-total[s] // width)
        peaks = np.int64(0)
        for layer in range(layers):
            peak = np.int64(0)
            for p in range(ranks):
                load[layer, p] += sign * demand[item, layer, p]
                peak = max(peak, load[layer, p])
            peaks += peak
        fits = limits[0] <= weight <= limits[1] and limits[2] <= size <= limits[3]
        out[mask] = cost + unit * peaks if fits else IMPOSSIBLE


@njit(cache=True, nogil=True)
def members_of(mask: int, out: Any) -> int:
    """Write the members of a set to `out`; return how many there are."""
    count = 0
    while mask:
        low = mask & -mask
        item = 0
        while (low >> item) & 1 == 0:
            item += 1
        out[count] = item
        count += 1
        mask ^= low
    return count


@njit(cache=True, nogil=True)
def exact_pair(mask: int, work: Any, tokens: Any, cap: int, members: Any) -> Any:
    """Return the attention cost of the best split of a set into two cells under the cap."""
    count = members_of(mask, members)
    stages = work.shape[0]
    whole, part = np.zeros(stages, np.int64), np.zeros(stages, np.int64)
    room, taken, inside = np.int64(0), np.int64(0), 0
    for k in range(count):
        room += tokens[members[k]]
        for s in range(stages):
            whole[s] += work[s, members[k]]
    best = IMPOSSIBLE
    state = 0
    for step in range(1, 1 << (count - 1)):  # the last member stays in the other cell
        k = 0
        while (step >> k) & 1 == 0:
            k += 1
        state ^= 1 << k
        sign = 1 if (state >> k) & 1 else -1
        inside += sign
        taken += sign * tokens[members[k]]
        cost = np.int64(0)
        for s in range(stages):
            part[s] += sign * work[s, members[k]]
            cost += max(part[s], whole[s] - part[s])
        if taken <= cap and room - taken <= cap and cost < best:
            best = cost
    return best


@njit(cache=True, nogil=True)
def half_sums(duals: Any, low_bits: int, low: Any, high: Any) -> None:
    """Fill tables of dual sums over the first `low_bits` items and over the others."""
    low[0] = 0
    for item in range(low_bits):
        half = 1 << item
        for mask in range(half):
            low[half + mask] = low[mask] + duals[item]
    high[0] = 0
    for item in range(duals.size - low_bits):
        half = 1 << item
        for mask in range(half):
            high[half + mask] = high[mask] + duals[low_bits + item]


@njit(cache=True, nogil=True)
def price(cost: Any, exact: Any, scale: int, low: Any, high: Any, pair: Any, best: Any, choice: Any) -> None:
    """Find the set of least ``scale * cost - duals`` in every part of the table.

    `best` and `choice` [parts] hold the least values and their sets. `pair` is (work [stages, M], tokens,
    cap, cells of a row-shard): with two cells an entry is made exact where its bound would win. `exact` [2^M]
    marks entries that are final.
    """
    work, tokens, cap, width = pair
    members = np.zeros(64, np.int64)
    span = cost.size // best.size
    bits = low.size - 1
    shift = 0
    while (1 << shift) < low.size:
        shift += 1
    for part in range(best.size):
        least, chosen = IMPOSSIBLE, -1
        for mask in range(part * span, (part + 1) * span):
            if cost[mask] == IMPOSSIBLE:
                continue
            value = scale * cost[mask] - low[mask & bits] - high[mask >> shift]
            if value >= least:
                continue
            if not exact[mask]:
                refine(mask, cost, exact, work, tokens, cap, width, members)
                if cost[mask] == IMPOSSIBLE:
                    continue
                value = scale * cost[mask] - low[mask & bits] - high[mask >> shift]
            if value < least:
                least, chosen = value, mask
        best[part], choice[part] = least, chosen


@njit(cache=True, nogil=True)
def refine(
    mask: int, cost: Any, exact: Any, work: Any, tokens: Any, cap: int, width: int, members: Any
) -> None:
    """Replace the bound on one set's cost by the cost, where two cells make that cheap enough."""
    exact[mask] = True
    if width != 2 or cost[mask] == IMPOSSIBLE:
        return
    relaxed = np.int64(0)
    count = members_of(mask, members)
    if count > 18:
        return
    for s in range(work.shape[0]):
        total = np.int64(0)
        for k in range(count):
            total += work[s, members[k]]
        relaxed += -(-total // width)
    attention = exact_pair(mask, work, tokens, cap, members)
    cost[mask] = IMPOSSIBLE if attention == IMPOSSIBLE else cost[mask] - relaxed + attention


@njit(cache=True, nogil=True)
def near(cost: Any, scale: int, low: Any, high: Any, limit: Any, out: Any) -> int:
    """Write the sets of reduced cost at most `limit` to `out`; return how many there are, or one too many."""
    bits = low.size - 1
    shift = 0
    while (1 << shift) < low.size:
        shift += 1
    count = 0
    for mask in range(cost.size):
        if cost[mask] < IMPOSSIBLE and scale * cost[mask] - low[mask & bits] - high[mask >> shift] <= limit:
            if count == out.size:
                return count + 1
            out[count] = mask
            count += 1
    return count


@njit(cache=True, nogil=True)
def pairs(
    rests: Any, left: Any, cost: Any, exact: Any, scale: int, tables: Any, least: int, pair: Any, out: Any
) -> tuple[int, int]:
    """Split every rest into two sets whose slacks add up to at most what is left.

    The slack of a set is ``scale * cost - duals - least``; `tables` is (low, high), the halves of the dual
    sums. Writes (index of the rest, first set) to `out` [n, 2]; returns how many there are and how many rests
    they are of, fewer than all when `out` is full.
    """
    work, tokens, cap, width = pair
    low, high = tables
    members = np.zeros(64, np.int64)
    bits = low.size - 1
    shift = 0
    while (1 << shift) < low.size:
        shift += 1
    count = 0
    for index in range(rests.size):
        begun = count
        rest = rests[index]
        lowest = rest & -rest
        others = rest ^ lowest
        worth = low[rest & bits] + high[rest >> shift]
        limit = left[index] + worth + 2 * least
        part = others
        while part:
            first = rest ^ part
            possible = cost[first] < IMPOSSIBLE and cost[part] < IMPOSSIBLE
            if possible and scale * (cost[first] + cost[part]) <= limit:
                for mask in (first, part):
                    if not exact[mask]:
                        refine(mask, cost, exact, work, tokens, cap, width, members)
                possible = cost[first] < IMPOSSIBLE and cost[part] < IMPOSSIBLE
                if possible and scale * (cost[first] + cost[part]) <= limit:
                    if count == out.shape[0]:
                        return begun, index
                    out[count, 0], out[count, 1] = index, first
                    count += 1
            part = (part - 1) & others
    return count, rests.size
