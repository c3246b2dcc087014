"""Numba kernels that place the experts of one layer or of all layers.

Guarantees: int64 loads throughout; ties go to the lowest rank, then to the earlier expert in the order
(-load, expert); every result is a permutation, and a descent never raises (max, sum of squares) of a layer.
"""

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def lpt_slots(loads: Any, order: Any, ranks: int) -> Any:
    """Return the slot of each expert under Algorithm 1 for `loads` [E], experts taken in `order` [E]."""
    experts = loads.size
    per_rank = experts // ranks
    slot = np.empty(experts, np.int64)
    total = np.zeros(ranks, np.int64)
    used = np.zeros(ranks, np.int64)
    for e in order:
        best = -1
        for p in range(ranks):
            if used[p] < per_rank and (best < 0 or total[p] < total[best]):
                best = p
        slot[e] = best * per_rank + used[best]
        used[best] += 1
        total[best] += loads[e]
    return slot


@njit(cache=True, nogil=True)
def differencing_slots(loads: Any, order: Any, ranks: int) -> Any:
    """Return slots by balanced largest differencing: merge the two groups of P sets that differ most.

    Each group of P consecutive experts of `order` starts as P one-expert sets, kept sorted by falling sum. A
    merge joins the largest set of one group with the smallest of the other, so every set keeps as many
    experts as there were groups merged, and the last group holds H in each.
    """
    experts = loads.size
    groups = experts // ranks
    total = np.empty((groups, ranks), np.int64)
    head = np.empty((groups, ranks), np.int64)
    tail = np.empty((groups, ranks), np.int64)
    following = np.full(experts, -1, np.int64)
    for k in range(experts):
        group, p = k // ranks, k % ranks
        total[group, p] = loads[order[k]]
        head[group, p] = order[k]
        tail[group, p] = order[k]
    live = np.ones(groups, np.bool_)
    for _ in range(groups - 1):
        a, b = _two_widest(total, live)
        for p in range(ranks):
            q = ranks - 1 - p
            total[a, p] += total[b, q]
            following[tail[a, p]] = head[b, q]
            tail[a, p] = tail[b, q]
        live[b] = False
        _sort_falling(total[a], head[a], tail[a])
    return _number_sets(head, following, live, groups)


@njit(cache=True, nogil=True)
def _sort_falling(total: Any, head: Any, tail: Any) -> None:
    # Insertion: stable, P is small, and it compiles in a fraction of the time of a library sort.
    for k in range(1, total.size):
        value, first, last = total[k], head[k], tail[k]
        j = k
        while j > 0 and total[j - 1] < value:
            total[j], head[j], tail[j] = total[j - 1], head[j - 1], tail[j - 1]
            j -= 1
        total[j], head[j], tail[j] = value, first, last


@njit(cache=True, nogil=True)
def _two_widest(total: Any, live: Any) -> Any:
    first, second = -1, -1
    for group in range(live.size):
        if not live[group]:
            continue
        spread = total[group, 0] - total[group, -1]
        if first < 0 or spread > total[first, 0] - total[first, -1]:
            first, second = group, first
        elif second < 0 or spread > total[second, 0] - total[second, -1]:
            second = group
    return first, second


@njit(cache=True, nogil=True)
def _number_sets(head: Any, following: Any, live: Any, per_rank: int) -> Any:
    slot = np.empty(following.size, np.int64)
    group = np.argmax(live)
    for p in range(head.shape[1]):
        e = head[group, p]
        for k in range(per_rank):
            slot[e] = p * per_rank + k
            e = following[e]
    return slot


@njit(cache=True, nogil=True)
def descend(loads: Any, order: Any, slot: Any, ranks: int, swaps: Any, peaks: Any) -> int:
    """Swap experts of two ranks, the best swap first, while (max, sum of squares) of the layer falls.

    Parameters
    ----------
    loads : int64 [E]
        Expert loads of the layer.
    order : int64 [E]
        Experts by (-load, expert).
    slot : int64 [E]
        Slot of each expert, changed in place.
    ranks : int
        Ranks P.
    swaps, peaks : int64 [steps, 2], int64 [steps]
        Filled with the experts of each swap and the busiest rank after it. They also limit the steps.

    Returns
    -------
    int
        Swaps done. A swap that lowers the maximum beats all others, the one with the lowest maximum first;
        otherwise the largest fall of the sum of squares wins.
    """
    members, weight, total = _members(loads, order, slot, ranks)
    best = np.empty((ranks, ranks, 2), np.int64)
    fall = np.zeros((ranks, ranks))
    widest = np.zeros(ranks, np.int64)
    for p in range(ranks):
        _pairs(weight, members, total, p, p + 1, best, fall)
    for p in range(ranks):
        widest[p] = np.argmax(fall[p])
    for step in range(peaks.size):
        p, q = _choose(total, best, fall, widest, loads)
        if p < 0:
            return step
        _exchange(loads, members, weight, total, slot, p, q, best[p, q])
        swaps[step] = best[p, q]
        peaks[step] = total.max()
        _pairs(weight, members, total, p, 0, best, fall)
        _pairs(weight, members, total, q, 0, best, fall)
        for other in range(ranks):
            widest[other] = _rescan(fall[other], widest[other], p, q)
        widest[p], widest[q] = np.argmax(fall[p]), np.argmax(fall[q])
    return int(peaks.size)


@njit(cache=True, nogil=True)
def _rescan(row: Any, widest: int, p: int, q: int) -> int:
    # Only the entries p and q of a row changed: search it again only if the best one was among them.
    if widest in (p, q):
        return int(np.argmax(row))
    for changed in (p, q):
        if row[changed] > row[widest] or (row[changed] == row[widest] and changed < widest):
            widest = changed
    return widest


@njit(cache=True, nogil=True)
def _members(loads: Any, order: Any, slot: Any, ranks: int) -> Any:
    # Experts of each rank by falling load: the closest partner in another rank is then found in one pass.
    per_rank = slot.size // ranks
    members = np.empty((ranks, per_rank), np.int64)
    weight = np.empty((ranks, per_rank), np.int64)  # their loads
    used = np.zeros(ranks, np.int64)
    total = np.zeros(ranks, np.int64)
    for e in order:
        p = slot[e] // per_rank
        members[p, used[p]] = e
        weight[p, used[p]] = loads[e]
        used[p] += 1
        total[p] += loads[e]
    return members, weight, total


@njit(cache=True, nogil=True)
def _pairs(weight: Any, members: Any, total: Any, one: int, start: int, best: Any, fall: Any) -> None:
    """Find, between a rank and all from `start` on, the swap whose difference is closest to half their gap.

    That swap has both the lowest maximum of the two ranks and the largest fall of the sum of squares, which
    is 2 d (gap - d) for the difference d of the two loads. The fall is held as a float, because the product
    can exceed 64 bits; which swap is best, and that it improves at all, 0 < d < gap, is decided in integers.
    """
    ranks, per_rank = members.shape
    for other in range(start, ranks):
        fall[one, other] = fall[other, one] = 0.0
        p, q = (one, other) if total[one] > total[other] else (other, one)  # from p to q
        gap = total[p] - total[q]
        j, off, mine, theirs = 0, gap, 0, 0
        for i in range(per_rank if gap > 1 else 0):
            twice = 2 * weight[p, i] - gap
            # The first partner light enough for at least half the gap, and the one before it.
            while j < per_rank and twice < 2 * weight[q, j]:
                j += 1
            if j > 0 and 2 * weight[q, j - 1] - twice < off:
                off, mine, theirs = 2 * weight[q, j - 1] - twice, i, j - 1
            if j < per_rank and twice - 2 * weight[q, j] < off:
                off, mine, theirs = twice - 2 * weight[q, j], i, j
        if off < gap:
            fall[p, q] = float((gap - off) // 2) * float((gap + off) // 2)
            best[p, q, 0] = members[p, mine]
            best[p, q, 1] = members[q, theirs]


@njit(cache=True, nogil=True)
def _choose(total: Any, best: Any, fall: Any, widest: Any, loads: Any) -> Any:
    top, second, third = three_largest(total)
    chosen, lowest = -1, total[top]
    for q in range(total.size):
        if fall[top, q] == 0.0:
            continue
        d = loads[best[top, q, 0]] - loads[best[top, q, 1]]
        peak = max(total[top] - d, total[q] + d)
        rest = third if q == second else second
        if rest >= 0:
            peak = max(peak, total[rest])
        if peak < lowest or (chosen >= 0 and peak == lowest and fall[top, q] > fall[top, chosen]):
            chosen, lowest = q, peak
    if chosen >= 0:
        return top, chosen
    p = 0
    for other in range(1, total.size):
        if fall[other, widest[other]] > fall[p, widest[p]]:
            p = other
    if fall[p, widest[p]] == 0.0:
        return -1, -1
    return p, widest[p]


@njit(cache=True, nogil=True)
def three_largest(total: Any) -> Any:
    """Return the ranks of the three largest entries, lower ranks first among equals; -1 for none."""
    first, second, third = -1, -1, -1
    for p in range(total.size):
        if first < 0 or total[p] > total[first]:
            first, second, third = p, first, second
        elif second < 0 or total[p] > total[second]:
            second, third = p, second
        elif third < 0 or total[p] > total[third]:
            third = p
    return first, second, third


@njit(cache=True, nogil=True)
def _exchange(
    loads: Any, members: Any, weight: Any, total: Any, slot: Any, p: int, q: int, pair: Any
) -> None:
    a, b = pair[0], pair[1]
    slot[a], slot[b] = slot[b], slot[a]
    total[p] += loads[b] - loads[a]
    total[q] += loads[a] - loads[b]
    _replace(loads, members[p], weight[p], a, b)
    _replace(loads, members[q], weight[q], b, a)


@njit(cache=True, nogil=True)
def _replace(loads: Any, row: Any, weight: Any, old: int, new: int) -> None:
    k = 0
    while row[k] != old:
        k += 1
    while k + 1 < row.size and (loads[row[k + 1]], -row[k + 1]) > (loads[new], -new):
        row[k] = row[k + 1]
        k += 1
    while k > 0 and (loads[row[k - 1]], -row[k - 1]) < (loads[new], -new):
        row[k] = row[k - 1]
        k -= 1
    row[k] = new
    for k in range(row.size):
        weight[k] = loads[row[k]]


@njit(cache=True, nogil=True)
def lpt_layers(loads: Any, order: Any, ranks: int) -> Any:
    """Return int64 [L, E] slots of every layer under Algorithm 1."""
    slots = np.empty(loads.shape, np.int64)
    for layer in range(loads.shape[0]):
        slots[layer] = lpt_slots(loads[layer], order[layer], ranks)
    return slots


@njit(cache=True, nogil=True)
def refined_layers(loads: Any, order: Any, bound: Any, ranks: int, max_steps: int) -> Any:
    """Return int64 [L, E] slots: descents from LPT and, unless that met the bound, from differencing."""
    slots = np.empty(loads.shape, np.int64)
    swaps = np.empty((max_steps, 2), np.int64)
    peaks = np.empty(max_steps, np.int64)
    for layer in range(loads.shape[0]):
        slot = lpt_slots(loads[layer], order[layer], ranks)
        descend(loads[layer], order[layer], slot, ranks, swaps, peaks)
        peak, squares = measure(loads[layer], slot, ranks)
        if peak > bound[layer]:
            other = differencing_slots(loads[layer], order[layer], ranks)
            descend(loads[layer], order[layer], other, ranks, swaps, peaks)
            other_peak, other_squares = measure(loads[layer], other, ranks)
            if other_peak < peak or (other_peak == peak and other_squares < squares):
                slot = other
        slots[layer] = slot
    return slots


@njit(cache=True, nogil=True)
def measure(loads: Any, slot: Any, ranks: int) -> Any:
    """Return the busiest rank's load and the sum of squared rank loads, the latter as a float64 tie-break."""
    per_rank = slot.size // ranks
    total = np.zeros(ranks, np.int64)
    for e in range(slot.size):
        total[slot[e] // per_rank] += loads[e]
    squares = 0.0
    for p in range(ranks):
        squares += float(total[p]) * float(total[p])
    return total.max(), squares


@njit(cache=True, nogil=True)
def bring_home(loads: Any, rank: Any, home: Any) -> None:
    """Exchange experts of equal load, so that fewer are away from `home`; rank loads stay as they are."""
    for a in range(rank.size):
        if rank[a] == home[a]:
            continue
        for b in range(rank.size):
            if loads[b] == loads[a] and rank[b] == home[a] and rank[b] != home[b]:
                rank[a], rank[b] = rank[b], rank[a]
                break
