"""The initial population: seeds for a layout search at a fixed number of rows.

Guarantees: every seed keeps all rules and carries its exact score; the certificate's packing is always a
candidate, so there is a seed whenever there is a packing; the seeds depend on the problem, the placement, the
rows and `seed` alone, unless `deadline` cuts the trials short.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.problem import Problem
from routepack_opt.solvers.seeding.candidates import CanonicalMap, Seed
from routepack_opt.solvers.seeding.diversity import quality_diversity_select
from routepack_opt.solvers.seeding.pools import Setting, initialize_pool, widen_pool
from routepack_opt.solvers.seeding.rectangle import is_valid


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
        Flat cells of the row certificate's packing and of the trainer's own layout; left out of the pool when
        they break a rule.
    seed : int
        Entropy of all random draws.
    trials : int
        Randomized constructions.
    population : int
        P_pop.
    window : int
        Choice width w.
    method : {"annealing", "paper"}
        "paper" is Algorithm 2 as written: exactly `population` seeds, repeated when the pool is short.
        "annealing" adds token-balanced constructions and pairings of the certificate's packing, and repeats
        nothing.
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
    cells = {name: np.asarray(c, np.int64) for name, c in given.items() if c is not None}
    valid = {name: c for name, c in cells.items() if is_valid(problem, c, rows)}
    if method == "paper":
        initialize_pool(setting, pool, valid, trials, over)
        chosen = quality_diversity_select(problem, pool.seeds, population)
        return list(islice(cycle(chosen), population if chosen else 0))
    widen_pool(setting, pool, valid, trials, over)
    chosen = (
        pool.seeds if len(pool) <= population else quality_diversity_select(problem, pool.seeds, population)
    )
    return sorted(chosen, key=lambda s: s.score.components)
