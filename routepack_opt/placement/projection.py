"""Demand of samples on EP ranks, and sums over samples: the casting border in front of the kernels.

Guarantees: the result type is the narrowest unsigned integer that holds every entry, whatever the input
type; memory beyond the input and the result is bounded by one 16-bit copy of the result.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.errors import InputError
from routepack_opt.placement._kernels import add_groups, project_counts

Unsigned = npt.NDArray[np.unsignedinteger[Any]]


def project(counts: Any, expert_of_slot: IntArray, ranks: int) -> Unsigned:
    """Return q [samples, layers, ranks] of `counts` [samples, layers, experts]; see `Placement.demand`."""
    table = np.asarray(counts)
    if table.ndim != 3 or table.shape[1:] != expert_of_slot.shape:
        layers, experts = expert_of_slot.shape
        raise InputError(f"shape [samples, {layers}, {experts}]", f"shape {list(table.shape)}", "counts")
    if table.dtype.kind not in "iu":
        raise InputError("integer counts", f"dtype {table.dtype}", "counts")
    if table.dtype != np.int32:
        table = table.astype(np.int64)
    ranked = np.empty(expert_of_slot.shape, dtype=np.uint32)
    np.put_along_axis(ranked, expert_of_slot, np.arange(expert_of_slot.shape[1], dtype=np.uint32), axis=1)
    ranked //= np.uint32(expert_of_slot.shape[1] // ranks)
    # Nearly every window fits 16 bits, so that is tried first; a second pass is the rare case.
    for width in (np.uint16, np.uint32, np.uint64):
        out = np.empty((*table.shape[:2], ranks), dtype=width)
        least, largest = project_counts(table, ranked, out)
        if least < 0:
            index = tuple(int(k) for k in np.argwhere(table < 0)[0])
            raise InputError(
                "counts of at least 0", f"{least} or less, first at [sample, layer, expert] {index}", "counts"
            )
        if largest <= np.iinfo(width).max:
            break
    return out.astype(np.uint8) if largest <= np.iinfo(np.uint8).max else out


def sum_by_group(table: npt.NDArray[Any], group: IntArray, count: int) -> IntArray:
    """Sum the rows of a table that belong together.

    Parameters
    ----------
    table : numpy.ndarray of int, shape (M, ...)
        Demand or counts of every item.
    group : numpy.ndarray of int64, shape (M,)
        Group of every item, from 0 to `count` - 1: its cell, or its row-shard.
    count : int
        Groups.

    Returns
    -------
    numpy.ndarray of int64, shape (count, ...)
    """
    flat = np.ascontiguousarray(table).reshape(len(table), math.prod(table.shape[1:])).view()
    flat.setflags(write=False)  # kernels are compiled anew for arrays that can be written to
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(count + 1))
    out = np.zeros((count, flat.shape[1]), np.int64)
    add_groups(flat, order, starts, out)
    return out.reshape(count, *table.shape[1:])
