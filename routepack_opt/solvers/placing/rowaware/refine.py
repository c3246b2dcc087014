"""Refine a placement for a given packing: lower what the rows pay, not the window's aggregate.

Guarantees: the result is never worse than the placement given, in (work of the busiest shard, work of all
shards), compared exactly; the same input gives the same result unless `should_stop` cuts it short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, whole_number, whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.placement import Placement


@dataclass(frozen=True, eq=False)
class RowRefinement:
    """What :func:`refine_for_rows` returns.

    Parameters
    ----------
    placement : Placement
        The refined placement.
    before, after : ndarray of int64, shape [shards]
        Work of each shard under the placement given and under the refined one.
    swaps : int
        Exchanges of two experts done.
    layers_done : int
        Layers visited before `should_stop` said so; all of them otherwise.
    """

    placement: Placement
    before: IntArray
    after: IntArray
    swaps: int
    layers_done: int


def refine_for_rows(
    rows_load: Any,
    placement: Placement,
    *,
    shard_of_row: Any = None,
    base: Any = None,
    unit: int = 1,
    max_sweeps: int = 16,
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
    max_sweeps : int, optional
        Passes over the experts of a layer at most.
    should_stop : callable, optional
        Asked before each layer.

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
    from routepack_opt.solvers.placing.rowaware._kernels import descend_rows

    slots = placement.slot_of_expert.copy()
    work = start + unit * _peaks(loads, placement, shard, start.size)
    before, swaps, layer = work.copy(), 0, 0
    by_layer = np.ascontiguousarray(loads.transpose(1, 2, 0))
    for layer in range(placement.num_layers):
        if should_stop is not None and should_stop():
            break
        swaps += descend_rows(by_layer[layer], shard, work, unit, slots[layer], placement.ranks, max_sweeps)
    else:
        layer = placement.num_layers
    return RowRefinement(Placement(slots, placement.ranks), before, work, swaps, layer)


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
