"""From bins to a layout: split bins until every cell of the rectangle holds an item, then lay them in rows.

Guarantees: a packing into at most ``rows * D`` bins per class becomes exactly ``rows * D`` cells, none empty,
each row of one class; capacity and sample limits stay kept, because cells are only ever split.
"""

from __future__ import annotations

import heapq

import numpy as np

from routepack_opt.solvers.rows.instance import ClassBins, IntArray, RowTask


def rows_per_class(task: RowTask, least: list[int], rows: int) -> list[int] | None:
    """Share ``rows`` over the classes, each with at least ``least`` and at most what its items fill.

    Returns None when that cannot be done. Extra rows go where the items per row are most.
    """
    shares = list(least)
    if any(s > c.most_rows for s, c in zip(shares, task.classes, strict=True)):
        return None
    while sum(shares) < rows:
        room = [c.size / s if s < c.most_rows else -1.0 for s, c in zip(shares, task.classes, strict=True)]
        pick = int(np.argmax(room))
        if room[pick] < 0:
            return None
        shares[pick] += 1
    return shares if sum(shares) == rows else None


def split_bins(bins: ClassBins, where: IntArray, rows: int) -> list[list[int]]:
    """Split the fullest shared cells until there are ``rows * D`` cells with the oversize ones.

    Parameters
    ----------
    bins : ClassBins
    where : int64[m]
        Bin of every shared item.
    rows : int

    Returns
    -------
    list of list of int
        Problem items of each cell, fullest cells first.
    """
    groups: dict[int, list[int]] = {}
    for item, b in enumerate(where.tolist()):
        groups.setdefault(b, []).append(item)
    tokens = bins.tokens.tolist()
    heap = [(-sum(tokens[i] for i in g), number, g) for number, g in enumerate(groups.values())]
    single = [entry for entry in heap if len(entry[2]) == 1]
    heap = [entry for entry in heap if len(entry[2]) > 1]
    heapq.heapify(heap)
    number = len(groups)
    while len(heap) + len(single) < bins.bins_of_rows(rows):
        _, name, group = heapq.heappop(heap)
        # items stand by decreasing tokens: each to the lighter half
        halves: list[list[int]] = [[], []]
        loads = [0, 0]
        for item in group:
            side = 0 if loads[0] <= loads[1] else 1
            halves[side].append(item)
            loads[side] += tokens[item]
        for label, load, half in zip((name, number), loads, halves, strict=True):
            entry = (-load, label, half)
            if len(half) > 1:
                heapq.heappush(heap, entry)
            else:
                single.append(entry)
        number += 1
    cells = [[int(bins.items[i]) for i in group] for _, _, group in sorted(heap + single)]
    return [[int(i)] for i in bins.alone] + cells


def lay_out(task: RowTask, cells_of_class: list[list[list[int]]]) -> IntArray:
    """Lay the cells of each class row-major, one class after the other; flat cell of every item."""
    cell_of_item = np.full(task.size, -1, dtype=np.int64)
    cell = 0
    for cells in cells_of_class:
        for members in cells:
            cell_of_item[members] = cell
            cell += 1
    return cell_of_item
