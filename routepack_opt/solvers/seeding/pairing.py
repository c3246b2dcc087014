"""Cells into rows: EDPAwarePair, the only operator of Algorithm 2 that moves completed cells.

Guarantees: the result holds the same cells, in other places; a valid packing stays valid. Under
`equal_samples_per_slot` a cell keeps its slot and chooses its row only, so that the slots' counts do not
change; under `row_class` it enters rows of its class only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.placement.projection import sum_by_group
from routepack_opt.problem import Problem
from routepack_opt.solvers.seeding._kernels import pairing as kernels


class CellSums(NamedTuple):
    """What the cells of a packing hold.

    Attributes
    ----------
    tokens, squares : numpy.ndarray of int64, shape (K,)
        Sums over the items of every cell.
    routed : numpy.ndarray of int64, shape (K, L, P)
        Routed assignments on every EP rank.
    """

    tokens: IntArray
    squares: IntArray
    routed: IntArray


def sum_cells(problem: Problem, demand: npt.NDArray[Any], cells: IntArray, count: int) -> CellSums:
    """Sum the items of `count` cells: `demand` is q (M, L, P), `cells` the cell of every item."""
    items = problem.items
    routed = sum_by_group(demand, cells, count)
    tokens, squares = np.zeros(count, np.int64), np.zeros(count, np.int64)
    np.add.at(tokens, cells, items.tokens)
    np.add.at(squares, cells, items.squares)
    return CellSums(tokens, squares, routed)


def edp_aware_pair(
    problem: Problem,
    demand: npt.NDArray[Any],
    cells: IntArray,
    rows: int,
    rng: np.random.BitGenerator | None = None,
    width: int = 1,
    sums: CellSums | None = None,
) -> IntArray | None:
    """Lay completed cells into the rectangle (EDPAwarePair, Algorithm 2 lines 2 and 9).

    Cells come in decreasing routed-token peak, max over layers and ranks. Each goes to an empty (r, d) by the
    insertion key (increase of the row-shard's sum over layers of the busiest rank, largest rank load after
    it, index), drawn from the best `width` with weights width, width - 1, ..., 1.

    Parameters
    ----------
    problem : Problem
        Items, slots and rules.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    cells : numpy.ndarray of int64, shape (M,)
        Cell 0 .. R D - 1 of every item; under `equal_samples_per_slot` cell b stands in slot ``b % D``.
    rows : int
        R.
    rng : numpy.random.BitGenerator, optional
        Source of R D raw words; without it the best place is taken.
    width : int
        Choice width w.
    sums : CellSums, optional
        The sums of `cells`, when the caller has them.

    Returns
    -------
    numpy.ndarray of int64, shape (M,), or None
        Flat cell of every item; None when the cells of a class do not fill whole rows.
    """
    sums = sums or sum_cells(problem, demand, cells, rows * problem.topology.dp)
    target = pair_targets(problem, sums, cells, rng, width)
    return None if target is None else target[cells]


def pair_targets(
    problem: Problem, sums: CellSums, cells: IntArray, rng: np.random.BitGenerator | None, width: int
) -> IntArray | None:
    """Return the flat cell that every completed cell gets, int64 (K,); see :func:`edp_aware_pair`."""
    dp, count = problem.topology.dp, sums.tokens.size
    class_of_cell = np.zeros(count, np.int64)
    class_of_cell[cells] = problem.items.row_class
    class_of_row = np.sort(class_of_cell)[::dp].copy()
    keep_slot = problem.rules.equal_samples_per_slot
    arranged = np.sort(class_of_cell.reshape(-1, dp), axis=0) if keep_slot else np.sort(class_of_cell)
    if (arranged.ravel() != np.repeat(class_of_row, dp)).any():
        return None
    table = _pairing(problem, sums, class_of_cell, class_of_row, 1 if rng is None else width)
    kernels.pair_cells(table if rng is None else table._replace(words=rng.random_raw(count)))
    return np.asarray(table.target)


def _pairing(
    problem: Problem, sums: CellSums, class_of_cell: IntArray, class_of_row: IntArray, width: int
) -> kernels.Pairing:
    """Fill the kernel's table."""
    count, shards = sums.tokens.size, problem.topology.num_shards
    largest = sums.routed.reshape(count, -1).max(axis=1, initial=0)
    block_of_place = blocks_of(problem, np.arange(count))
    blocks = class_of_row.size * shards
    return kernels.Pairing(
        routed=sums.routed,
        order=np.argsort(-largest, kind="stable"),
        class_of_cell=class_of_cell,
        block_of_place=block_of_place,
        class_of_block=np.repeat(class_of_row, shards),
        room=np.bincount(block_of_place),
        slots=problem.topology.dp,
        keep_slot=problem.rules.equal_samples_per_slot,
        words=np.zeros(count, np.uint64),
        blocks=np.zeros((blocks, *sums.routed.shape[1:]), np.int64),
        peaks=np.zeros(blocks, np.int64),
        count=np.zeros(blocks, np.int64),
        keys=np.zeros((blocks, 2), np.int64),
        taken=np.zeros(count, np.bool_),
        ranked=np.zeros(width, np.int64),
        target=np.zeros(count, np.int64),
    )


def blocks_of(problem: Problem, cells: IntArray) -> IntArray:
    """Row-shard ``r * G + g`` of flat cells, int64 of the same shape."""
    row, slot = np.divmod(cells, problem.topology.dp)
    return row * problem.topology.num_shards + problem.topology.shard_of_slot[slot]
