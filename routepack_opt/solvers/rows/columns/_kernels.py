"""Compiled pricing and pattern enumeration on whole numbers.

Guarantees: exact int64 arithmetic; a pattern never takes more copies of a size than are demanded.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@njit(cache=True, nogil=True)
def split_copies(sizes: IntArray, demand: IntArray, values: IntArray, cap: int) -> tuple[IntArray, IntArray]:
    """Split every worthwhile size into blocks of 1, 2, 4, ... copies: size index and copies of each block."""
    index = np.empty(64 * sizes.size, np.int64)
    copies = np.empty(64 * sizes.size, np.int64)
    used = 0
    for j in range(sizes.size):
        left = min(demand[j], cap // sizes[j])
        step = 1
        while left > 0 and values[j] > 0:
            take = min(step, left)
            index[used] = j
            copies[used] = take
            used += 1
            left -= take
            step *= 2
    return index[:used].copy(), copies[:used].copy()


@njit(cache=True, nogil=True)
def knapsack(
    sizes: IntArray, demand: IntArray, values: IntArray, cap: int, wanted: int
) -> tuple[int, IntArray]:
    """Most value that fits ``cap``, and up to ``wanted`` good patterns, the best one first.

    The others are the best patterns of the leading blocks alone, which the table holds anyway.
    """
    index, copies = split_copies(sizes, demand, values, cap)
    blocks = index.size
    best = np.zeros(cap + 1, np.int64)
    took = np.zeros((blocks, cap + 1), np.bool_)
    for p in range(blocks):
        width = sizes[index[p]] * copies[p]
        gain = values[index[p]] * copies[p]
        row = took[p]
        for c in range(cap, width - 1, -1):
            value = best[c - width] + gain
            if value > best[c]:
                best[c] = value
                row[c] = True
    patterns = np.zeros((wanted, sizes.size), np.int64)
    found = 0
    last = blocks - 1
    while last >= 0 and found < wanted:
        c = cap
        top = -1
        for p in range(last, -1, -1):
            if took[p, c]:
                if top < 0:
                    top = p
                patterns[found, index[p]] += copies[p]
                c -= sizes[index[p]] * copies[p]
        if top < 0:
            break
        found += 1
        last = top - 1
    return best[cap], patterns[:found]


@njit(cache=True, nogil=True)
def suffix_values(sizes: IntArray, demand: IntArray, values: IntArray, cap: int) -> NDArray[np.int64]:
    """Give the most value of sizes j, j+1, ... in every room: table [sizes + 1, cap + 1]."""
    size = sizes.size
    table = np.zeros((size + 1, cap + 1), np.int64)
    for j in range(size - 1, -1, -1):
        row = table[j]
        row[:] = table[j + 1]
        left = min(demand[j], cap // sizes[j])
        step = 1
        while left > 0 and values[j] > 0:
            take = min(step, left)
            width = sizes[j] * take
            gain = values[j] * take
            for c in range(cap, width - 1, -1):
                if row[c - width] + gain > row[c]:
                    row[c] = row[c - width] + gain
            left -= take
            step *= 2
    return table


@njit(cache=True, nogil=True)
def enumerate_patterns(
    sizes: IntArray,
    demand: IntArray,
    values: IntArray,
    cap: int,
    least: int,
    table: NDArray[np.int64],
    patterns: NDArray[np.int16],
    first: int,
) -> int:
    """List all maximal patterns worth at least ``least``; their number, or -1 when they are too many.

    A pattern is maximal when no further copy of any size fits. Each row of ``patterns`` lists size indices
    in increasing order, -1 after the last. With ``first >= 0`` only patterns that hold size ``first`` and
    nothing before it are listed. Sizes stand in decreasing order.
    """
    size = sizes.size
    width = patterns.shape[1]
    stack = np.empty(width, np.int64)
    count = np.zeros(size, np.int64)
    depth, room, value, found = 0, cap, 0, 0
    j = 0
    if first >= 0:
        stack[0] = first
        count[first] = 1
        depth, room, value, j = 1, cap - sizes[first], values[first], first
    base = depth
    while True:
        # next size that may follow, in order
        while j < size and (count[j] >= demand[j] or sizes[j] > room):
            j += 1
        if j < size and depth < width and value + table[j, room] >= least:
            stack[depth] = j
            depth += 1
            count[j] += 1
            room -= sizes[j]
            value += values[j]
            continue
        if j >= size and value >= least:
            # the smallest size with copies left tells whether anything else fits
            maximal = True
            for i in range(size - 1, -1, -1):
                if sizes[i] > room:
                    break
                if count[i] < demand[i]:
                    maximal = False
                    break
            if maximal:
                if found == patterns.shape[0]:
                    return -1
                for d in range(width):
                    patterns[found, d] = stack[d] if d < depth else -1
                found += 1
        if depth == base:
            return found
        depth -= 1
        j = stack[depth]
        count[j] -= 1
        room += sizes[j]
        value -= values[j]
        j += 1
