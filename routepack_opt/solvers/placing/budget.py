"""Which layers to re-place, and how far, when moving experts is limited.

Guarantees: every choice stays within the budget of moved experts; among the options offered the sum of the
layers' peaks is the least possible, and it is reached with the fewest moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from routepack_opt.arrays import IntArray


@dataclass(frozen=True, eq=False)
class Option:
    """One way to place a layer: rank of each expert, experts moved, and load of the busiest rank."""

    rank: IntArray
    moves: int
    peak: int


def layer_options(
    loads: IntArray, home: IntArray, ranks: int, replaced: IntArray, step_by_step: bool
) -> list[Option]:
    """Return the options of a layer that no other option beats, by rising moves.

    Parameters
    ----------
    loads : ndarray of int64, shape [experts]
        Loads of the layer.
    home : ndarray of int64, shape [experts]
        Previous slots; staying there is the first option.
    ranks : int
        Ranks P.
    replaced : ndarray of int64, shape [experts]
        Slots of the full re-placement.
    step_by_step : bool
        Also offer every prefix of the swap descent that starts from `home`.
    """
    per_rank = home.size // ranks
    home_rank = home // per_rank
    offered = [home_rank, *(_descent(loads, home, ranks) if step_by_step else ()), replaced // per_rank]
    options = []
    for rank in offered:
        total = np.zeros(ranks, dtype=np.int64)
        np.add.at(total, rank, loads)
        options.append(Option(rank, int(np.count_nonzero(rank != home_rank)), int(total.max())))
    return _undominated(options)


def _descent(loads: IntArray, home: IntArray, ranks: int) -> list[IntArray]:
    """Return the ranks after each swap that lowered the peak to a new least value."""
    from routepack_opt.solvers.placing._kernels import descend

    limit = step_limit(home.size)
    swaps, peaks = np.empty((limit, 2), dtype=np.int64), np.empty(limit, dtype=np.int64)
    steps = descend(loads, falling_order(loads), home.copy(), ranks, swaps, peaks)
    rank, visited, lowest = home // (home.size // ranks), [], np.iinfo(np.int64).max
    for pair, peak in zip(swaps[:steps], peaks[:steps], strict=True):
        rank[pair] = rank[pair[::-1]]
        if peak < lowest:
            lowest = peak
            visited.append(rank.copy())
    return visited


def falling_order(loads: IntArray) -> IntArray:
    """Return the experts of each layer, the last axis, by (-load, expert)."""
    order: IntArray = np.argsort(-loads, axis=-1, kind="stable")
    return order


def step_limit(experts: int) -> int:
    """Return the swaps recorded at most in one descent; real descents take fewer than `experts`."""
    return 8 * experts + 64


def _undominated(options: list[Option]) -> list[Option]:
    kept: list[Option] = []
    for option in sorted(options, key=lambda o: (o.moves, o.peak)):
        if not kept or option.peak < kept[-1].peak:
            kept.append(option)
    return kept


def choose_options(layers: Sequence[list[Option]], budget: int) -> list[Option]:
    """Return one option per layer with the least sum of peaks, then the fewest moves, within `budget` moves.

    The first option of every layer must move nothing. Solved exactly, as a knapsack over the layers.
    """
    budget = min(budget, sum(options[-1].moves for options in layers))
    value = np.zeros(budget + 1, dtype=np.int64)
    chosen = np.zeros((len(layers), budget + 1), dtype=np.int32)
    for layer, options in enumerate(layers):
        best = np.full(budget + 1, np.iinfo(np.int64).max, dtype=np.int64)
        for k, option in enumerate(options):
            reach = value[: max(budget + 1 - option.moves, 0)] + option.peak
            target = best[option.moves :]
            better = reach < target
            target[better] = reach[better]
            chosen[layer, option.moves :][better] = k
        value = best
    left = int(np.argmax(value == value[-1]))
    picked = []
    for layer in range(len(layers) - 1, -1, -1):
        option = layers[layer][chosen[layer, left]]
        picked.append(option)
        left -= option.moves
    return picked[::-1]
