"""Counting arguments that the score bounds are made of.

Guarantees: every function returns a value that no assignment of the items to the groups can go below;
arithmetic is exact. Proof sketches stand in the docs page on bounds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from routepack_opt.arrays import BoolArray, IntArray


def sum_of_maxima(values: IntArray, sizes: Sequence[int]) -> int:
    """Least sum, over non-empty groups, of the largest value in each group.

    Parameters
    ----------
    values : numpy.ndarray of int64, shape (M,)
        At least 0.
    sizes : sequence of int
        Fewest items of every group; together at most M.

    Returns
    -------
    int
        With the values ascending and the sizes ascending: the values at the running sums of the sizes, the
        last group taking all that is left.
    """
    ends = np.cumsum(np.sort(np.asarray(sizes, np.int64)))
    ends[-1] = values.size
    return int(np.sort(values)[ends - 1].sum())


def fullest_bin(values: IntArray, bins: int) -> int:
    """Least possible load of the fullest of `bins` bins, by the pigeonhole principle.

    Parameters
    ----------
    values : numpy.ndarray of int64, shape (M,)
        At least 0.
    bins : int
        Number of bins.

    Returns
    -------
    int
        Largest of the average (rounded up) and, for every k, the k smallest of the ``(k - 1) * bins + 1``
        largest values: some bin holds k of those.
    """
    if values.size == 0:
        return 0
    ordered = np.sort(values)[::-1]
    running = np.concatenate([[0], np.cumsum(ordered)])
    last = np.arange(0, values.size, bins) + 1
    k = np.arange(1, last.size + 1)
    return max(-(-int(running[-1]) // bins), int((running[last] - running[last - k]).max()))


def total_straggler(work: IntArray, alone: BoolArray, normal_cell: int, sizes: Sequence[int]) -> int:
    """Least sum over row-shards of the busiest cell's work, for one attention stage.

    Parameters
    ----------
    work : numpy.ndarray of int64, shape (M,)
        Work of every item.
    alone : numpy.ndarray of bool, shape (M,)
        Items that fill a cell of their own and are exempt from the cap.
    normal_cell : int
        Most work that a cell under the cap can hold.
    sizes : sequence of int
        Cells of every row-shard.
    """
    width = max(sizes)
    idle = _idle_work(np.sort(work[alone])[::-1], normal_cell, width) if min(sizes) == width else 0
    return max(-(-(int(work.sum()) + idle) // width), sum_of_maxima(work, sizes))


def _idle_work(alone: IntArray, normal_cell: int, width: int) -> int:
    """Work that fits nowhere beside oversize items: the cells next to one cannot be as full as it is."""
    if alone.size == 0:
        return 0
    leaders = alone[::width]
    beside = leaders.size * width - alone.size
    return max(0, width * int(leaders.sum()) - int(alone.sum()) - beside * normal_cell)


def largest_share(volume: int, floor: int, sizes: Sequence[int]) -> int:
    """Least possible cost of the costliest shard.

    Parameters
    ----------
    volume : int
        Work that a shard of n slots does at n units per step: ``sum_g n_g A_g >= volume``.
    floor : int
        Work that is independent of the slots: ``sum_g E_g >= floor``.
    sizes : sequence of int
        Slots of every shard.

    Returns
    -------
    int
        Largest, over weights ``max(a, n_g)`` with a some shard's size, of the weighted mean of the costs.
    """
    return max(-(-(volume + a * floor) // sum(max(a, n) for n in sizes)) for a in set(sizes))
