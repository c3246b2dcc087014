"""Compiled bin-packing heuristics on plain integer arrays.

Guarantees: items come with tokens decreasing; every heuristic keeps the capacity and the limit on samples
(`limit`, a large number when there is none); ties go to the lowest index; nothing is random.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _leftmost(tree: IntArray, leaves: int, start: int, need: int) -> int:
    """Lowest leaf of at least `start` that holds at least `need`; -1 when there is none."""
    if start >= leaves:
        return -1
    node = leaves + start
    while True:
        if tree[node] >= need:
            while node < leaves:
                node = 2 * node if tree[2 * node] >= need else 2 * node + 1
            return node - leaves
        while node & 1:
            node >>= 1
            if node <= 1:
                return -1
        node += 1


@njit(cache=True, nogil=True)
def first_fit(tokens: IntArray, samples: IntArray, cap: int, limit: int) -> tuple[IntArray, int]:
    """First fit in the given order, with a tournament tree; bin of every item and the bins used."""
    size = tokens.size
    leaves = 1
    while leaves < max(size, 2):
        leaves *= 2
    tree = np.full(2 * leaves, cap, np.int64)
    held = np.zeros(size, np.int64)
    where = np.empty(size, np.int64)
    used = 0
    for item in range(size):
        spot = _leftmost(tree, leaves, 0, tokens[item])
        while held[spot] + samples[item] > limit:
            spot = _leftmost(tree, leaves, spot + 1, tokens[item])
        where[item] = spot
        held[spot] += samples[item]
        used = max(used, spot + 1)
        node = leaves + spot
        tree[node] -= tokens[item]
        node >>= 1
        while node >= 1:
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
            node >>= 1
    return where, used


@njit(cache=True, nogil=True)
def best_fit(tokens: IntArray, samples: IntArray, cap: int, limit: int) -> tuple[IntArray, int]:
    """Best fit in the given order: the fullest bin that still takes the item."""
    size = tokens.size
    room = np.empty(size, np.int64)
    held = np.zeros(size, np.int64)
    where = np.empty(size, np.int64)
    used = 0
    for item in range(size):
        spot = -1
        for b in range(used):
            left = room[b]
            if left >= tokens[item] and held[b] + samples[item] <= limit and (spot < 0 or left < room[spot]):
                spot = b
        if spot < 0:
            spot = used
            room[spot] = cap
            used += 1
        room[spot] -= tokens[item]
        held[spot] += samples[item]
        where[item] = spot
    return where, used


@njit(cache=True, nogil=True)
def subset_fill(tokens: IntArray, samples: IntArray, cap: int, limit: int, work: int) -> tuple[IntArray, int]:
    """Fill bin after bin: the largest item left, then the subset of the others that fills it best.

    The subset comes from a reachability table over tokens, larger items first, which ends as soon as the bin
    can be filled to the last token. After `work` table steps the remaining items go by first fit.
    """
    size = tokens.size
    where = np.full(size, -1, np.int64)
    via = np.empty(cap + 1, np.int64)
    count = np.zeros(cap + 1, np.int64)
    used = 0
    done = 0
    first = 0
    while done < size and work > 0:
        while where[first] >= 0:
            first += 1
        where[first] = used
        done += 1
        room = cap - tokens[first]
        spare = limit - samples[first]
        via[: room + 1] = -2
        work -= (room + size) // 2
        via[0] = -1
        count[0] = 0
        top = 0
        for item in range(first + 1, size):
            if where[item] >= 0 or tokens[item] > room:
                continue
            step = tokens[item]
            high = min(room, top + step)
            work -= high - step + 1
            for t in range(high, step - 1, -1):
                if via[t] == -2 and via[t - step] != -2 and count[t - step] + samples[item] <= spare:
                    via[t] = item
                    count[t] = count[t - step] + samples[item]
                    top = max(top, t)
            if via[room] != -2 or work <= 0:
                break
        t = room
        while via[t] == -2:
            t -= 1
        while t > 0:
            item = via[t]
            where[item] = used
            done += 1
            t -= tokens[item]
        used += 1
    if done < size:
        left = np.flatnonzero(where < 0)
        rest, more = first_fit(tokens[left], samples[left], cap, limit)
        for i in range(left.size):
            where[left[i]] = used + rest[i]
        used += more
    return where, used


@njit(cache=True, nogil=True)
def least_loaded(
    tokens: IntArray, samples: IntArray, cap: int, limit: int, bins: int
) -> tuple[IntArray, bool]:
    """Each item to the least loaded of `bins` bins that takes it; whether all items found one."""
    size = tokens.size
    leaves = 1
    while leaves < max(bins, 2):
        leaves *= 2
    # a tournament of rooms: the least loaded bin has the most room, padding leaves have none
    tree = np.full(2 * leaves, np.int64(-1), np.int64)
    for b in range(bins):
        tree[leaves + b] = cap
    for node in range(leaves - 1, 0, -1):
        tree[node] = max(tree[2 * node], tree[2 * node + 1])
    held = np.zeros(bins, np.int64)
    where = np.full(size, -1, np.int64)
    for item in range(size):
        if tree[1] < tokens[item]:
            return where, False
        spot = _leftmost(tree, leaves, 0, tree[1])
        if held[spot] + samples[item] > limit:
            spot = -1
            for b in range(bins):
                fits = tree[leaves + b] >= tokens[item] and held[b] + samples[item] <= limit
                if fits and (spot < 0 or tree[leaves + b] > tree[leaves + spot]):
                    spot = b
            if spot < 0:
                return where, False
        where[item] = spot
        held[spot] += samples[item]
        node = leaves + spot
        tree[node] -= tokens[item]
        node >>= 1
        while node >= 1:
            tree[node] = max(tree[2 * node], tree[2 * node + 1])
            node >>= 1
    return where, True


@njit(cache=True, nogil=True)
def fill_slots(
    tokens: IntArray,
    samples: IntArray,
    cap: int,
    limit: int,
    cell_class: IntArray,
    item_class: IntArray,
    dp: int,
    slot_room: IntArray,
    taken: NDArray[np.bool_],
) -> tuple[IntArray, bool]:
    """Least loaded cell of the item's class in a slot that still needs samples; whether all items found one.

    `slot_room` is the number of samples that each slot still needs; `taken` marks cells of oversize samples.
    """
    cells = cell_class.size
    load = np.zeros(cells, np.int64)
    held = np.zeros(cells, np.int64)
    room = slot_room.copy()
    where = np.full(tokens.size, -1, np.int64)
    for item in range(tokens.size):
        spot = -1
        for c in range(cells):
            if taken[c] or cell_class[c] != item_class[item] or room[c % dp] < samples[item]:
                continue
            if load[c] + tokens[item] > cap or held[c] + samples[item] > limit:
                continue
            # among equals the slot that still needs most samples
            if spot < 0 or load[c] < load[spot] or (load[c] == load[spot] and room[c % dp] > room[spot % dp]):
                spot = c
        if spot < 0:
            return where, False
        where[item] = spot
        load[spot] += tokens[item]
        held[spot] += samples[item]
        room[spot % dp] -= samples[item]
    for c in range(cells):
        if held[c] == 0 and not taken[c]:
            return where, False
    return where, True
