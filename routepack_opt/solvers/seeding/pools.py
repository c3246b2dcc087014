"""The pools of candidates: Algorithm 2's, and a wider one.

Guarantees: every seed of a pool keeps all rules; a trial draws the same numbers whatever happened to the
others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.problem import Problem
from routepack_opt.solvers.seeding._kernels.rectangle import Rectangle
from routepack_opt.solvers.seeding.candidates import CanonicalMap, evaluate
from routepack_opt.solvers.seeding.packing import (
    first_fit_decreasing,
    least_loaded_in,
    randomized_best_fit,
    window_shuffle,
)
from routepack_opt.solvers.seeding.pairing import pair_targets, sum_cells
from routepack_opt.solvers.seeding.rectangle import by_length, is_valid, rectangle_of, row_classes_of

SEEDING_KEY = 0x5EED  # spawn key: seeding draws nothing that another part of a plan draws


@dataclass(frozen=True)
class Setting:
    """What all constructions share.

    Parameters
    ----------
    problem : Problem
        Items, topology, units and rules.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    rows : int
        R.
    seed : int
        Entropy of all random draws.
    window : int
        Choice width w.
    """

    problem: Problem
    demand: npt.NDArray[Any]
    rows: int
    seed: int
    window: int

    def rng(self, trial: int) -> np.random.BitGenerator:
        """Return the random source of one trial, the same whatever happened to the other trials."""
        return np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(SEEDING_KEY, trial)))


def initialize_pool(
    setting: Setting, pool: CanonicalMap, valid: dict[str, IntArray], trials: int, over: Callable[[], bool]
) -> None:
    """Fill the pool as Algorithm 2 does, lines 1-12.

    Where first-fit decreasing needs more cells, the certificate's packing takes its place.
    """
    rect, order = _rectangle(setting, valid), by_length(setting.problem)
    if "own" in valid:
        _add(setting, pool, valid["own"], "own")
    length = None if rect is None else first_fit_decreasing(rect, order)
    if length is not None:
        _add(setting, pool, length, "length", pair=True)
    elif "certificate" in valid:
        _add(setting, pool, valid["certificate"], "certificate", pair=True)
    for trial in range(1, trials + 1):
        if rect is None or over():
            return
        rng = setting.rng(trial)
        shuffled = window_shuffle(order, setting.window, rng)
        cells = randomized_best_fit(rect, shuffled, setting.window, rng)
        if cells is not None:
            _add_random_pair(setting, pool, cells, rng)


def widen_pool(
    setting: Setting, pool: CanonicalMap, valid: dict[str, IntArray], trials: int, over: Callable[[], bool]
) -> None:
    """Fill the pool with what Algorithm 2 builds and more.

    Added are the given layouts with their pairings, least-loaded packings of the order and of shuffled orders
    (every second trial), and, in place of aborted trials, random pairings of the packings there are.
    """
    rect, order = _rectangle(setting, valid), by_length(setting.problem)
    bases = dict(valid)
    for origin, cells in valid.items():
        _add(setting, pool, cells, origin, pair=True)
    for origin, construct in (("balanced", least_loaded_in), ("length", first_fit_decreasing)):
        if len(pool) and over():
            return
        built = None if rect is None else construct(rect, order)
        if built is not None:
            bases[origin] = built
            _add(setting, pool, built, origin, pair=True)
    for trial in range(1, trials + 1):
        if over():
            return
        rng = setting.rng(trial)
        trial_cells = None if rect is None else _trial_cells(setting, rect, order, trial, rng)
        if trial_cells is None and bases:
            trial_cells = list(bases.values())[trial % len(bases)]
        if trial_cells is not None:
            _add_random_pair(setting, pool, trial_cells, rng)


def _trial_cells(
    setting: Setting, rect: Rectangle, order: IntArray, trial: int, rng: np.random.BitGenerator
) -> IntArray | None:
    """Pack a shuffled order: by randomized best fit in odd trials, least loaded in even ones."""
    shuffled = window_shuffle(order, setting.window, rng)
    if trial % 2:
        return randomized_best_fit(rect, shuffled, setting.window, rng)
    return least_loaded_in(rect, shuffled)


def _rectangle(setting: Setting, valid: dict[str, IntArray]) -> Rectangle | None:
    """Return the rectangle to pack into; first fit or a known layout chooses row classes."""
    rect = rectangle_of(setting.problem, setting.rows)
    for cells in valid.values():
        if rect is None:
            classes = row_classes_of(setting.problem, cells, setting.rows)
            rect = rectangle_of(setting.problem, setting.rows, classes)
    return rect


def _add(setting: Setting, pool: CanonicalMap, cells: IntArray, origin: str, pair: bool = False) -> None:
    """Pool a packing as it stands and, with `pair`, its cells laid by :func:`edp_aware_pair`."""
    problem, rows = setting.problem, setting.rows
    sums = sum_cells(problem, setting.demand, cells, rows * problem.topology.dp)
    pool.add(evaluate(problem, sums, cells, rows, origin))
    target = pair_targets(problem, sums, cells, None, 1) if pair else None
    if target is not None:
        pool.add(evaluate(problem, sums, cells, rows, f"{origin}+pair", target))


def _add_random_pair(
    setting: Setting, pool: CanonicalMap, cells: IntArray, rng: np.random.BitGenerator
) -> None:
    """Pool a trial, its cells laid by :func:`edp_aware_pair` with random draws, if valid (lines 9-12)."""
    problem, rows = setting.problem, setting.rows
    sums = sum_cells(problem, setting.demand, cells, rows * problem.topology.dp)
    target = pair_targets(problem, sums, cells, rng, setting.window)
    if target is not None and is_valid(problem, target[cells], rows):
        pool.add(evaluate(problem, sums, cells, rows, "trial", target))
