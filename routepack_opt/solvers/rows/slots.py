"""Packings under ``equal_samples_per_slot``: the slot counts are part of the packing.

Guarantees: a returned packing gives every slot the same number of samples, leaves no cell empty and keeps
capacity, sample limits and row classes.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from routepack_opt.solvers.rows.grid import rows_per_class
from routepack_opt.solvers.rows.heuristics import NO_LIMIT
from routepack_opt.solvers.rows.instance import ClassBins, IntArray, RowTask


def equal_slot_packing(task: RowTask, least: list[int], rows: int) -> IntArray | None:
    """Pack ``rows`` rows with equal samples per slot, or return None.

    Parameters
    ----------
    task : RowTask
    least : list of int
        Rows that each class needs at least.
    rows : int

    Returns
    -------
    int64[M] or None
        Flat cell of every item.
    """
    shares = rows_per_class(task, least, rows)
    if shares is None:
        return None
    found = fill_by_load(task, shares)
    if found is None and len(task.classes) == 1:
        found = slots_then_bins(task, rows)
    return found


def cell_plan(task: RowTask, shares: list[int]) -> tuple[IntArray, IntArray, IntArray]:
    """Lay the rows of each class out and give the oversize items their cells, spread over the slots.

    Returns
    -------
    cell_class : int64[R * D]
        Index of the class (in ``task.classes``) of every cell.
    cell_of_alone : int64[M]
        Cell of every oversize item, -1 for all others.
    slot_room : int64[D]
        Samples that each slot still needs; may be negative when oversize items overfill one.
    """
    cell_class = np.repeat(np.arange(len(shares)), np.array(shares) * task.dp)
    cell_of_item = np.full(task.size, -1, dtype=np.int64)
    room = np.full(task.dp, int(task.samples.sum()) // task.dp, dtype=np.int64)
    start = 0
    for bins, share in zip(task.classes, shares, strict=True):
        free = [share] * task.dp
        for item in bins.alone.tolist():
            slot = max(range(task.dp), key=lambda d: (free[d] > 0, room[d], -d))
            cell_of_item[item] = (start + share - free[slot]) * task.dp + slot
            free[slot] -= 1
            room[slot] -= task.samples[item]
        start += share
    return cell_class, cell_of_item, room


def fill_by_load(task: RowTask, shares: list[int]) -> IntArray | None:
    """Longest item first to the least loaded cell of a slot that still needs samples."""
    from routepack_opt.solvers.rows._kernels import fill_slots

    cell_class, cell_of_item, room = cell_plan(task, shares)
    taken = np.zeros(cell_class.size, dtype=np.bool_)
    taken[cell_of_item[cell_of_item >= 0]] = True
    items, tokens, index = shared_items(task)
    limit = min((c.max_samples or NO_LIMIT for c in task.classes), default=NO_LIMIT)
    where, done = fill_slots(
        tokens, task.samples[items], task.cap, limit, cell_class, index, task.dp, room, taken
    )
    if not done:
        return None
    cell_of_item[items] = where
    return cell_of_item


def shared_items(task: RowTask) -> tuple[IntArray, IntArray, IntArray]:
    """Items of all classes that share cells: their ids, tokens and class index, tokens decreasing."""
    items = np.concatenate([c.items for c in task.classes])
    tokens = np.concatenate([c.tokens * (c.unit) for c in task.classes])
    index = np.repeat(np.arange(len(task.classes)), [c.items.size for c in task.classes])
    # groups of many samples first: they are the hardest to place in a slot
    order = np.lexsort((items, -tokens, -task.samples[items] * (task.samples[items] > 1)))
    return items[order], tokens[order], index[order]


def slots_then_bins(task: RowTask, rows: int) -> IntArray | None:
    """Share the items over the slots by tokens with equal samples, then pack every slot into its cells."""
    bins = task.classes[0]
    if bins.alone.size:
        return None
    share = int(task.samples.sum()) // task.dp
    load, count = [0] * task.dp, [0] * task.dp
    members: list[list[int]] = [[] for _ in range(task.dp)]
    for i, (t, s) in enumerate(zip(bins.tokens.tolist(), bins.samples.tolist(), strict=True)):
        open_slots = [d for d in range(task.dp) if count[d] + s <= share]
        if not open_slots:
            return None
        slot = min(open_slots, key=lambda d: (load[d], d))
        members[slot].append(i)
        load[slot] += t
        count[slot] += s
    cell_of_item = np.full(task.size, -1, dtype=np.int64)
    for slot, mine in enumerate(members):
        cells = _pack_slot(bins, np.array(mine, dtype=np.int64), rows)
        if cells is None:
            return None
        for r, cell in enumerate(cells):
            cell_of_item[cell] = r * task.dp + slot
    return cell_of_item


def _pack_slot(bins: ClassBins, mine: IntArray, rows: int) -> list[list[int]] | None:
    """Cells of one slot: its items in exactly ``rows`` cells, or None."""
    from routepack_opt.solvers.rows.grid import split_bins
    from routepack_opt.solvers.rows.heuristics import first_fit_decreasing, least_loaded_bins, subset_sum_fill

    column = replace(bins, items=bins.items[mine], tokens=bins.tokens[mine], samples=bins.samples[mine], dp=1)
    if column.size < rows:
        return None
    where = least_loaded_bins(column, rows)
    for attempt in (first_fit_decreasing, subset_sum_fill):
        if where is None:
            found, used = attempt(column)
            where = found if used <= rows else None
    return None if where is None else split_bins(column, where, rows)
