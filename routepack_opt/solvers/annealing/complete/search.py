"""The border between an instance and the complete search: items by falling work, and their tables.

Guarantees: a layout that is returned obeys every rule and has the score that is returned with it.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.solvers.annealing._kernels.peaks import LANES
from routepack_opt.solvers.annealing._kernels.state import Instance
from routepack_opt.solvers.annealing.complete._kernels.blocks import search_blocks
from routepack_opt.solvers.annealing.complete._kernels.tables import Tables, Work

_MOST_ITEMS = 30
_MOST_PAIRS = 4096  # pairs of ranks over all layers


def covers(instance: Instance, rows: int) -> bool:
    """Say whether a window has at most two row-shards of at most two cells, and few items."""
    widths = np.diff(instance.shard_start)
    small = rows * widths.size <= 2 and int(widths.max()) <= 2
    return small and instance.tokens.size <= _MOST_ITEMS and pairs_of(instance) <= _MOST_PAIRS


def pairs_of(instance: Instance) -> int:
    """Count the pairs of ranks of all layers, which every bound looks at."""
    _, blocks, ranks, _ = instance.demand.shape
    return int(blocks * LANES * ranks * ranks)


def search_all(
    instance: Instance, cells: IntArray, rows: int, score: tuple[int, int, int], nodes: int
) -> tuple[IntArray, tuple[int, int, int], int, bool]:
    """Look for the best layout that is better than the one given.

    Parameters
    ----------
    instance : Instance
        For which :func:`covers` holds.
    cells : numpy.ndarray of int64, shape (M,)
        A layout, as kernel cells.
    rows : int
        R.
    score : tuple of int
        Its score: the lower, the less is looked at.
    nodes : int
        Most partial divisions to look at.

    Returns
    -------
    cells : numpy.ndarray of int64, shape (M,)
        The layout given, or a better one.
    score : tuple of int
        Its score.
    made : int
        Partial divisions looked at.
    complete : bool
        Whether no layout has a lower score.
    """
    order = _order(instance)
    tables = _tables(instance, rows, order)
    work = _work(tables, score, nodes)
    complete = bool(search_blocks(tables, work))
    found = (int(work.best[0]), int(work.best[1]), int(work.best[2]))
    if found < score:
        start = instance.shard_start if rows == 1 else np.arange(rows) * instance.shard_of_slot.size
        cells = np.empty_like(cells)
        cells[order] = start[work.best_side] + work.best_cell
    return cells, found, int(work.nodes[0]), complete


def _order(instance: Instance) -> IntArray:
    """Order items by falling work, so that bounds rise early."""
    attention = _attention(instance, np.arange(instance.tokens.size)).sum(axis=0)
    experts = instance.demand.sum(axis=(1, 2, 3), dtype=np.int64)
    return np.argsort(-(attention + instance.unit * experts), kind="stable")


def _attention(instance: Instance, order: IntArray) -> IntArray:
    """Attention work of every item by stage, shape (S, M)."""
    work = np.outer(instance.linear, instance.tokens) + np.outer(instance.quadratic, instance.squares)
    return np.asarray(work[:, order], np.int64)


def _tables(instance: Instance, rows: int, order: IntArray) -> Tables:
    size, blocks, ranks, lanes = instance.demand.shape
    demand = instance.demand[order].transpose(0, 1, 3, 2).reshape(size, blocks * lanes, ranks)
    demand = np.ascontiguousarray(demand[:, demand.any(axis=(0, 2))], np.int64)
    either = np.minimum(demand[:, :, :, None], demand[:, :, None, :])
    least = np.concatenate([np.cumsum(either[::-1], axis=0)[::-1], np.zeros_like(either[:1])])
    slots, samples = instance.shard_of_slot.size, int(instance.samples.sum())
    widths = np.diff(instance.shard_start) if rows == 1 else np.full(rows, slots)
    each = samples // slots if instance.equal_samples else 0  # in one row it is a limit that all cells reach
    work = _attention(instance, order)
    grain = np.maximum(np.gcd.reduce(work, axis=1), 1)
    part = grain * int(widths.max())
    return Tables(
        demand=demand,
        least=np.ascontiguousarray(least),
        tokens=instance.tokens[order],
        squares=instance.squares[order],
        samples=instance.samples[order],
        room=np.where(instance.alone, instance.cap, instance.tokens)[order],
        row_class=instance.row_class[order] * int(rows > 1),
        linear=instance.linear,
        quadratic=instance.quadratic,
        grain=grain,
        widths=np.append(widths, 0)[:2],
        unit=int(instance.unit),
        cap=int(instance.cap),
        max_samples=min(int(instance.max_samples), each if each and rows == 1 else samples),
        same_shard=rows == 2,
        alike=bool(widths[0] == widths[-1]),
        attention=int((-(-work.sum(axis=1) // part) * grain).sum()),
        each_slot=each if rows == 2 and slots == 2 else 0,
    )


def _work(tables: Tables, score: tuple[int, int, int], nodes: int) -> Work:
    size, layers, ranks = tables.demand.shape

    def zeros(*shape: int) -> IntArray:
        return np.zeros(shape, np.int64)

    return Work(
        side=zeros(size),
        loads=zeros(2, layers, ranks),
        peaks=zeros(2),
        sums=zeros(2, 4),
        count=zeros(2),
        kind=zeros(2),
        inside=zeros(size),
        inner=zeros(2, 4),
        held=zeros(size),
        cell=zeros(size),
        best_side=zeros(size),
        best_cell=zeros(size),
        best=np.array(score, np.int64),
        nodes=np.array([0, nodes], np.int64),
    )
