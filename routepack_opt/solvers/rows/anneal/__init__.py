"""Annealing into a fixed number of cells: it packs where first fit and dives fail.

Guarantees: a returned packing obeys the capacity, the sample limit and, for slots, the equal counts, the row
classes and that no cell is empty; seeds and proposals decide the answer, never the clock.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.solvers.rows.heuristics import NO_LIMIT
from routepack_opt.solvers.rows.instance import ClassBins, IntArray, RowTask
from routepack_opt.solvers.rows.slots import cell_plan, shared_items

# Measured on uniform, three-per-bin and clipped lengths. The first temperature is a share of the capacity.
# The last one is in tokens, like the overflow: with many cells it must be cold enough to leave none anywhere.
HOT_SHARES, COLD = (2e-4, 1e-3), 0.05  # restarts alternate between the two first temperatures


def anneal_bins(
    bins: ClassBins, count: int, proposals: int, seed: int = 0, start: IntArray | None = None
) -> IntArray | None:
    """Pack the shared items of a class into ``count`` bins, or return None.

    Parameters
    ----------
    bins : ClassBins
    count : int
        Bins.
    proposals : int
    seed : int
    start : int64[m], optional
        Bins to start from, whatever their overflow; the least loaded assignment when left out.

    Returns
    -------
    int64[m] or None
        Bin of every shared item.
    """
    from routepack_opt.solvers.rows._kernels import least_loaded
    from routepack_opt.solvers.rows.anneal._kernels import anneal

    size, limit = bins.items.size, NO_LIMIT if bins.max_samples is None else bins.max_samples
    if count < 1 or int(bins.tokens.sum()) > count * bins.cap:
        return None
    if start is None:
        start, _ = least_loaded(bins.tokens, bins.samples, NO_LIMIT, NO_LIMIT, count)
    zeros = np.zeros(size, dtype=np.int64)
    free = np.zeros(count, dtype=np.int64)
    where, broken = anneal(
        bins.tokens, bins.samples, start, zeros, zeros + count, count, bins.cap, limit, -1,
        np.zeros(1, dtype=np.int64), False, free, _seed(seed), proposals, _hot(bins.cap, seed), COLD,
    )  # fmt: skip
    return where if broken == 0 else None


def anneal_slots(task: RowTask, shares: list[int], proposals: int, seed: int = 0) -> IntArray | None:
    """Pack ``sum(shares)`` rows under ``equal_samples_per_slot``, or return None.

    Parameters
    ----------
    task : RowTask
    shares : list of int
        Rows of each class.
    proposals, seed : int

    Returns
    -------
    int64[M] or None
        Flat cell of every item.
    """
    from routepack_opt.solvers.rows.anneal._kernels import anneal

    cell_class, cell_of_item, room = cell_plan(task, shares)
    items, tokens, index = shared_items(task)
    blocked = np.zeros(cell_class.size, dtype=np.int64)
    blocked[cell_of_item[cell_of_item >= 0]] = 1
    starts = np.concatenate(([0], np.cumsum(np.array(shares) * task.dp)))
    low, high = starts[index], starts[index + 1]
    share = int(task.samples.sum()) // task.dp
    limit = min((c.max_samples or NO_LIMIT for c in task.classes), default=NO_LIMIT)
    start = _spread(tokens, index, starts, blocked)
    if start is None:
        return None
    where, broken = anneal(
        tokens, task.samples[items], start, low, high, cell_class.size, task.cap, limit, share,
        share - room, True, blocked, _seed(seed), proposals, _hot(task.cap, seed), COLD,
    )  # fmt: skip
    if broken:
        return None
    cell_of_item[items] = where
    return cell_of_item


def _spread(tokens: IntArray, index: IntArray, starts: IntArray, blocked: IntArray) -> IntArray | None:
    """Start: every item to the least loaded free cell of its class."""
    load = np.where(blocked == 1, np.int64(NO_LIMIT), 0)
    where = np.empty(tokens.size, dtype=np.int64)
    for i, (t, c) in enumerate(zip(tokens.tolist(), index.tolist(), strict=True)):
        cell = int(starts[c] + np.argmin(load[starts[c] : starts[c + 1]]))
        if blocked[cell]:
            return None
        where[i] = cell
        load[cell] += t
    return where


def _hot(cap: int, seed: int) -> float:
    """First temperature, in tokens."""
    return max(HOT_SHARES[seed % 2] * cap, 10 * COLD)


def _seed(seed: int) -> int:
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0] >> 1)
