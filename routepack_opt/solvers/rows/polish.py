"""Annealing as a stage of certification: from the bound up, the first row count that can be packed.

Guarantees: a round spends a fixed number of proposals per row count, so the cheap round gives the same answer
everywhere.
"""

from __future__ import annotations

from routepack_opt.solvers.rows.anneal import anneal_bins, anneal_slots
from routepack_opt.solvers.rows.grid import rows_per_class
from routepack_opt.solvers.rows.state import ClassState, RowState

CHEAP_PROPOSALS = 150_000
PROPOSALS_PER_SECOND = 8_000_000
SHORT_ROUNDS = 3
LARGEST_SHORT = 2048  # items up to which a short round can succeed


def cheap_anneal(state: RowState) -> None:
    """Run one round over few open row counts."""
    _round(state, CHEAP_PROPOSALS, seed=0, tries=3)


def short_anneal(state: RowState) -> None:
    """Restart a few rounds, each longer: most windows that can be packed are, by one of them."""
    if state.annealed_at == state.lower:
        return
    state.annealed_at = state.lower
    for seed in range(2, 2 + SHORT_ROUNDS):
        if state.closed or sum(c.bins.items.size for c in state.classes) > LARGEST_SHORT:
            return
        proposals = _affordable(state, seed * seed * CHEAP_PROPOSALS // 2, state.remaining / 8)
        _round(state, proposals, seed, tries=8 if seed == 2 else 1)


def guided_anneal(state: RowState) -> None:
    """Run one round from the layout that columns suggest."""
    if any(c.guide is not None and not c.closed for c in state.classes):
        size = sum(c.bins.items.size for c in state.classes)
        proposals = max(4 * CHEAP_PROPOSALS, 150 * size)
        _round(state, _affordable(state, proposals, state.remaining / 4), seed=2 * SHORT_ROUNDS, tries=3)


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
    """Try the target; where it fails, bisect between it and the rows already packed."""
    bins = known.bins
    low = bins.rows_of_bins(state.class_target(known))
    high = bins.most_rows + 1 if known.upper is None else known.upper
    rows = low
    for _ in range(tries):
        if low >= high or state.remaining <= 0:
            return
        count = bins.bins_of_rows(rows)
        # the LP's own layout, then the least loaded one, in turn
        guided = known.guide is not None and seed % 2 == 0
        start = known.guide.start(bins, count) if known.guide is not None and guided else None
        where = anneal_bins(bins, count, proposals, seed, start)
        if where is None:
            low = rows + 1
        else:
            known.offer(where, count)
            high = rows
        rows = (low + high) // 2


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
