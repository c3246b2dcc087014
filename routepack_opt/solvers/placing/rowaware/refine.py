"""Refine a placement for a given packing: lower what the rows pay, not the window's aggregate.

Guarantees: the result is never worse than the placement given, in (work of the busiest shard, work of all
shards), compared exactly; the same input gives the same result unless `should_stop` cuts it short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, whole_number, whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.placement import Placement
from routepack_opt.solvers.placing.rowaware.layer import LayerSearch


@dataclass(frozen=True, eq=False)
class RowRefinement:
    """What :func:`refine_for_rows` returns.

    Parameters
    ----------
    placement : Placement
        The refined placement.
    before, after : ndarray of int64, shape [shards]
        Work of each shard under the placement given and under the refined one.
    moves : int
        Experts whose rank differs from that in the placement given.
    layers_done : int
        Layers finished before `should_stop` said so; all that were asked for otherwise.
    """

    placement: Placement
    before: IntArray
    after: IntArray
    moves: int
    layers_done: int


def refine_for_rows(
    rows_load: Any,
    placement: Placement,
    *,
    shard_of_row: Any = None,
    base: Any = None,
    unit: int = 1,
    seed: int = 0,
    moves: int = 100_000,
    max_sweeps: int = 16,
    layers: Iterable[int] | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> RowRefinement:
    """Swap experts, layer by layer, to lower the sum over rows of the busiest rank.

    Parameters
    ----------
    rows_load : array_like of int, shape [B, layers, experts]
        Expert loads of each row of each shard under the packing, B = rows * shards, in any order.
    placement : Placement
        The start.
    shard_of_row : array_like of int, shape [B], optional
        Shard g of each entry of `rows_load`; all 0 when left out, which lowers the plain sum.
    base : array_like of int, shape [shards], optional
        Work of each shard that no placement changes (attention), in the unit of the score; 0 when left out.
    unit : int, optional
        Work of one routed assignment on the busiest rank, in the same unit.
    seed : int, optional
        Of the random exchanges.
    moves : int, optional
        Exchanges tried per layer by annealing; 0 leaves the descents.
    max_sweeps : int, optional
        Passes of a descent over the experts of a layer at most; one precedes and one follows the annealing.
    layers : iterable of int, optional
        Layers to refine; all when left out.
    should_stop : callable, optional
        Asked many times per layer. The best so far counts.

    Returns
    -------
    RowRefinement
        Work of shard g is base[g] + unit * sum over its rows and all layers of max_p W (Eqs. 13-15).

    Raises
    ------
    InputError
        Shapes do not fit, or loads are negative.
    """
    loads, shard, start = _check(rows_load, shard_of_row, base)
    unit, max_sweeps = whole_number(unit, "unit"), whole_number(max_sweeps, "max_sweeps")
    seed, moves = whole_number(seed, "seed"), whole_number(moves, "moves")
    work = start + unit * _peaks(loads, placement, shard, start.size)
    before, slots = work.copy(), placement.slot_of_expert.copy()
    search = LayerSearch(shard, work, unit, placement.ranks, moves, max_sweeps, should_stop or _never)
    by_layer = np.ascontiguousarray(loads.transpose(1, 2, 0))
    done = 0
    for layer in range(len(slots)) if layers is None else layers:
        if not search.run(by_layer[layer], slots[layer], np.random.SeedSequence(seed, spawn_key=(layer,))):
            break
        done += 1
    refined = Placement(slots, placement.ranks)
    return RowRefinement(refined, before, work, refined.moves_from(placement), done)


def _never() -> bool:
    return False


def _peaks(loads: IntArray, placement: Placement, shard: IntArray, shards: int) -> IntArray:
    busiest = placement.demand(loads).max(axis=2, initial=0).astype(np.int64).sum(axis=1)
    summed = np.zeros(shards, dtype=np.int64)
    np.add.at(summed, shard, busiest)
    return summed


def _check(rows_load: Any, shard_of_row: Any, base: Any) -> tuple[IntArray, IntArray, IntArray]:
    loads: IntArray = whole_numbers(rows_load, "rows_load", shape=(None, None, None))
    rows = loads.shape[0]
    shard: IntArray = np.zeros(rows, dtype=np.int64)
    if shard_of_row is not None:
        shard = whole_numbers(shard_of_row, "shard_of_row", shape=(rows,))
    shards = int(shard.max(initial=0)) + 1
    start: IntArray = np.zeros(shards, dtype=np.int64)
    if base is not None:
        start = whole_numbers(base, "base", shape=(None,))
    if start.size < shards:
        raise InputError(f"{shards} shards as in shard_of_row", f"{start.size}", "base")
    return loads, shard, start
