"""Candidates of the initial population: evaluated layouts, and the pool that keeps one per canonical layout.

Guarantees: a :class:`Seed` keeps every rule and its score is the exact score of its layout; the pool holds
one seed per canonical layout, the best.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, frozen
from routepack_opt.problem import Problem
from routepack_opt.scoring import Score
from routepack_opt.solvers.seeding._kernels import pairing as kernels
from routepack_opt.solvers.seeding._kernels.distance import canonical_labels
from routepack_opt.solvers.seeding.pairing import CellSums, blocks_of, sum_cells
from routepack_opt.solvers.seeding.rectangle import read_only


@dataclass(frozen=True, eq=False)
class Seed:
    """A feasible member of the initial population.

    Parameters
    ----------
    cell_of_item : numpy.ndarray of int64, shape (M,)
        Flat cell ``r * D + d`` of every item.
    score : Score
        Its exact score.
    origin : str
        How it was made, for the trace: ``certificate``, ``own``, ``length``, ``balanced``, ``trial``, each
        with ``+pair`` when :func:`edp_aware_pair` laid its cells.
    features : numpy.ndarray of int64, shape (R, F)
        Row profile for the sketch: tokens, squared tokens, and per shard and layer the busiest rank's load.
    """

    cell_of_item: IntArray
    score: Score
    origin: str
    features: IntArray = field(repr=False)


def evaluate(
    problem: Problem, sums: CellSums, cells: IntArray, rows: int, origin: str, target: IntArray | None = None
) -> Seed:
    """Score completed cells exactly (Eqs. 11-15).

    Parameters
    ----------
    problem : Problem
        Units and topology.
    sums : CellSums
        Sums of the cells.
    cells : numpy.ndarray of int64, shape (M,)
        Cell of every item.
    rows : int
        R.
    origin : str
        See :class:`Seed`.
    target : numpy.ndarray of int64, shape (K,), optional
        Flat cell that each cell gets; its own number when left out.
    """
    if target is None:
        target = np.arange(sums.tokens.size)
    tokens, squares = np.empty_like(sums.tokens), np.empty_like(sums.squares)
    tokens[target], squares[target] = sums.tokens, sums.squares
    dp, shards = problem.topology.dp, problem.topology.num_shards
    attention = np.zeros((rows, shards), np.int64)
    for linear, quadratic in zip(problem.linear, problem.quadratic, strict=True):
        work = (linear * tokens + quadratic * squares).reshape(rows, dp)
        for g, slots in enumerate(problem.topology.shards):
            attention[:, g] += work[:, list(slots)].max(axis=1)
    peaks = _peaks(problem, sums.routed, target, rows)
    joint = attention + problem.expert_unit * peaks.sum(axis=2)
    by_shard = joint.sum(axis=0)
    score = Score(int(by_shard.max()), int(by_shard.sum()), int(joint.max()), problem.denominator)
    moments = [part.reshape(rows, dp).sum(axis=1)[:, None] for part in (tokens, squares)]
    features = np.concatenate([*moments, peaks.reshape(rows, -1)], axis=1)
    return Seed(frozen(target[cells]), score, origin, frozen(features))


def _peaks(problem: Problem, routed: IntArray, target: IntArray, rows: int) -> IntArray:
    """Busiest rank's load of every row, shard and layer, int64 (R, G, L)."""
    shards = problem.topology.num_shards
    blocks = np.zeros((rows * shards, *routed.shape[1:]), np.int64)
    kernels.add_cells(routed, blocks_of(problem, target), blocks)
    peaks = np.zeros(blocks.shape[:2], np.int64)
    kernels.layer_peaks(blocks, peaks)
    return peaks.reshape(rows, shards, -1)


def score_seed(
    problem: Problem, demand: npt.NDArray[Any], cell_of_item: IntArray, rows: int, origin: str
) -> Seed:
    """Evaluate a layout given by the flat cell of every item, int64 (M,)."""
    cells = np.asarray(cell_of_item, np.int64)
    sums = sum_cells(problem, demand, cells, rows * problem.topology.dp)
    return evaluate(problem, sums, cells, rows, origin)


def canonicalize(problem: Problem, cell_of_item: IntArray) -> bytes:
    """Key of a layout that ignores what does not matter (Canonicalize, Algorithm 2 line 11).

    Two layouts have equal keys exactly when they differ by the order of items in a cell, of cells inside the
    shards of a row, and of rows. Under `equal_samples_per_slot` the order of cells matters. The key is a
    digest of three labels per item: the smallest item of its cell, the smallest of its row, and its shard (or
    slot).

    Parameters
    ----------
    problem : Problem
        Shards and rules.
    cell_of_item : numpy.ndarray of int64, shape (M,)
        Flat cell of every item.
    """
    fixed = problem.rules.equal_samples_per_slot
    group = frozen(np.arange(problem.topology.dp)) if fixed else problem.topology.shard_of_slot
    labels = np.empty((3, cell_of_item.size), np.int32)
    first = np.full((2, int(cell_of_item.max()) + 1), -1, np.int32)
    canonical_labels(read_only(cell_of_item), group, first, labels)
    return hashlib.blake2b(labels.astype("<i4").tobytes(), digest_size=16).digest()


class CanonicalMap:
    """The pool of Algorithm 2: the best seed of every canonical layout, in the order of first arrival."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._best: dict[bytes, Seed] = {}

    def add(self, seed: Seed) -> None:
        """Keep `seed` unless a seed of the same canonical layout is at least as good (line 12)."""
        key = canonicalize(self._problem, seed.cell_of_item)
        known = self._best.get(key)
        if known is None or seed.score < known.score:
            self._best[key] = seed

    @property
    def seeds(self) -> list[Seed]:
        """All seeds of the pool."""
        return list(self._best.values())

    def __len__(self) -> int:
        return len(self._best)
