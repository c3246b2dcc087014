"""The initial population: Algorithm 2 as written, and the wider pool that the planner starts from.

Guarantees: every seed keeps all rules; the certificate's packing is always a candidate, so there is a seed whenever
there is a packing; the seeds depend on the problem, the placement, the rows and `seed` alone, unless `deadline` cuts
the trials short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.problem import Problem
from routepack_opt.solvers.seeding._kernels.rectangle import Rectangle
from routepack_opt.solvers.seeding.candidates import CanonicalMap, Seed, evaluate
from routepack_opt.solvers.seeding.diversity import quality_diversity_select
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
        """The random source of one trial, the same whatever happened to the other trials."""
        return np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(SEEDING_KEY, trial)))


def build_seeds(
    problem: Problem,
    demand: npt.NDArray[Any],
    rows: int,
    *,
    packing: IntArray | None = None,
    own: IntArray | None = None,
    seed: int = 0,
    trials: int = 32,
    population: int = 8,
    window: int = 3,
    method: Literal["annealing", "paper"] = "annealing",
    deadline: Callable[[], bool] | None = None,
) -> list[Seed]:
    """Build the seeds of a layout search at a fixed number of rows.

    Parameters
    ----------
    problem : Problem
        Items, topology, units and rules.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    rows : int
        R; it must agree with `min_rows` and `row_multiple`.
    packing, own : numpy.ndarray of int64, shape (M,), optional
        Flat cells of the row certificate's packing and of the trainer's own layout; left out of the pool when they
        break a rule.
    seed : int
        Entropy of all random draws.
    trials : int
        Randomized constructions.
    population : int
        P_pop.
    window : int
        Choice width w.
    method : {"annealing", "paper"}
        "paper" is Algorithm 2 as written: exactly `population` seeds, repeated when the pool is short. "annealing"
        adds token-balanced constructions and pairings of the certificate's packing, and repeats nothing.
    deadline : callable, optional
        Tells whether the time is over; asked between constructions, never before the first seed.

    Returns
    -------
    list of Seed
        At most `population`, best first; empty only when no construction succeeds.
    """
    setting = Setting(problem, demand, rows, seed, window)
    pool, over = CanonicalMap(problem), deadline or (lambda: False)
    given = {"certificate": packing, "own": own}
    valid = {
        k: np.asarray(c, np.int64) for k, c in given.items() if c is not None and is_valid(problem, c, rows)
    }
    if method == "paper":
        initialize_pool(setting, pool, valid, trials, over)
        chosen = quality_diversity_select(problem, pool.seeds, population)
        return list(islice(cycle(chosen), population if chosen else 0))
    widen_pool(setting, pool, valid, trials, over)
    chosen = (
        pool.seeds if len(pool) <= population else quality_diversity_select(problem, pool.seeds, population)
    )
    return sorted(chosen, key=lambda s: s.score.components)


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

    Added are the given layouts with their pairings, least-loaded packings of the order and of shuffled orders (every
    second trial), and, in place of aborted trials, random pairings of the packings there are.
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
        rng, cells = setting.rng(trial), None
        if rect is not None:
            shuffled = window_shuffle(order, setting.window, rng)
            fit = trial % 2 == 1
            cells = (
                randomized_best_fit(rect, shuffled, setting.window, rng)
                if fit
                else least_loaded_in(rect, shuffled)
            )
        if cells is None and bases:
            cells = list(bases.values())[trial % len(bases)]
        if cells is not None:
            _add_random_pair(setting, pool, cells, rng)


def _rectangle(setting: Setting, valid: dict[str, IntArray]) -> Rectangle | None:
    """The rectangle to pack into; its row classes come from a known layout where first fit cannot choose them."""
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
    """Pool a trial: its cells laid by :func:`edp_aware_pair` with random draws, if the layout is valid (lines 9-12)."""
    problem, rows = setting.problem, setting.rows
    sums = sum_cells(problem, setting.demand, cells, rows * problem.topology.dp)
    target = pair_targets(problem, sums, cells, rng, setting.window)
    if target is not None and is_valid(problem, target[cells], rows):
        pool.add(evaluate(problem, sums, cells, rows, "trial", target))
