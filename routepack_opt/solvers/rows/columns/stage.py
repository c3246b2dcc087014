"""Column generation as a stage of certification: bound, dives, enumeration, branch and price, row by row.

Guarantees: a class's bound rises only by a proof that its certificate holds, and its packing changes only to
one that keeps every rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from routepack_opt.solvers.rows.columns.generate import (
    LARGEST_TABLE,
    Columns,
    generate,
    items_of,
    patterns_of,
    table_fits,
)
from routepack_opt.solvers.rows.columns.guide import Guide
from routepack_opt.solvers.rows.columns.master import IntArray, Sizes
from routepack_opt.solvers.rows.heuristics import first_fit_decreasing
from routepack_opt.solvers.rows.instance import ClassBins
from routepack_opt.solvers.rows.reduction import Core
from routepack_opt.solvers.rows.state import ClassState, RowState

COARSE_CAP, FINE_CAP, FINEST_CAP = 768, 1536, 6144
SMALL_TABLE = 8_000_000  # pricing table entries up to which exact columns are fast enough
ENTRIES_PER_SECOND = 5_000_000  # of the pricing table, for about a hundred rounds
LAID_PER_SECOND = 25_000_000  # sizes times bins of the first patterns: what it takes to hand them to the LP
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


def finest_bounds(state: RowState) -> None:
    """Bound likewise where the exact tokens have too many values for column generation."""
    _rounded_bounds(state, FINEST_CAP, exact=False)


def _rounded_bounds(state: RowState, cap: int, exact: bool = True) -> None:
    for known in state.classes:
        bins = known.bins
        unit = -(-bins.cap // cap)
        fast = unit < 2 or bins.items.size * bins.cap <= (SMALL_TABLE if exact else LARGEST_TABLE)
        if known.closed or fast or state.remaining <= 0:
            continue
        rounded = _rounded(state, bins, bins.tokens // unit, unit, known.enough_bins)
        if rounded is not None:
            columns, of_item = rounded
            weights = np.where(of_item >= 0, columns.bound.weights[of_item], 0)
            source = f"column generation, tokens in units of {unit}"
            known.raise_lower(state.task.size, WeightBound(weights, columns.bound.k, source))
        core = known.core.bins
        if not known.closed and core.items.size:
            # rounded to the nearest, patterns are right on average: no proof, but a start for annealing
            nearest = _rounded(state, core, (core.tokens + unit // 2) // unit, unit, core.items.size)
            if nearest is not None and nearest[0].use.size:
                known.guide = Guide.of(*nearest, unit)


def _rounded(
    state: RowState, bins: ClassBins, tokens: IntArray, unit: int, enough: int
) -> tuple[Columns, IntArray] | None:
    """Generate columns for tokens in units; also the size of every item, -1 for those of no token."""
    kept, cap = tokens > 0, bins.cap // unit
    part = replace(bins, tokens=np.minimum(tokens[kept], cap), samples=bins.samples[kept], cap=cap)
    sizes, index = Sizes.of(part.tokens, cap)
    if not sizes.size.size or not table_fits(sizes):
        return None
    bins_at_least = -(-int(part.tokens.sum()) // cap)
    if sizes.size.size * bins_at_least > LAID_PER_SECOND * state.remaining / 2:
        return None
    start = patterns_of(first_fit_decreasing(part)[0], index, sizes.size.size)
    columns = generate(sizes, start, enough, state.clock() + state.remaining / 4, state.clock)
    of_item = np.full(kept.size, -1, dtype=np.int64)
    of_item[kept] = index
    return columns, of_item


@dataclass
class _Problem:
    """One class, or what is left of it beside fixed bins, in the cutting stock view."""

    state: RowState
    known: ClassState
    core: Core
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
        self.known.offer(self.core.whole(where), self.core.used + int(where.max()) + 1)
        return True


def core_dive(state: RowState) -> None:
    """Generate columns for the core of each class and dive into it, in half of the time left.

    The core has fewer sizes, and what packs it packs the class. What excludes it is no evidence for the
    class, but its columns are a start for all items.
    """
    for problem in _problems(state, core=True):
        known, core = problem.known, problem.core
        limit = state.clock() + state.remaining / 2
        count = state.class_target(known) - core.used
        if not problem.packs or count < 1:
            continue
        start = patterns_of(first_fit_decreasing(core.bins)[0], problem.index, problem.sizes.size.size)
        columns = generate(problem.sizes, start, count + 1, limit, state.clock)
        known.patterns = _lifted(problem, columns.master.patterns)
        if columns.use.size and (columns.converged or known.guide is None):
            known.guide = Guide.of(columns, problem.index)
        seed = None
        while columns.bins <= count and not known.closed and state.clock() < limit:
            problem.offer(dive(problem.sizes, columns, count, limit, seed, state.clock))
            seed = 0 if seed is None else seed + 1


def _lifted(problem: _Problem, patterns: list[IntArray]) -> list[IntArray]:
    """Patterns over the sizes of all items: those of the core and the fixed bins."""
    sizes, index = Sizes.of(problem.known.bins.tokens, problem.sizes.cap)
    place = np.searchsorted(-sizes.size, -problem.sizes.size)
    lifted = np.zeros((len(patterns), sizes.size.size), dtype=np.int64)
    lifted[:, place] = np.array(patterns).reshape(len(patterns), -1)
    fixed = problem.core.fixed >= 0
    return list(lifted) + patterns_of(problem.core.fixed[fixed], index[fixed], sizes.size.size)


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


def _problems(state: RowState, core: bool = False) -> list[_Problem]:
    """Cutting stock views of the open classes, or of their cores.

    Only those whose pricing table fits memory, and is small enough to converge in the time left: one round
    that overruns the deadline is time for nothing.
    """
    found = []
    for known in state.classes:
        part = known.core if core else Core.none(known.bins)
        if part.bins.items.size and not known.closed:
            sizes, index = Sizes.of(part.bins.tokens, part.bins.cap)
            entries = part.bins.items.size * part.bins.cap
            if table_fits(sizes) and entries <= ENTRIES_PER_SECOND * state.remaining:
                found.append(_Problem(state, known, part, sizes, index))
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
