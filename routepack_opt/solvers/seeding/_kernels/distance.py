"""What tells layouts apart: canonical labels and co-assignment."""

from typing import Any

import numpy as np

from routepack_opt.solvers.seeding._kernels.rectangle import kernel


@kernel
def canonical_labels(cell_of_item: Any, group_of_slot: Any, first: Any, labels: Any) -> None:
    """Fill `labels` int32 [3, M]: smallest item of the item's cell, of its row, and the group of its slot.

    `first` is room for these smallest items, int32 [2, K], all -1.
    """
    slots = group_of_slot.size
    first_of_cell, first_of_row = first[0], first[1]
    for item in range(cell_of_item.size):
        cell, row = cell_of_item[item], cell_of_item[item] // slots
        if first_of_cell[cell] < 0:
            first_of_cell[cell] = item
        if first_of_row[row] < 0:
            first_of_row[row] = item
        labels[0, item], labels[1, item] = first_of_cell[cell], first_of_row[row]
        labels[2, item] = group_of_slot[cell % slots]


@kernel
def common_pairs(order: Any, label: Any, other: Any, seen: Any) -> int:
    """Count the pairs of items with equal `label` and equal `other`.

    Parameters
    ----------
    order : int64 array [M]
        Items sorted by `label`.
    label, other : int64 arrays [M]
        Labels from 0.
    seen : int64 array
        Zeros, one for every label of `other`; zeros again at the end.
    """
    total, start = np.int64(0), 0
    for k in range(order.size):
        if label[order[k]] != label[order[start]]:
            for back in range(start, k):
                seen[other[order[back]]] = 0
            start = k
        total += seen[other[order[k]]]
        seen[other[order[k]]] += 1
    for back in range(start, order.size):
        seen[other[order[back]]] = 0
    return int(total)
