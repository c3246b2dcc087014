"""Certified lower bounds on every component of the score, at a fixed number of rows.

Guarantees: no layout with that many rows scores below the bound in any component (Eqs. 3-4 and what
integrality, non-empty cells and whole items add); all arithmetic is exact. A bound under a placement holds
for layouts under that placement, a bound over all placements for every placement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, whole_number
from routepack_opt.bounds.placement import rank_peaks
from routepack_opt.bounds.terms import fullest_bin, largest_share, sum_of_maxima, total_straggler
from routepack_opt.errors import InputError
from routepack_opt.problem import Problem

_FEW = 8  # items per cell up to which the peaks of single items can matter, and are worth their cost
_BLOCK = 256  # items whose demand is scanned at once: bounds the scratch memory


@dataclass(frozen=True)
class ScoreBound:
    """Lower bounds on (max_g U_g, sum_g U_g, max_{r,g} J[r,g]), each for itself.

    Parameters
    ----------
    primary, total, row_peak : int
        In the units of :class:`~routepack_opt.scoring.Score`: C^2 S times the cost.
    denominator : int
        C^2 S of the problem.
    """

    primary: int
    total: int
    row_peak: int
    denominator: int

    @property
    def components(self) -> tuple[int, int, int]:
        """The three integers."""
        return self.primary, self.total, self.row_peak


def placement_bound(problem: Problem, rows: int, demand: npt.NDArray[Any]) -> ScoreBound:
    """Bound the score of every layout of `rows` rows under one placement.

    Parameters
    ----------
    problem : Problem
        Items, stages and topology.
    rows : int
        R.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.

    Returns
    -------
    ScoreBound

    Raises
    ------
    InputError
        When the demand has another shape, or there are fewer items than cells.
    """
    from routepack_opt.placement.projection import sum_by_group

    _check(problem, rows, demand, "demand")
    loads = sum_by_group(demand, np.zeros(len(demand), np.int64), 1)[0]
    peaks = loads.max(axis=1) if loads.size else np.zeros(loads.shape[0], np.int64)
    return _combine(problem, rows, peaks, demand)


def any_placement_bound(problem: Problem, rows: int, peaks: IntArray | None = None) -> ScoreBound:
    """Bound the score of every layout of `rows` rows under every placement.

    Parameters
    ----------
    problem, rows
        As for :func:`placement_bound`, and so are the errors.
    peaks : numpy.ndarray of int64, shape (L,), optional
        What :func:`~routepack_opt.bounds.placement.rank_peaks` says of the window's loads, from a caller who
        has it (a placement carries it as its bound).
    """
    _check(problem, rows, problem.item_counts, "counts")
    if peaks is None:
        peaks = rank_peaks(problem.loads, problem.topology.ep)
    return _combine(problem, rows, peaks, problem.item_counts)


def _check(problem: Problem, rows: int, table: npt.NDArray[Any], where: str) -> None:
    whole_number(rows, "rows", low=1)
    items, cells = problem.items.size, rows * problem.topology.dp
    if items < cells:
        found = f"{items} items for {rows} rows x {problem.topology.dp} slots"
        raise InputError("at least one item per cell", found, "rows")
    if table.ndim != 3 or table.shape[:2] != (items, problem.window.num_layers):
        found = f"shape {table.shape}"
        raise InputError(f"shape ({items}, {problem.window.num_layers}, ...)", found, where)


def _combine(problem: Problem, rows: int, peaks: IntArray, table: npt.NDArray[Any]) -> ScoreBound:
    """Put the terms together; `table` gives, over its last axis, loads that one rank carries."""
    shards = [len(part) for part in problem.topology.shards]
    sizes = shards * rows
    work, assigned = _stage_work(problem), _assignments(table)
    item_peaks = _item_peaks(problem, table, assigned, few=problem.items.size <= _FEW * sum(sizes))
    cost = work.sum(axis=0) + item_peaks.sum(axis=1) * problem.expert_unit
    average = assigned * (table.shape[1] * problem.expert_unit) // problem.topology.ep  # ranks evenly used
    shared = work.sum(axis=0) // max(shards) + average  # slots too: least an item adds to its row-shard
    straggler = _stragglers(problem, work, sizes)
    layers = sum(max(int(p), sum_of_maxima(v, sizes)) for p, v in zip(peaks, item_peaks.T, strict=True))
    expert = layers * problem.expert_unit

    total = max(sum(straggler) + expert, sum_of_maxima(cost, sizes))
    primary = max(
        -(-total // len(shards)),
        largest_share(int(work.sum()), expert, shards),
        sum_of_maxima(cost, [min(shards)] * rows),  # the shard of the costliest item
        fullest_bin(shared, len(shards)),
    )
    total = max(total, primary)
    row_peak = max(
        -(-primary // rows),
        -(-total // len(sizes)),
        int(cost.max()),
        fullest_bin(shared, len(sizes)),
        fullest_bin(work.sum(axis=0) + average, sum(sizes)),  # of one cell
    )
    step = score_step(problem)
    primary, total, row_peak = (-(-value // step) * step for value in (primary, total, row_peak))
    return ScoreBound(primary, total, row_peak, problem.denominator)


def score_step(problem: Problem) -> int:
    """Greatest common divisor of all works, scaled: every component of every score is a multiple of it."""
    parts = np.gcd.reduce(_stage_work(problem), axis=1).tolist()
    return math.gcd(*parts, problem.expert_unit if problem.window.num_layers else 0) or 1


def _stage_work(problem: Problem) -> IntArray:
    """Scaled attention work of every item in every stage, int64 (stages, M)."""
    items = problem.items
    work = problem.linear[:, None] * items.tokens + problem.quadratic[:, None] * items.squares
    return np.asarray(work, np.int64)


def _stragglers(problem: Problem, work: IntArray, sizes: list[int]) -> list[int]:
    """Sum over row-shards of the busiest cell, one bound per stage."""
    items, cap = problem.items, problem.cell_cap
    normal = items.tokens[~items.alone]
    longest = int(normal.max()) if normal.size else 0  # squares in a cell: at most cap * longest
    result = []
    for linear, quadratic, stage in zip(problem.linear, problem.quadratic, work, strict=True):
        cell = int(linear) * cap + int(quadratic) * cap * longest
        bound = total_straggler(stage, items.alone, cell, sizes)
        step = int(np.gcd.reduce(stage)) or 1
        result.append(-(-bound // step) * step)
    return result


def _item_peaks(problem: Problem, table: npt.NDArray[Any], assigned: IntArray, *, few: bool) -> IntArray:
    """Load that every item alone puts on its busiest rank, int64 (M, L); with many items only the average."""
    result = -(-assigned // problem.topology.ep)
    result = np.repeat(result[:, None], table.shape[1], axis=1).astype(np.int64)
    if few and table.size:
        for start in range(0, len(result), _BLOCK):
            part = slice(start, start + _BLOCK)
            np.maximum(result[part], table[part].max(axis=2), out=result[part])
    return result


def _assignments(table: npt.NDArray[Any]) -> IntArray:
    """Count the assignments of every item in one layer (all layers of a window sum alike), int64 (M,)."""
    if table.size == 0:
        return np.zeros(table.shape[0], np.int64)
    return np.asarray(table[:, 0].sum(axis=1, dtype=np.int64))
