"""All items between two row-shards: every division that the bound does not exclude.

Guarantees: when it ends within its nodes, no layout has a lower score than `work.best`, in all three
components; a division is kept only when it obeys every rule and is strictly better.
"""

from typing import Any

import numpy as np

from routepack_opt.solvers.annealing._kernels.compile import inlined, kernel
from routepack_opt.solvers.annealing.complete._kernels.cells import split_block
from routepack_opt.solvers.annealing.complete._kernels.tables import (
    ROOM,
    SAMPLES,
    Tables,
    Work,
    even,
    shift,
)


@kernel
def search_blocks(tables: Tables, work: Work) -> bool:
    """Improve `work.best` over all divisions; says whether none was left out.

    With a single block, of width `tables.widths[0]`, only its cells are searched.

    Notes
    -----
    Depth first, item by item. What is still open adds to the peaks of two blocks in a layer at least
    ``sum of min(q[i, p], q[i, p'])``, whatever ranks p and p' they have: each item goes to one of the two.
    """
    size = work.side.size
    if tables.widths[1] == 0:
        for item in range(size):
            place(tables, work, item, 0, 1)
        split_both(tables, work)
        return work.nodes[0] < work.nodes[1]
    k = np.int64(0)
    work.side[0] = -1
    while k >= 0:
        if work.nodes[0] >= work.nodes[1]:
            return False
        block = work.side[k]
        if block >= 0:
            place(tables, work, k, block, -1)
        block += 1
        if block == 2 or (k == 0 and block == 1 and tables.alike):
            work.side[k] = -1
            k -= 1
            continue
        work.side[k] = block
        place(tables, work, k, block, 1)
        work.nodes[0] += 1
        if not keeps_rules(tables, work, k, block) or not promising(tables, work, k + 1):
            continue
        if k < size - 1:
            k += 1
            work.side[k] = -1
        else:
            split_both(tables, work)
    return True


@inlined
def place(tables: Tables, work: Work, item: int, block: int, sign: int) -> None:
    """Give an item to a block, or take it away."""
    shift(tables, work.sums[block], item, sign)
    work.count[block] += sign
    loads, demand = work.loads[block], tables.demand[item]
    peaks = np.int64(0)
    for layer in range(loads.shape[0]):
        worst = np.int64(0)
        for p in range(loads.shape[1]):
            loads[layer, p] += sign * demand[layer, p]
            worst = max(worst, loads[layer, p])
        peaks += worst
    work.peaks[block] = peaks
    if sign > 0 and work.count[block] == 1:
        work.kind[block] = tables.row_class[item]


@inlined
def keeps_rules(tables: Tables, work: Work, item: int, block: int) -> bool:
    """Say whether the block that was given an item can still be split, and the open items fill both."""
    width, sums = tables.widths[block], work.sums[block]
    if tables.row_class[item] != work.kind[block]:
        return False
    if sums[ROOM] > width * tables.cap or sums[SAMPLES] > width * tables.max_samples:
        return False
    missing = max(0, tables.widths[0] - work.count[0]) + max(0, tables.widths[1] - work.count[1])
    return missing < work.side.size - item


@inlined
def promising(tables: Tables, work: Work, open_from: int) -> bool:
    """Say whether the bound of a partial division is below the best score."""
    peaks = np.int64(0)
    for layer in range(work.loads.shape[1]):
        worst = np.int64(0)
        for p in range(work.loads.shape[2]):
            for other in range(work.loads.shape[2]):
                value = work.loads[0, layer, p] + work.loads[1, layer, other]
                worst = max(worst, value + tables.least[open_from, layer, p, other])
        peaks += worst
    total = tables.attention + tables.unit * peaks
    heavy = (total + 1) // 2
    for block in range(2):
        known = even(tables, work.sums[block], tables.widths[block]) + tables.unit * work.peaks[block]
        heavy = max(heavy, known)
    return better(tables, work.best, total, heavy)


@inlined
def better(tables: Tables, best: Any, total: int, heavy: int) -> bool:
    """Say whether two blocks of this total, the heavier of this size, beat the best score."""
    primary = total if tables.same_shard else heavy
    if primary != best[0]:
        return primary < best[0]
    return total < best[1] if total != best[1] else heavy < best[2]


@kernel
def split_both(tables: Tables, work: Work) -> None:
    """Split both blocks between their cells and keep the result when it is better."""
    if tables.each_slot == 0:
        split_with(tables, work, -1, -1)
        return
    for first in range(1, tables.each_slot):
        split_with(tables, work, first, tables.each_slot - first)


@kernel
def split_with(tables: Tables, work: Work, first_a: int, first_b: int) -> None:
    """Split both blocks, their first cells with these numbers of samples."""
    a, b = tables.unit * work.peaks[0], tables.unit * work.peaks[1]
    rest = b + even(tables, work.sums[1], tables.widths[1]) if tables.same_shard else np.int64(0)
    attention = split_block(tables, work, 0, first_a, work.best[0] - a - rest + 1)
    if attention < 0:
        return
    a += attention
    if tables.widths[1] > 0:
        rest = a if tables.same_shard else np.int64(0)
        attention = split_block(tables, work, 1, first_b, work.best[0] - b - rest + 1)
        if attention < 0:
            return
        b += attention
    total, heavy = a + b, max(a, b)
    if better(tables, work.best, total, heavy):
        work.best[0], work.best[1], work.best[2] = total if tables.same_shard else heavy, total, heavy
        for item in range(work.side.size):
            work.best_side[item], work.best_cell[item] = work.side[item], work.cell[item]
