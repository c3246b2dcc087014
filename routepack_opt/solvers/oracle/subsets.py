"""The lexicographic optimum of a small problem, by dynamic programming over subsets.

Guarantees: exact for at most two shards; whatever it does not cover is refused by name. Time grows like
3^M per row: M = 16 in a fraction of a second, 20 in tens of seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import Score
from routepack_opt.solvers.oracle import _kernels as kernels

_MOST_ITEMS = 20
_IMPOSSIBLE = int(kernels.IMPOSSIBLE)


@dataclass(frozen=True)
class OracleResult:
    """An optimum, or the proof that there is no layout.

    Parameters
    ----------
    score : Score or None
        The lexicographic optimum; None when no layout obeys the rules.
    layout : Layout or None
        A layout that has it.
    """

    score: Score | None
    layout: Layout | None


@dataclass(frozen=True)
class _Table:
    """Best rows of one shard width: per number of rows, (sum, largest) and the first row of every subset."""

    cost: IntArray
    sums: list[IntArray]
    peaks: list[IntArray]
    choice: list[npt.NDArray[np.int32]]


def refusal(problem: Problem) -> str | None:
    """Say why the oracle does not cover a problem, or None when it does."""
    widths = {len(part) for part in problem.topology.shards}
    if problem.items.size > _MOST_ITEMS:
        return f"{problem.items.size} items; at most {_MOST_ITEMS} are enumerated"
    if problem.topology.num_shards > 2:
        return f"{problem.topology.num_shards} EDP shards; at most 2"
    if max(widths) > 2 and len(problem.stages) > 1:
        return "more than two slots in a shard with more than one attention stage"
    if problem.rules.equal_samples_per_slot and problem.topology.dp > 1:
        return "rule equal_samples_per_slot, which ties all rows together"
    if problem.rules.row_class is not None and problem.topology.num_shards > 1:
        return "rule row_class with two EDP shards, which ties the shards together"
    return None


def solve_by_subsets(problem: Problem, placement: Placement, rows: int) -> OracleResult:
    """Find the lexicographic optimum of a small problem.

    Parameters
    ----------
    problem : Problem
        Within the limits of :func:`refusal`.
    placement : Placement
        Fixed.
    rows : int
        R.

    Returns
    -------
    OracleResult

    Raises
    ------
    InputError
        When the problem is outside the limits, naming the reason.
    """
    reason = refusal(problem)
    if reason is not None:
        raise InputError("a problem that the subset oracle covers", reason, "problem", "Use a solver backend")
    rules = problem.rules
    if rows < rules.min_rows or rows % rules.row_multiple or rows * problem.topology.dp > problem.items.size:
        return OracleResult(None, None)
    cells = _cells(problem)
    work = _work(problem)
    peaks = np.zeros(cells.size, np.int64)
    kernels.expert_peaks(placement.demand(problem.item_counts).astype(np.int64), peaks)
    widths = [len(part) for part in problem.topology.shards]
    tables = {n: _table(problem, n, rows, cells, work, peaks) for n in set(widths)}
    masks, score = _shards([tables[n] for n in widths], rows, problem.denominator)
    if score is None:
        return OracleResult(None, None)
    cell_of_item = np.zeros(problem.items.size, np.int64)
    for part, mask in zip(problem.topology.shards, masks, strict=True):
        for r, row in enumerate(_rows(tables[len(part)], mask, rows)):
            for d, cell in zip(part, _split(row, len(part), cells, work), strict=True):
                cell_of_item[_members(cell)] = r * problem.topology.dp + d
    return OracleResult(score, Layout.from_items(problem, cell_of_item, rows))


def _members(mask: int) -> list[int]:
    return [m for m in range(mask.bit_length()) if mask >> m & 1]


def _sums(values: IntArray) -> IntArray:
    out = np.zeros(1 << values.size, np.int64)
    kernels.subset_sums(np.ascontiguousarray(values, np.int64), out)
    return out


def _work(problem: Problem) -> IntArray:
    """Attention work of every subset in one cell, int64 (stages, 2^M)."""
    items = problem.items
    work = problem.linear[:, None] * items.tokens + problem.quadratic[:, None] * items.squares
    return np.array([_sums(row) for row in work], np.int64).reshape(len(work), 1 << items.size)


def _cells(problem: Problem) -> npt.NDArray[np.bool_]:
    """Whether every subset may be one cell, bool (2^M,)."""
    items = problem.items
    valid = _sums(items.tokens) <= problem.cell_cap
    if problem.rules.max_samples_per_cell is not None:
        valid &= _sums(items.samples) <= problem.rules.max_samples_per_cell
    for m in np.flatnonzero(items.alone):
        valid[1 << int(m)] = True
    valid[0] = False
    return valid


def _one_class(problem: Problem) -> npt.NDArray[np.bool_]:
    """Whether every subset is of one row class, bool (2^M,)."""
    classes = problem.items.row_class
    present = sum((_sums((classes == c).astype(np.int64)) > 0).astype(np.int64) for c in np.unique(classes))
    return np.asarray(present) <= 1


def _levels(width: int, cells: npt.NDArray[np.bool_], work: IntArray) -> list[IntArray]:
    """Attention cost of every subset split into 1 .. `width` cells."""
    single = np.where(cells, work.sum(axis=0), _IMPOSSIBLE)
    levels = [np.asarray(single, np.int64)]
    if width == 2:
        pairs = np.zeros_like(levels[0])
        kernels.all_pairs(work, cells, pairs)
        return [*levels, pairs]
    for _ in range(1, width):  # at most one stage here
        out = np.zeros_like(levels[0])
        kernels.all_next_cells(work.sum(axis=0), cells, levels[-1], out)
        levels.append(out)
    return levels


def _table(
    problem: Problem, width: int, rows: int, cells: npt.NDArray[np.bool_], work: IntArray, peaks: IntArray
) -> _Table:
    """Best rows of every subset, for shards of `width` slots."""
    attention = _levels(width, cells, work)[-1]
    cost = np.where(attention < _IMPOSSIBLE, attention + problem.expert_unit * peaks, _IMPOSSIBLE)
    if problem.rules.row_class is not None:
        cost[~_one_class(problem)] = _IMPOSSIBLE
    table = _Table(cost, [cost], [cost], [np.arange(cost.size, dtype=np.int32)])
    for _ in range(1, rows):
        sums, largest = np.zeros_like(cost), np.zeros_like(cost)
        choice = np.zeros(cost.size, np.int32)
        kernels.add_row(cost, table.sums[-1], table.peaks[-1], sums, largest, choice)
        table.sums.append(sums)
        table.peaks.append(largest)
        table.choice.append(choice)
    return table


def _shards(tables: list[_Table], rows: int, denominator: int) -> tuple[list[int], Score | None]:
    """Items of every shard in the best division, and its score."""
    full = tables[0].cost.size - 1
    if len(tables) == 1:
        value, peak = int(tables[0].sums[rows - 1][full]), int(tables[0].peaks[rows - 1][full])
        found = Score(value, value, peak, denominator) if value < _IMPOSSIBLE else None
        return [full], found
    first, second = (table.sums[rows - 1] for table in tables)
    other = second[::-1]  # the complement of mask k is full - k
    possible = np.flatnonzero((first < _IMPOSSIBLE) & (other < _IMPOSSIBLE))
    if possible.size == 0:
        return [], None
    a, b = first[possible], other[possible]
    largest = np.maximum(tables[0].peaks[rows - 1], tables[1].peaks[rows - 1][::-1])[possible]
    best = np.lexsort((largest, a + b, np.maximum(a, b)))[0]
    mask = int(possible[best])
    score = Score(int(max(a[best], b[best])), int(a[best] + b[best]), int(largest[best]), denominator)
    return [mask, full - mask], score


def _rows(table: _Table, mask: int, rows: int) -> list[int]:
    """Row masks of one shard."""
    result = []
    for r in range(rows, 0, -1):
        result.append(int(table.choice[r - 1][mask]))
        mask ^= result[-1]
    return result


def _split(row: int, width: int, cells: npt.NDArray[np.bool_], work: IntArray) -> list[int]:
    """Cell masks of one row-shard."""
    if width == 1:
        return [row]
    if width == 2:
        part = int(kernels.best_pair(row, work, cells)[1])
        return [row ^ part, part]
    levels, result, single = _levels(width, cells, work), [], work.sum(axis=0)
    for n in range(width - 1, 0, -1):
        result.append(int(kernels.best_next_cell(row, single, cells, levels[n - 1])[1]))
        row ^= result[-1]
    return [*result, row]
