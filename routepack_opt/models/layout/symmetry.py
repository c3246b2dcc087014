"""Symmetry of layouts: rows that keep one layout per class, and the layout of a class that they keep.

Guarantees: every class of layouts with equal score keeps at least one member. Take the member whose vector
of rows (over items by falling length) is lexicographically least under exchanges of rows and of identical
items: it numbers rows by first appearance and sorts identical items by row. Exchanging slots inside a shard,
or equal shards, leaves that vector alone, so slots can then be sorted by tokens and the first item put into
the first shard of its size.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from routepack_opt.arrays import IntArray

if TYPE_CHECKING:
    from routepack_opt.models.layout.formulation import LayoutModel


def add_symmetry(model: LayoutModel) -> None:
    """Add the symmetry rows."""
    order = _order(model)
    _rows_by_first_item(model, order)
    _identical_items(model)
    _first_shard(model, order[0])
    _slots_by_tokens(model)


def canonical_cells(model: LayoutModel, cells: IntArray) -> IntArray:
    """Return the flat cells (M,) of the equivalent layout that obeys the symmetry rows."""
    dp = model.problem.topology.dp
    row, slot = np.divmod(cells, dp)
    order = _order(model)
    while True:
        before = row.copy(), slot.copy()
        first = {int(r): k for k, r in reversed(list(enumerate(row[order])))}
        rank = {r: k for k, r in enumerate(sorted(first, key=lambda r: first[r]))}
        row = np.array([rank[int(r)] for r in row])
        for group in _identical(model):
            inside = sorted(group, key=lambda m: (row[m], slot[m]))
            row[group], slot[group] = row[inside], slot[inside]
        if (row == before[0]).all() and (slot == before[1]).all():
            break
    slot = _swap_shards(model, slot, order[0])
    return _sort_slots(model, row, slot)


def _order(model: LayoutModel) -> list[int]:
    """Items by falling length, ties by index: early items fix most."""
    return [int(m) for m in np.argsort(-model.problem.items.tokens, kind="stable")]


def _row_terms(model: LayoutModel, item: int, row: int) -> list[tuple[int, int]]:
    """Whether an item is in a row, as terms."""
    shards = model.problem.topology.num_shards
    return [(model.in_block[item][row * shards + g], 1) for g in range(shards)]


def _rows_by_first_item(model: LayoutModel, order: list[int]) -> None:
    """Row r opens only after row r - 1 holds an earlier item."""
    for position, m in enumerate(order):
        for r in range(1, model.rows):
            earlier = [
                (v, -c) for j in order[:position] for v, c in _row_terms(model, j, r - 1)
            ]  # none for the first item: it opens row 0
            model.linear.row("symmetry", [*_row_terms(model, m, r), *earlier], None, 0)


def _identical(model: LayoutModel) -> list[list[int]]:
    """Group the items that no rule and no cost can tell apart."""
    items = model.problem.items
    groups: dict[tuple[object, ...], list[int]] = {}
    for m in range(items.size):
        key = (items.tokens[m], items.squares[m], items.samples[m], items.row_class[m], bool(items.alone[m]))
        groups.setdefault((*key, model.demand[m].tobytes()), []).append(m)
    return [group for group in groups.values() if len(group) > 1]


def _identical_items(model: LayoutModel) -> None:
    for group in _identical(model):
        for first, second in pairwise(group):
            terms = [
                (v, c * r * sign)
                for m, sign in ((first, 1), (second, -1))
                for r in range(model.rows)
                for v, c in _row_terms(model, m, r)
            ]
            model.linear.row("symmetry", terms, None, 0)


def _alike_shards(model: LayoutModel) -> list[list[int]]:
    """Shards grouped by width: those can be exchanged as a whole."""
    shards = model.problem.topology.shards
    widths = sorted({len(part) for part in shards})
    return [[g for g, part in enumerate(shards) if len(part) == n] for n in widths]


def _first_shard(model: LayoutModel, item: int) -> None:
    shards = model.problem.topology.num_shards
    for group in _alike_shards(model):
        for g in group[1:]:
            terms = [(model.in_block[item][r * shards + g], 1) for r in range(model.rows)]
            model.linear.row("symmetry", terms, 0, 0)


def _swap_shards(model: LayoutModel, slot: IntArray, item: int) -> IntArray:
    topology = model.problem.topology
    shard = int(topology.shard_of_slot[slot[item]])
    group = next(group for group in _alike_shards(model) if shard in group)
    swap = np.arange(topology.dp)
    here, there = list(topology.shards[shard]), list(topology.shards[group[0]])
    swap[here], swap[there] = there, here
    return np.asarray(swap[slot], np.int64)


def _slots_by_tokens(model: LayoutModel) -> None:
    """Cells of a row-shard by falling tokens; only whole columns when slots must end with equal samples."""
    dp, tokens = model.problem.topology.dp, model.problem.items.tokens.tolist()
    columns = model.problem.rules.equal_samples_per_slot
    sets = [range(model.rows)] if columns else [[r] for r in range(model.rows)]
    for part in model.problem.topology.shards:
        for d, after in pairwise(part):
            for rows in sets:
                terms = [
                    (model.in_cell[m][r * dp + k], t * sign)
                    for m, t in enumerate(tokens)
                    for r in rows
                    for k, sign in ((d, 1), (after, -1))
                ]
                model.linear.row("symmetry", terms, 0)


def _sort_slots(model: LayoutModel, row: IntArray, slot: IntArray) -> IntArray:
    dp, tokens = model.problem.topology.dp, model.problem.items.tokens
    load = np.zeros((model.rows, dp), np.int64)
    np.add.at(load, (row, slot), tokens)
    if model.problem.rules.equal_samples_per_slot:
        load[:] = load.sum(axis=0)
    target = np.tile(np.arange(dp), (model.rows, 1))
    for part in model.problem.topology.shards:
        for r in range(model.rows):
            target[r, sorted(part, key=lambda d: (-int(load[r, d]), d))] = part
    return np.asarray(row * dp + target[row, slot], np.int64)
