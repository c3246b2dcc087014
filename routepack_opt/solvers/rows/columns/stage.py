"""Column generation as a stage of certification: bound, dives, enumeration, branch and price, row by row.

Guarantees: a class's bound rises only by a proof that its certificate holds, and its packing changes only to
one that keeps every rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from routepack_opt.bounds.rows import WeightBound
from routepack_opt.certificates import RowBound
from routepack_opt.solvers.rows.columns.branch import BranchAndPrice
from routepack_opt.solvers.rows.columns.dive import dive
from routepack_opt.solvers.rows.columns.enumeration import (
    MOST_PATTERNS,
    Enumeration,
    enumerate_within,
    solve_cover,
)
from routepack_opt.solvers.rows.columns.generate import Columns, generate, items_of, patterns_of, table_fits
from routepack_opt.solvers.rows.columns.guide import Guide
from routepack_opt.solvers.rows.columns.master import IntArray, Sizes
from routepack_opt.solvers.rows.heuristics import first_fit_decreasing
from routepack_opt.solvers.rows.state import ClassState, RowState

COARSE_CAP, FINE_CAP = 768, 3072
SMALL_TABLE = 8_000_000  # pricing table entries up to which exact columns are fast enough
FEW_PATTERNS = 3_000
STORED_PATTERNS = 20_000


def coarse_bounds(state: RowState) -> None:
    """Bound by column generation on tokens rounded down to few values, which large capacities need.

    A set of items that fits also fits with all tokens divided and rounded down, so the weights stay valid.
    """
    _rounded_bounds(state, COARSE_CAP)


def fine_bounds(state: RowState) -> None:
    """Bound likewise, with more values."""
    _rounded_bounds(state, FINE_CAP)


def _rounded_bounds(state: RowState, cap: int) -> None:
    for known in state.classes:
        bins = known.bins
        unit = -(-bins.cap // cap)
        fast = bins.items.size * bins.cap <= SMALL_TABLE or unit < 2
        if known.closed or fast or state.remaining <= 0:
            continue
        tokens = bins.tokens // unit
        kept = tokens > 0
        sizes, index = Sizes.of(tokens[kept], bins.cap // unit)
        if not sizes.size.size or not table_fits(sizes):
            continue
        start = [] if known.where is None else patterns_of(known.where[kept], index, sizes.size.size)
        deadline = state.clock() + state.remaining / 3
        columns = generate(sizes, start, known.enough_bins, deadline, state.clock)
        of_item = np.full(tokens.size, -1, dtype=np.int64)
        of_item[kept] = index
        if columns.use.size and (columns.converged or known.guide is None):
            known.guide = Guide.of(columns, of_item)
        weights = np.where(kept, columns.bound.weights[of_item], 0)
        source = f"column generation, tokens in units of {unit}"
        known.raise_lower(state.task.size, WeightBound(weights, columns.bound.k, source))


@dataclass
class _Problem:
    """One class in the cutting stock view."""

    state: RowState
    known: ClassState
    sizes: Sizes
    index: IntArray

    @property
    def packs(self) -> bool:
        """Whether patterns respect all rules of the class, so that packings may come from them."""
        return self.known.bins.max_samples is None

    def offer(self, patterns: list[IntArray] | None) -> bool:
        """Offer a cover as a packing; whether it was one."""
        where = None if patterns is None else items_of(patterns, self.index)
        if where is None:
            return False
        self.known.offer(where, int(where.max()) + 1)
        return True


def column_bounds(state: RowState) -> None:
    """Raise the bound of each class by column generation on its exact tokens, in a third of the time left."""
    for problem in _problems(state):
        _raise(problem, state.clock() + state.remaining / 3)


def quick_dive(state: RowState) -> None:
    """Dive once into each class, and try the exact cover where patterns are few, in a quarter of the time."""
    for problem in _problems(state):
        limit = state.clock() + state.remaining / 4
        columns, count = _raise(problem, limit)
        if problem.known.closed or not problem.packs or state.clock() >= limit:
            continue
        if problem.offer(dive(problem.sizes, columns, count, limit, None, state.clock)):
            continue
        if limit > state.clock():
            _cover(problem, columns, count, limit, FEW_PATTERNS)


def column_stage(state: RowState) -> None:
    """Close each class by column generation on its exact tokens, one row count after the other."""
    for problem in _problems(state):
        while not problem.known.closed and not state.closed and state.remaining > 0:
            columns, count = _raise(problem, state.deadline)
            if not problem.packs or not _decide(problem, columns, count):
                break


def _problems(state: RowState) -> list[_Problem]:
    """Cutting stock views of the open classes whose pricing table fits memory."""
    found = []
    for known in state.classes:
        if known.bins.items.size and not known.closed:
            sizes, index = Sizes.of(known.bins.tokens, known.bins.cap)
            if table_fits(sizes):
                found.append(_Problem(state, known, sizes, index))
    return found


def _raise(problem: _Problem, deadline: float) -> tuple[Columns, int]:
    """Generate columns until the bound stops rising; the last columns and the shared bins still open."""
    state, known, sizes = problem.state, problem.known, problem.sizes
    patterns = known.patterns or []
    if known.where is not None or not patterns:
        where = first_fit_decreasing(known.bins)[0] if known.where is None else known.where
        patterns = patterns + patterns_of(where, problem.index, sizes.size.size)
    while True:
        lower, count = known.lower, state.class_target(known)
        columns = generate(sizes, patterns, known.enough_bins, deadline, state.clock)
        if columns.use.size and (columns.converged or known.guide is None):
            known.guide = Guide.of(columns, problem.index)
        known.patterns = patterns = columns.master.patterns
        bound = columns.bound
        known.raise_lower(state.task.size, WeightBound(bound.weights[problem.index], bound.k, bound.source))
        if known.lower == lower or state.closed or state.clock() >= deadline:
            return columns, count


def _decide(problem: _Problem, columns: Columns, count: int) -> bool:
    """Decide whether ``count`` bins do: by a dive, by enumeration, by branch and price, by random dives."""
    state, sizes = problem.state, problem.sizes
    limit = state.clock() + state.remaining / 4
    if problem.offer(dive(sizes, columns, count, limit, None, state.clock)):
        return True
    if state.remaining > 0 and _cover(problem, columns, count, state.clock() + state.remaining / 3):
        return True
    search = BranchAndPrice(state.clock() + state.remaining / 2, state.clock)
    status, chosen = search.search(sizes, columns.master.patterns, count)
    if status == "infeasible":
        _excluded(problem, count, _search_evidence(search, count))
        return True
    if problem.offer(chosen):
        return True
    seed = 0
    while state.remaining > 0:
        if problem.offer(dive(sizes, columns, count, state.deadline, seed, state.clock)):
            return True
        seed += 1
    return False


def _cover(problem: _Problem, columns: Columns, count: int, limit: float, most: int = MOST_PATTERNS) -> bool:
    """Decide by enumeration and an exact cover, where the patterns are at most ``most``."""
    clock = problem.state.clock
    found = enumerate_within(problem.sizes, columns, count, limit - clock(), most)
    if found is None:
        return False
    status, chosen = solve_cover(problem.sizes, found.patterns, count, limit - clock())
    if status == "infeasible":
        _excluded(problem, count, _enumeration_evidence(problem, found, count))
        return True
    return problem.offer(chosen)


def _excluded(problem: _Problem, count: int, evidence: dict[str, Any]) -> None:
    """Note that ``count`` shared bins are too few."""
    known = problem.known
    rows = known.bins.rows_of_bins(count + 1)
    known.raise_rows(RowBound(rows, row_class=known.bins.row_class, **evidence))


def _enumeration_evidence(problem: _Problem, found: Enumeration, count: int) -> dict[str, Any]:
    from importlib.metadata import version

    weights = np.zeros(problem.state.task.size, dtype=np.int64)
    weights[problem.known.bins.items] = found.weights[problem.index]
    few = len(found.patterns) <= STORED_PATTERNS
    details = {
        "bins": count,
        "least": found.least,
        "patterns": len(found.patterns),
        "list": [np.repeat(problem.sizes.size, p).tolist() for p in found.patterns] if few else None,
        "unit": problem.known.bins.unit,
        "solver": f"OR-Tools CP-SAT {version('ortools')}",
    }
    return {
        "kind": "enumeration", "source": "pattern enumeration and exact cover", "weights": weights,
        "k": found.k, "details": details,
    }  # fmt: skip


def _search_evidence(search: BranchAndPrice, count: int) -> dict[str, Any]:
    details = {"model": "branch and price", "solver": "routepack_opt", "bins": count, "nodes": search.nodes}
    return {"kind": "solver-claim", "source": "branch and price", "details": details}
