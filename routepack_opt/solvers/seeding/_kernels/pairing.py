"""Which cells share a row: EDPAwarePair, and the loads of a layout summed cell by cell."""

from typing import Any, NamedTuple

import numpy as np

from routepack_opt.solvers.seeding._kernels.rectangle import below, kernel


@kernel
def add_cells(routed: Any, block_of_cell: Any, blocks: Any) -> None:
    """Add the loads of every cell to its row-shard [R G, L, P]."""
    for cell in range(block_of_cell.size):
        add_to(blocks[block_of_cell[cell]], routed[cell])


@kernel
def add_to(block: Any, loads: Any) -> None:
    """Add loads [L, P] in place."""
    for layer in range(block.shape[0]):
        for p in range(block.shape[1]):
            block[layer, p] += loads[layer, p]


@kernel
def layer_peaks(blocks: Any, peaks: Any) -> None:
    """Fill `peaks` [R G, L] with the load of the busiest rank."""
    for b in range(blocks.shape[0]):
        for layer in range(blocks.shape[1]):
            worst = np.int64(0)
            for p in range(blocks.shape[2]):
                worst = max(worst, blocks[b, layer, p])
            peaks[b, layer] = worst


@kernel
def joined_peaks(block: Any, loads: Any) -> tuple[int, int]:
    """Return (sum over layers of the busiest rank, largest rank load) of a row-shard with one more cell."""
    total, largest = np.int64(0), np.int64(0)
    for layer in range(block.shape[0]):
        worst = block[layer, 0] + loads[layer, 0]
        for p in range(1, block.shape[1]):
            worst = max(worst, block[layer, p] + loads[layer, p])
        total += worst
        largest = max(largest, worst)
    return int(total), int(largest)


class Pairing(NamedTuple):
    """What :func:`pair_cells` reads (the first part) and works on (the second, zero at the start)."""

    routed: Any  # int64 [K, L, P]: loads of the completed cells
    order: Any  # int64 [K]: completed cells in decreasing routed-token peak
    class_of_cell: Any  # int64 [K]: class of every completed cell
    block_of_place: Any  # int64 [K]: row-shard of every place
    class_of_block: Any  # int64 [R G]: class of its row
    room: Any  # int64 [R G]: its places
    slots: int
    keep_slot: bool  # whether completed cell k must stand in slot k % D
    words: Any  # uint64 [K]: random words, used when w > 1

    blocks: Any  # int64 [R G, L, P]: loads of the row-shards so far
    peaks: Any  # int64 [R G]: their sums over layers of the busiest rank
    count: Any  # int64 [R G]: their cells
    keys: Any  # int64 [R G, 2]: insertion key of the cell at hand
    taken: Any  # bool [K]
    ranked: Any  # int64 [w]: the best places
    target: Any  # int64 [K]: the result, the place of every completed cell


@kernel
def pair_cells(p: Any) -> None:
    """Lay the completed cells, in order, each into one of the best w free places."""
    for k in range(p.order.size):
        cell = p.order[k]
        insertion_keys(p, cell)
        found = best_places(p, cell)
        place = p.ranked[decaying_rank(found, p.words[k])]
        block = p.block_of_place[place]
        p.target[cell], p.taken[place] = place, True
        add_to(p.blocks[block], p.routed[cell])
        p.peaks[block] += p.keys[block, 0]
        p.count[block] += 1


@kernel
def insertion_keys(p: Any, cell: int) -> None:
    """Fill the key of every row-shard: (increase of its sum of peaks, largest rank load with the cell)."""
    empty = -1
    for block in range(p.count.size):
        if p.count[block] == p.room[block] or p.class_of_block[block] != p.class_of_cell[cell]:
            continue
        if p.count[block] == 0 and empty >= 0:  # all empty row-shards are alike
            p.keys[block, 0], p.keys[block, 1] = p.keys[empty, 0], p.keys[empty, 1]
            continue
        total, largest = joined_peaks(p.blocks[block], p.routed[cell])
        p.keys[block, 0], p.keys[block, 1] = total - p.peaks[block], largest
        if p.count[block] == 0:
            empty = block


@kernel
def best_places(p: Any, cell: int) -> int:
    """Fill `ranked` with the best free places by (key, index); return how many there are, at most w."""
    found = 0
    for place in range(p.taken.size):
        if p.taken[place] or p.class_of_block[p.block_of_place[place]] != p.class_of_cell[cell]:
            continue
        if p.keep_slot and place % p.slots != cell % p.slots:
            continue
        at = found
        while at > 0 and _better(p.keys, p.block_of_place[place], p.block_of_place[p.ranked[at - 1]]):
            at -= 1
        if at == p.ranked.size:
            continue
        found = min(found + 1, p.ranked.size)
        for back in range(found - 1, at, -1):
            p.ranked[back] = p.ranked[back - 1]
        p.ranked[at] = place
    return found


@kernel
def _better(keys: Any, block: int, other: int) -> bool:
    if keys[block, 0] != keys[other, 0]:
        return bool(keys[block, 0] < keys[other, 0])
    return bool(keys[block, 1] < keys[other, 1])  # places come in index order: ties keep it


@kernel
def decaying_rank(count: int, word: Any) -> int:
    """Draw a rank in [0, count), rank k with weight count - k."""
    point, rank = below(word, count * (count + 1) // 2), 0
    while point >= count - rank:
        point -= count - rank
        rank += 1
    return rank
