"""Annealing as a stage of certification: from the bound up, the first row count that can be packed.

Guarantees: a round spends a fixed number of proposals per row count, so the cheap round gives the same answer
everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from routepack_opt.solvers.rows.anneal import anneal_bins, anneal_slots
from routepack_opt.solvers.rows.grid import rows_per_class
from routepack_opt.solvers.rows.instance import IntArray
from routepack_opt.solvers.rows.reduction import Core, filled
from routepack_opt.solvers.rows.state import ClassState, RowState

if TYPE_CHECKING:
    from routepack_opt.solvers.rows.columns.guide import Guide

CHEAP_PROPOSALS = 150_000
PROPOSALS_PER_SECOND = 15_000_000
SHORT_ROUNDS = 3
LARGEST_SHORT = 2048  # items
LONGEST_FILL = 3200  # items
MOST_WASTE = 0.02  # of all tokens; where bins must leave more empty, filling them is no aim


def cheap_anneal(state: RowState) -> None:
    """Run one round over few open row counts."""
    _round(state, CHEAP_PROPOSALS, seed=0, tries=3)


def short_anneal(state: RowState) -> None:
    """Restart a few rounds, each longer: most windows that can be packed are, by one of them.

    A huge window has one round, and only where a row or two are open: it takes its time.
    """
    size = sum(c.bins.items.size for c in state.classes)
    huge = size > LARGEST_SHORT
    wide = state.upper is None or state.upper > state.lower + 2 * state.task.row_multiple
    if state.annealed_at == state.lower or (huge and wide):
        return
    state.annealed_at = state.lower
    for seed in range(2, 3 if huge else 2 + SHORT_ROUNDS):
        if state.closed:
            return
        proposals = 500 * size if huge else seed * seed * CHEAP_PROPOSALS // 2
        _round(state, _affordable(state, proposals, state.remaining / 8), seed, tries=8 if seed == 2 else 1)


def fill_and_anneal(state: RowState) -> None:
    """Fill the bins of a large window to the last token and anneal what is left, shortly."""
    _fill(state, (300, 1200), 2_000)


def long_fill(state: RowState) -> None:
    """Do likewise with more left, and at length."""
    _fill(state, (800, 1600), 20_000)


def longest_fill(state: RowState) -> None:
    """Leave most of a huge window and anneal it from hot, again while half of the time is enough for it."""
    for seed in (1, 3, 5):
        if state.remaining * PROPOSALS_PER_SECOND / 2 >= LONGEST_FILL * 20_000:
            _fill(state, (LONGEST_FILL,), 20_000, seed, share=2)


def _fill(state: RowState, left: tuple[int, ...], proposals: int, seed: int = 0, share: int = 8) -> None:
    """Leave so many items, one number after the other.

    ``proposals`` are per item left, and at most what fits one part in ``share`` of the time.
    """
    if state.task.equal_slots:
        return
    for known in state.classes:
        core, count = known.core, state.class_target(known)
        total = int(core.bins.tokens.sum())
        slack = (count - core.used) * core.bins.cap - total
        for keep in left:
            if known.closed or not 0 <= slack <= MOST_WASTE * total or keep >= core.bins.items.size:
                break
            rest = filled(core.bins, keep, slack // 2)
            each = _affordable(state, proposals * rest.bins.items.size, state.remaining / share)
            where = anneal_core(rest, count - core.used, each, seed)
            if where is not None:
                known.offer(core.whole(where), count)


def guided_anneal(state: RowState) -> None:
    """Run one round from the layout that columns suggest."""
    if any(c.guide is not None and not c.closed for c in state.classes):
        size = sum(c.bins.items.size for c in state.classes)
        proposals = max(4 * CHEAP_PROPOSALS, 500 * size)
        _round(state, _affordable(state, proposals, state.remaining / 3), seed=2 * SHORT_ROUNDS, tries=2)


def long_anneal(state: RowState) -> None:
    """Run rounds of growing length in a third of the time that is left."""
    limit = state.clock() + state.remaining / 3
    size = sum(c.bins.items.size for c in state.classes)
    proposals, seed = max(8 * CHEAP_PROPOSALS, 1000 * size), 2 * SHORT_ROUNDS + 1
    while not state.closed and state.clock() < limit:
        _round(state, _affordable(state, proposals, limit - state.clock()), seed, tries=8)
        proposals, seed = 4 * proposals, seed + 1


def _affordable(state: RowState, proposals: int, seconds: float) -> int:
    """Cut the proposals down to what the seconds allow."""
    return max(1000, min(proposals, int(seconds * PROPOSALS_PER_SECOND)))


def _round(state: RowState, proposals: int, seed: int, tries: int) -> None:
    if state.task.equal_slots:
        _anneal_slots(state, proposals, seed, tries)
        return
    for known in state.classes:
        if not known.closed and known.bins.items.size:
            _anneal_class(state, known, proposals, seed, tries)


def _anneal_class(state: RowState, known: ClassState, proposals: int, seed: int, tries: int) -> None:
    """Try the target, then what the LP expects; where that fails, bisect up to the rows already packed."""
    bins = known.bins
    low = bins.rows_of_bins(state.class_target(known))
    high = bins.most_rows + 1 if known.upper is None else known.upper
    guide = known.guide if seed % 2 == 0 else None  # the LP's own layout, then the least loaded one, in turn
    expected = high if guide is None else bins.rows_of_bins(known.core.used + guide.bins)
    rows = low
    for _ in range(tries):
        if low >= high or state.remaining <= 0:
            return
        count = bins.bins_of_rows(rows)
        where = anneal_core(known.core, count, proposals, seed, guide)
        if where is None:
            low = rows + 1
        else:
            known.offer(where, count)
            high = rows
        rows, expected = (max(low, expected), high) if expected < high else ((low + high) // 2, high)


def anneal_core(
    core: Core, count: int, proposals: int, seed: int, guide: Guide | None = None
) -> IntArray | None:
    """Pack a class into ``count`` bins by annealing what is left of it; None when that fails."""
    left = count - core.used
    if left < 0 or not core.bins.items.size:
        return core.fixed if left >= 0 else None
    start = None if guide is None else guide.start(core.bins, left)
    where = anneal_bins(core.bins, left, proposals, seed, start)
    return None if where is None else core.whole(where)


def _anneal_slots(state: RowState, proposals: int, seed: int, tries: int) -> None:
    task = state.task
    least = [c.lower for c in state.classes]
    rows = state.target
    for _ in range(tries):
        if rows > task.most_rows or (state.upper is not None and rows >= state.upper):
            return
        shares = rows_per_class(task, least, rows)
        found = None if shares is None else anneal_slots(task, shares, proposals, seed)
        if found is not None:
            state.offer_layout(found, rows)
            return
        if state.forced is not None or state.remaining <= 0:
            return
        rows = task.legal(rows + 1)
