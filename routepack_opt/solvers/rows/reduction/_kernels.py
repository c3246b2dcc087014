"""Compiled reduction and filling of bins on plain integer arrays, tokens decreasing.

Guarantees: no bin exceeds the capacity; ties go to the lowest index; nothing is random.

Items that are left form a list; the links of a packed item still lead to the next one that is left.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
PAIR_STEPS = 50_000_000  # list steps spent on the dominance of pairs
FILL_STEPS = 200_000_000  # list steps of filling
TRIPLES = 6  # items tried as the first of three


@njit(cache=True, nogil=True)
def _links(size: int) -> tuple[IntArray, IntArray]:
    """Links to the next and the one before; the list goes through the sentinel ``size``."""
    after, before = np.arange(1, size + 2), np.arange(-1, size)
    after[size], before[0] = 0, size
    return after, before


@njit(cache=True, nogil=True)
def _take(item: int, spot: int, where: IntArray, after: IntArray, before: IntArray) -> None:
    """Pack an item and take it off the list."""
    where[item] = spot
    after[before[item]] = after[item]
    before[after[item]] = before[item]


@njit(cache=True, nogil=True)
def _largest(tokens: IntArray, room: int, where: IntArray, after: IntArray) -> int:
    """First item left that has at most ``room`` tokens; the sentinel when there is none."""
    low, high = 0, tokens.size
    while low < high:
        middle = (low + high) // 2
        if tokens[middle] > room:
            low = middle + 1
        else:
            high = middle
    while low < tokens.size and where[low] >= 0:
        low = after[low]
    return low


@njit(cache=True, nogil=True)
def _best_pair(
    tokens: IntArray, room: int, first: int, after: IntArray, before: IntArray
) -> tuple[int, int, int, int]:
    """Find the two items left, from ``first`` on, that fill ``room`` best: both, their sum, list steps."""
    size = tokens.size
    low, high = first, before[size]
    best, one, two, steps = -1, -1, -1, 0
    while low < high:
        total = tokens[low] + tokens[high]
        steps += 1
        if total > room:
            low = after[low]
        else:
            if total > best:
                best, one, two = total, low, high
                if total == room:
                    break
            high = before[high]
    return one, two, best, steps


@njit(cache=True, nogil=True)
def fix_large(tokens: IntArray, cap: int) -> tuple[IntArray, int]:
    """Fix the bins of items of at least half the capacity where one best company is known.

    Returns the bin of every item, -1 for those left, and the bins fixed.
    """
    size = tokens.size
    where = np.full(size, -1, np.int64)
    after, before = _links(size)
    used, work = 0, PAIR_STEPS
    changed = True
    while changed:
        changed = False
        i = after[size]
        while i < size and 2 * tokens[i] >= cap:
            this = i
            i = after[i]
            room = cap - tokens[this]
            _take(this, used, where, after, before)
            mate = _largest(tokens, room, where, after)
            if mate < size and tokens[mate] < room:
                # would two or more small ones do better than the largest one?
                a = before[size]
                b = before[a]
                c = before[b] if b < size else size
                if b < size and tokens[a] + tokens[b] <= room:
                    three = c < size and tokens[a] + tokens[b] + tokens[c] <= room
                    best = room
                    if not three and work > 0:
                        _, _, best, steps = _best_pair(tokens, room, mate, after, before)
                        work -= steps
                    if best > tokens[mate]:
                        # back on the list: nothing was unlinked since
                        where[this] = -1
                        after[before[this]] = this
                        before[after[this]] = this
                        continue
            if mate < size:
                if mate == i:
                    i = after[i]
                _take(mate, used, where, after, before)
            used += 1
            changed = True
    return where, used


@njit(cache=True, nogil=True)
def _complete(
    tokens: IntArray, room: int, spot: int, where: IntArray, after: IntArray, before: IntArray
) -> tuple[Any, int, int]:
    """Fill the room of one bin as well as one, two or three items at a time can.

    Returns what stays empty, the items packed and the list steps made.
    """
    size, packed, work = tokens.size, 0, 0
    while True:
        a = before[size]
        if a == size or tokens[a] > room:
            return room, packed, work
        one = _largest(tokens, room, where, after)
        if tokens[one] == room:
            _take(one, spot, where, after, before)
            return 0, packed + 1, work
        p, q = -1, -1
        pair: Any = np.int64(-1)
        if 2 * tokens[one] >= room:
            p, q, pair, steps = _best_pair(tokens, room, one, after, before)
            work += steps
        b = before[a]
        c = before[b] if b < size else size
        three = c < size and tokens[a] + tokens[b] + tokens[c] <= room
        if pair == room or (not three and pair > tokens[one]):
            _take(p, spot, where, after, before)
            _take(q, spot, where, after, before)
            return room - pair, packed + 2, work
        if not three:
            _take(one, spot, where, after, before)
            return room - tokens[one], packed + 1, work
        # the largest that leaves room for two more, or one of the next few with which three fill the bin
        first = _largest(tokens, room - tokens[a] - tokens[b], where, after)
        j = first
        for _ in range(TRIPLES):
            if j >= size or 3 * tokens[j] < room:
                break
            p, q, pair, steps = _best_pair(tokens, room - tokens[j], after[j], after, before)
            work += steps
            if pair == room - tokens[j]:
                first = j
                break
            j = after[j]
        _take(first, spot, where, after, before)
        room -= tokens[first]
        packed += 1


@njit(cache=True, nogil=True)
def fill_exactly(tokens: IntArray, cap: int, keep: int, waste: int) -> tuple[IntArray, int]:
    """Fill bins one after the other, while more than ``keep`` items are left and ``waste`` allows.

    Returns the bin of every item, -1 for those left, and the bins filled.
    """
    size = tokens.size
    where = np.full(size, -1, np.int64)
    after, before = _links(size)
    used, left, work = 0, size, FILL_STEPS
    while left > keep and work > 0:
        head = after[size]
        _take(head, used, where, after, before)
        empty, packed, steps = _complete(tokens, cap - tokens[head], used, where, after, before)
        waste -= empty
        work -= steps
        if waste < 0:
            where[where == used] = -1
            break
        used += 1
        left -= 1 + packed
    return where, used
