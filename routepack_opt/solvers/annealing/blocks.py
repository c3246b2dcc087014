"""Blocks first: the row-shard of an item decides the experts' term, its cell inside that attention alone.

Guarantees: the result is a valid layout, never worse than the best start; the same random seed and proposals
give the same result on any number of workers.

The search has three phases. *Blocks*: a row-shard counts as one cell that can be split evenly, so that no
cell stands in the way of lower expert peaks. *Inside*: every row-shard is split into its cells, and moves
inside it even out attention. *Finish*: all moves, under the exact score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.solvers.annealing._kernels.state import Instance
from routepack_opt.solvers.annealing.instance import new_state
from routepack_opt.solvers.annealing.parameters import AnnealingParameters, Mix
from routepack_opt.solvers.annealing.population import AnnealingResult, Level, Limits, anneal_cells
from routepack_opt.solvers.rows.anneal import anneal_bins
from routepack_opt.solvers.rows.heuristics import NO_LIMIT
from routepack_opt.solvers.rows.instance import ClassBins

_BLOCKS_SHARE, _INSIDE_SHARE = 0.70, 0.33  # of the search, and of what is left then
_FILL = 0.8  # of its free tokens that a row-shard may use in the first phase: the rest lets it be split
_SPLIT_SHARE = 0.3  # of the time left after the first phase
_MANY = 4  # items per cell from which on a cell is a detail: with three, a split is often not found
_PIECES, _FULL = 16, 0.985  # items per row-shard without which it is not split either, in cells this full
# Weight of the mean shard beside the busiest one: without it, all that happens in the others is accepted.
_EVEN = {"blocks": 100.0, "inside": 9.0, "finish": 1.0}
_SPLIT_PROPOSALS = 100_000  # for a row-shard that greedy splitting overfills


def blocks_pay(instance: Instance, rows: int) -> bool:
    """Say whether a row-shard may be searched as one cell: even shards, no rule on cells, items that split.

    Notes
    -----
    Work is counted once per slot of a shard, so it must fit 62 bits that many times over.
    """
    width, cells = int(instance.shard_start[1]), rows * instance.shard_of_slot.size
    even = width > 1 and bool((np.diff(instance.shard_start) == width).all())
    ruled = instance.equal_samples or instance.max_samples < instance.samples.sum()
    plain = not ruled and not instance.alone.any() and bool((instance.row_class == 0).all())
    full = int(instance.tokens.sum()) > _FULL * int(instance.cap) * cells
    needed = max(_MANY, _PIECES / width) if full else _MANY
    return even and plain and instance.tokens.size >= needed * cells and _work(instance) * width < 2**62


def _work(instance: Instance) -> int:
    """Bound every score of any layout."""
    tokens, squares = int(instance.tokens.sum()), int(instance.squares.sum())
    attention = tokens * int(instance.linear.sum()) + squares * int(instance.quadratic.sum())
    return attention + instance.unit * int(instance.demand.sum(dtype=np.int64))


def anneal_blocks_first(
    instance: Instance,
    starts: Sequence[IntArray],
    rows: int,
    *,
    seed: int,
    parameters: AnnealingParameters,
    limits: Limits,
) -> AnnealingResult:
    """Improve layouts in three phases; arguments as for :func:`anneal_cells`."""
    whole = whole_blocks(instance, rows)
    blocks = [_fitting(whole, instance, cells, rows) for cells in starts]
    phases = _Phases(rows, seed, limits, _score(instance, starts[0], rows))
    hottest, coldest = parameters.hottest, parameters.coldest
    moves = Mix(near=0, any=924, move=100, pair=0)
    shape = replace(parameters, hottest=0.6 * hottest, coldest=min(0.6 * hottest, 2 * coldest), mix=moves)
    found = phases.run("blocks", whole, blocks, shape, _BLOCKS_SHARE)
    cells = split(instance, found.cell_of_item, rows, phases.alarm(_SPLIT_SHARE))
    if cells is not None:
        moves = Mix(near=0, any=500, move=100, pair=424, inside=1024)
        shape = replace(parameters, levels=max(1, parameters.levels // 2), mix=moves)
        shape = replace(shape, hottest=2 * hottest, coldest=coldest / 10)
        found = phases.run("inside", instance, [cells], shape, _INSIDE_SHARE)
        if found.score <= phases.known:
            starts = [found.cell_of_item]
            cold = min(hottest / 30, coldest / 10)
            parameters = replace(shape, hottest=hottest / 30, coldest=cold, mix=parameters.mix)
    found = phases.run("finish", instance, starts, parameters, 1.0)
    return replace(found, proposals=phases.made, trace=phases.trace)


class _Phases:
    """Runs one search after the other under one limit, as one trace.

    Attributes
    ----------
    known : tuple of int
        Score of the best layout so far; the first phase has none of its own.
    """

    def __init__(self, rows: int, seed: int, limits: Limits, known: tuple[int, int, int]) -> None:
        self.rows, self.seed, self.limits, self.known = rows, seed, limits, known
        self.begun, self.made, self.trace = limits.clock(), 0, list[Level]()

    def run(
        self,
        phase: str,
        instance: Instance,
        starts: Sequence[IntArray],
        parameters: AnnealingParameters,
        share: float,
    ) -> AnnealingResult:
        """Search with a share of what is left."""
        before = self.limits.clock() - self.begun
        if self.trace:  # a phase that a checkpoint holds takes no time now
            before = max(before, self.trace[-1].seconds)

        def tell(level: Level) -> None:
            times = 1 + _EVEN[phase]  # that the energy counts a balanced layout
            level = replace(
                level, energy_mean=level.energy_mean / times, energy_spread=level.energy_spread / times
            )
            if phase != "blocks":
                self.known = min(self.known, level.incumbent)
            self.trace.append(replace(level, seconds=before + level.seconds, incumbent=self.known))
            if self.limits.progress is not None:
                self.limits.progress(self.trace[-1])

        shards = instance.shard_start.size - 1
        instance = instance._replace(total_weight=_EVEN[phase] / shards)
        limits = replace(self._part(share), progress=tell)
        found = anneal_cells(
            instance, starts, self.rows, seed=self.seed, parameters=parameters, limits=limits, phase=phase
        )
        self.made += found.proposals
        return found

    def alarm(self, share: float) -> Callable[[], bool]:
        """Return what says whether a share of the time left is over; never without a deadline."""
        clock, until = self.limits.clock, self._part(share).deadline
        return lambda: until is not None and clock() >= until

    def _part(self, share: float) -> Limits:
        if self.limits.proposals is not None:
            return replace(self.limits, proposals=int((self.limits.proposals - self.made) * share))
        assert self.limits.deadline is not None
        now = self.limits.clock()
        return replace(self.limits, deadline=now + (self.limits.deadline - now) * share)


def whole_blocks(instance: Instance, rows: int) -> Instance:
    """Return the instance in which every row-shard is one cell, with all work counted once per slot.

    Attention of such a cell is what its slots do together when it is split evenly: a lower bound, times the
    number of slots, as the experts' term and the denominator are.
    """
    width, shards = int(instance.shard_start[1]), instance.shard_start.size - 1
    mean = int(instance.tokens.sum()) // (rows * shards)
    return instance._replace(
        shard_start=np.arange(shards + 1),
        shard_of_slot=np.arange(shards),
        unit=instance.unit * width,
        denominator=instance.denominator * width,
        cap=mean + int((instance.cap * width - mean) * _FILL),
    )


def _fitting(whole: Instance, instance: Instance, cells: IntArray, rows: int) -> IntArray:
    """Return the row-shard of every item of a layout, or balanced ones where one is too full to be split."""
    from routepack_opt.solvers.rows._kernels import least_loaded

    blocks = cells // int(instance.shard_start[1])
    count = rows * (whole.shard_start.size - 1)
    if np.bincount(blocks, whole.tokens, count).max() <= whole.cap:
        return blocks
    falling, balanced = whole.by_length[::-1], np.empty_like(blocks)
    balanced[falling], _ = least_loaded(
        whole.tokens[falling], whole.samples[falling], NO_LIMIT, NO_LIMIT, count
    )
    return balanced


def split(
    instance: Instance, blocks: IntArray, rows: int, late: Callable[[], bool] = lambda: False
) -> IntArray | None:
    """Split every row-shard into its cells by length; None when one does not fit, or it takes too long.

    Parameters
    ----------
    instance : Instance
    blocks : numpy.ndarray of int64, shape (M,)
        Row-shard of every item.
    rows : int
    late : callable, optional
        Asked before every row-shard.

    Returns
    -------
    numpy.ndarray of int64, shape (M,) or None
        A valid kernel layout.
    """
    width, shards = int(instance.shard_start[1]), instance.shard_start.size - 1
    cells = np.empty_like(blocks)
    falling = instance.by_length[::-1]
    order = falling[np.argsort(blocks[falling], kind="stable")]
    ends = np.cumsum(np.bincount(blocks, minlength=rows * shards))
    for block, items in enumerate(np.split(order, ends[:-1])):
        place = None if late() else _split_one(instance, items, width, block)
        if place is None:
            return None
        cells[items] = block * width + place
    return cells


def _split_one(instance: Instance, items: IntArray, width: int, seed: int) -> IntArray | None:
    """Place the items of one row-shard, longest first to the least loaded cell, or by search."""
    from routepack_opt.solvers.rows._kernels import least_loaded

    if items.size < width:
        return None
    tokens, samples = instance.tokens[items], instance.samples[items]
    place, _ = least_loaded(tokens, samples, NO_LIMIT, NO_LIMIT, width)
    if np.bincount(place, tokens, width).max() > instance.cap:
        bins = ClassBins(0, items, tokens, samples, items[:0], instance.cap, width, None)
        found = anneal_bins(bins, width, _SPLIT_PROPOSALS, seed, place)
        if found is None or np.bincount(found, minlength=width).min() == 0:
            return None
        place = found
    return np.asarray(place, np.int64)


def _score(instance: Instance, cells: IntArray, rows: int) -> tuple[int, int, int]:
    first, second, third = new_state(instance, rows, cells, np.zeros(4, np.uint64)).score.tolist()
    return first, second, third
