"""Numba kernels over all subsets of the items; a subset is a bit mask, bit m for item m.

Guarantees: int64 throughout; a cost of ``IMPOSSIBLE`` marks a subset without a valid arrangement; of equal
choices the smallest mask wins.
"""

from typing import Any

import numpy as np
from numba import njit

IMPOSSIBLE = np.int64(2**62)


@njit(cache=True, nogil=True)
def subset_sums(values: Any, out: Any) -> None:
    """Fill `out` [2^M] with the sum of `values` [M] over every subset."""
    out[0] = 0
    for item in range(values.size):
        half = 1 << item
        for mask in range(half):
            out[half + mask] = out[mask] + values[item]


@njit(cache=True, nogil=True)
def expert_peaks(demand: Any, out: Any) -> None:
    """Fill `out` [2^M] with the sum over layers of the busiest rank's load, `demand` int64 [M, L, P]."""
    items, layers, ranks = demand.shape
    load = np.zeros((layers, ranks), np.int64)
    mask = 0
    out[0] = 0
    for step in range(1, 1 << items):  # Gray code: one item enters or leaves at each step
        item = 0
        while (step >> item) & 1 == 0:
            item += 1
        mask ^= 1 << item
        sign = 1 if (mask >> item) & 1 else -1
        total = np.int64(0)
        for layer in range(layers):
            peak = np.int64(0)
            for p in range(ranks):
                load[layer, p] += sign * demand[item, layer, p]
                peak = max(peak, load[layer, p])
            total += peak
        out[mask] = total


@njit(cache=True, nogil=True)
def best_pair(whole: int, work: Any, cell: Any) -> tuple[int, int]:
    """Return (cost, first cell) of the best split of `whole` into two cells, stages [S, 2^M]."""
    low = whole & -whole
    rest = whole ^ low
    best, choice = IMPOSSIBLE, 0
    part = rest
    while part:  # `part` is the cell without the lowest item
        part_other = whole ^ part
        if cell[part] and cell[part_other]:
            cost = np.int64(0)
            for s in range(work.shape[0]):
                cost += max(work[s, part], work[s, part_other])
            if cost < best or (cost == best and part < choice):
                best, choice = cost, part
        part = (part - 1) & rest
    return int(best), choice


@njit(cache=True, nogil=True)
def all_pairs(work: Any, cell: Any, out: Any) -> None:
    """Fill `out` [2^M] with the cost of the best split of every subset into two cells."""
    out[0] = IMPOSSIBLE
    for whole in range(1, out.size):
        out[whole] = best_pair(whole, work, cell)[0]


@njit(cache=True, nogil=True)
def best_next_cell(whole: int, work: Any, cell: Any, fewer: Any) -> tuple[int, int]:
    """Return (busiest cell, cell of the lowest item) when the other cells are already best for one stage."""
    low = whole & -whole
    rest = whole ^ low
    best, choice = IMPOSSIBLE, 0
    others = rest
    while others:
        part = whole ^ others
        if cell[part] and fewer[others] < IMPOSSIBLE:
            cost = max(work[part], fewer[others])
            if cost < best or (cost == best and part < choice):
                best, choice = cost, part
        others = (others - 1) & rest
    return int(best), choice


@njit(cache=True, nogil=True)
def all_next_cells(work: Any, cell: Any, fewer: Any, out: Any) -> None:
    """Fill `out` [2^M]: one stage, one more cell than `fewer` [2^M]."""
    out[0] = IMPOSSIBLE
    for whole in range(1, out.size):
        out[whole] = best_next_cell(whole, work, cell, fewer)[0]


@njit(cache=True, nogil=True)
def add_row(cost: Any, sums: Any, peaks: Any, out_sums: Any, out_peaks: Any, choice: Any) -> None:
    """Add one row to the best (sum, largest) of every subset; `choice` is the row of the lowest item."""
    out_sums[0], out_peaks[0], choice[0] = IMPOSSIBLE, IMPOSSIBLE, 0
    for whole in range(1, cost.size):
        low = whole & -whole
        rest = whole ^ low
        best, peak, taken = IMPOSSIBLE, IMPOSSIBLE, 0
        others = rest
        while others:
            part = whole ^ others
            if cost[part] < IMPOSSIBLE and sums[others] < IMPOSSIBLE:
                total = cost[part] + sums[others]
                largest = max(cost[part], peaks[others])
                if total < best or (total == best and largest < peak):
                    best, peak, taken = total, largest, part
            others = (others - 1) & rest
        out_sums[whole], out_peaks[whole], choice[whole] = best, peak, taken
