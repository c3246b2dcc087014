"""The lexicographic solve: one component after the other, the earlier ones locked at their optimum.

Guarantees: the score of a result is computed in integers from its layout; a component is locked only when
it is proven; one deadline holds for all of it; what is proven of an interrupted solve is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Literal

from routepack_opt.errors import InfeasibleError, InputError
from routepack_opt.layout import Layout
from routepack_opt.models.layout import COMPONENTS, LayoutModel, build_layout_model
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import Score, loads_of, score_of
from routepack_opt.solvers.exact.cpsat import CpSatBackend, explain
from routepack_opt.solvers.exact.process import ProcessBackend
from routepack_opt.solvers.exact.result import Backend, Bound, ExactResult, LogEntry, Outcome

_BACKENDS: dict[str, Callable[[int, int], Backend]] = {
    "cpsat": lambda seed, workers: CpSatBackend(seed, workers),
    "highs": lambda seed, workers: ProcessBackend("highs", seed, workers),
    "pyomo": lambda seed, workers: ProcessBackend("pyomo", seed, workers),
}
_PATTERNS = "patterns"  # no solver of one component after the other: it knows all three at once
_PACKAGES = {
    "cpsat": ("ortools",),
    "highs": ("highspy",),
    "pyomo": ("pyomo", "highspy"),
    _PATTERNS: ("highspy",),
}
_EXPLAIN_SECONDS = 10.0
_ROWS_SECONDS = 60.0  # to find the least number of rows, when it is not given

Termination = Literal["optimal", "infeasible", "time_limit", "interrupted", "error"]


def solve_exact(
    problem: Problem,
    *,
    placement: Placement | None = None,
    rows: int | None = None,
    backend: str = "cpsat",
    hint: Layout | None = None,
    bound: Sequence[int | None] | None = None,
    seed: int = 0,
    workers: int = 1,
    time_limit: float | None = None,
    symmetry: bool = True,
    cuts: bool = True,
    clock: Callable[[], float] = time.monotonic,
) -> ExactResult:
    """Find the lexicographically best layout and prove it, as far as time allows.

    Parameters
    ----------
    problem : Problem
        What to solve.
    placement : Placement, optional
        By default the refined placement of the window's loads.
    rows : int, optional
        R; by default the least number of rows, certified first.
    backend : {"cpsat", "highs", "pyomo", "patterns"}
        CP-SAT, HiGHS directly, HiGHS through Pyomo, or the search of row patterns
        (:func:`~routepack_opt.solvers.patterns.closing.solve_by_patterns`), which covers small problems only,
        is ahead where row-shards are many, and looks at no option below but `time_limit`.
    hint : Layout, optional
        A valid layout to start from; the result is never worse.
    bound : sequence of int or None, optional
        Lower bounds on the components of the lexicographic optimum that are proven already, scaled; the solve
        starts from them, and does not solve a component again that they settle.
    seed, workers : int
        Seed and threads of the solver.
    time_limit : float, optional
        Seconds for everything.
    symmetry, cuts : bool
        As in :func:`~routepack_opt.models.layout.build_layout_model`.
    clock : callable
        Returns seconds; for tests.

    Returns
    -------
    ExactResult

    Raises
    ------
    InputError
        On an unknown backend or one whose package is missing, a problem that row patterns do not cover, a
        hint that is no layout of `rows` rows, a bound that the hint contradicts, or numbers that no int64
        model holds.
    """
    if backend not in _PACKAGES:
        raise InputError(" or ".join(map(repr, _PACKAGES)), repr(backend), "backend")
    for package in _PACKAGES[backend]:
        if find_spec(package) is None:
            remedy = "Install it with: pip install 'routepack_opt[exact]'"
            raise InputError(f"the package {package}", "none", f"backend {backend!r}", remedy)
    started = clock()
    deadline = None if time_limit is None else started + time_limit
    if placement is None:
        from routepack_opt.solvers.placing import place

        placement = place(problem).placement
    solve = _Solve(problem, placement, backend, started, deadline, clock)
    if rows is None:
        rows, hint = solve.find_rows(hint)
        if rows is None:
            return solve.result()
    solve.rows = rows
    if backend == _PATTERNS:
        return solve.by_patterns(hint)
    try:
        model = build_layout_model(problem, solve.demand, rows, symmetry=symmetry, cuts=cuts)
    except InfeasibleError as error:
        return solve.refuse((error.rule,))
    if hint is not None:
        solve.offer(hint.validate(problem), rows)
    solve.start_from(model, bound or ())
    solver = _BACKENDS[backend](seed, workers)
    try:
        solve.run(model, solver)
    finally:
        solver.close()
    return solve.result()


def _whole(bound: int | float) -> int | float:
    """Round a MIP's bound up to the next whole value, with room for its arithmetic; ints stay."""
    return bound if isinstance(bound, int) else float(math.ceil(bound - max(0.01, 1e-9 * abs(bound))))


class _Solve:
    """State of one call: best layout, bounds and log."""

    def __init__(
        self,
        problem: Problem,
        placement: Placement,
        backend: str,
        started: float,
        deadline: float | None,
        clock: Callable[[], float],
    ) -> None:
        self.problem, self.placement, self.backend = problem, placement, backend
        self.started, self.deadline, self.clock = started, deadline, clock
        self.demand = placement.demand(problem.item_counts)
        self.rows: int | None = None
        self.best: Layout | None = None
        self.score: Score | None = None
        self.bound: list[Bound] = [None, None, None]
        self.log: list[LogEntry] = []
        self.infeasible: tuple[str, ...] = ()
        self.termination: Termination = "time_limit"
        self.message = ""

    def left(self) -> float | None:
        """Seconds left, or None without a limit."""
        return None if self.deadline is None else max(self.deadline - self.clock(), 0.0)

    def find_rows(self, hint: Layout | None, rows: int | None = None) -> tuple[int | None, Layout | None]:
        """Return the least number of rows, or the one asked for, with a layout that has it to start from."""
        from routepack_opt.solvers.rows import certify_rows

        left = self.left()
        found = certify_rows(self.problem, max(_ROWS_SECONDS if left is None else left, 0.01), rows=rows)
        if found.status == "infeasible":
            self.refuse((found.rule or "rows",))
        if found.rows is None or found.packing is None:
            return None, None
        if hint is not None and hint.rows == found.rows:
            return found.rows, hint
        return found.rows, Layout.from_items(self.problem, found.packing, found.rows)

    def refuse(self, rules: tuple[str, ...]) -> ExactResult:
        """Note that there is no layout."""
        self.termination, self.infeasible = "infeasible", rules
        return self.result()

    def offer(self, layout: Layout, rows: int) -> None:
        """Take a layout if it is the best so far."""
        if layout.rows != rows:
            raise InputError(f"a layout of {rows} rows", f"{layout.rows} rows", "hint")
        score = score_of(self.problem, loads_of(self.problem, self.demand, layout))
        if self.score is None or score < self.score:
            self.best, self.score = layout, score

    def by_patterns(self, hint: Layout | None) -> ExactResult:
        """Search row patterns, from the hint or from the packing of a row certificate."""
        from routepack_opt.solvers.patterns.closing import solve_by_patterns

        if hint is None:
            _, hint = self.find_rows(None, self.rows)
        if hint is None or self.rows is None:
            return self.result()
        self.offer(hint.validate(self.problem), self.rows)
        found = solve_by_patterns(self.problem, self.placement, self.rows, hint, seconds=self.left())
        self.best, self.score, self.bound = found.layout, found.score, list(found.bound)
        self.termination = (
            "optimal" if found.optimal else "interrupted" if found.interrupted else "time_limit"
        )
        return self.result()

    def start_from(self, model: LayoutModel, known: Sequence[int | None]) -> None:
        """Take the counting bounds, and what is proven already where that is more."""
        self.bound = list(model.bound.components)
        for k, (component, value) in enumerate(zip(COMPONENTS, known, strict=False)):
            if value is not None:
                model.at_least(component, value)
                self.bound[k] = max(self.bound[k] or 0, value)
        found = self.score.components if self.score is not None else None
        if found is not None and list(found) < [low or 0 for low in known]:
            raise InputError("bounds that no layout goes below", f"a hint with {found}", "bound")

    def run(self, model: LayoutModel, solver: Backend) -> None:
        """Solve the components in turn until one is not proven."""
        locks: list[tuple[int, int]] = []
        for k, component in enumerate(COMPONENTS):
            if not self._component(model, solver, k, locks):
                return
            assert self.score is not None
            locks.append((model.objective[component], self.score.components[k] // model.unit))
        self.termination = "optimal"

    def _component(self, model: LayoutModel, solver: Backend, k: int, locks: list[tuple[int, int]]) -> bool:
        """Solve component k; return whether it is proven."""
        left = self.left()
        if self._settled(k):
            return True
        if left is not None and left <= 0:
            return False
        hint = model.hint(self.best) if self.best is not None else None
        component = COMPONENTS[k]

        def report(kind: Literal["incumbent", "bound"], value: int | float) -> None:
            self.log.append(LogEntry(self.clock() - self.started, component, kind, value * model.unit))

        outcome = solver.minimise(model, component, locks, hint, left, report)
        if outcome.values is not None:
            self._take(model, outcome)
        if outcome.bound is not None:
            self._raise_bound(k, _whole(outcome.bound), model.unit)
        if outcome.status == "infeasible" and not locks and self.score is None:
            self.refuse(explain(model, _EXPLAIN_SECONDS))
        elif outcome.status == "interrupted":
            self.termination = "interrupted"
        elif outcome.status in ("error", "infeasible"):
            self.termination = "error"
            self.message = f"{component}: {outcome.status} {outcome.message}".strip()
        return self._settled(k)

    def _take(self, model: LayoutModel, outcome: Outcome) -> None:
        """Rescore a solver's solution in integers; only the rescored layout counts."""
        assert outcome.values is not None
        layout = model.layout(outcome.values)
        if layout.broken_rule(self.problem) is None:
            self.offer(layout, model.rows)

    def _raise_bound(self, k: int, bound: int | float, unit: int) -> None:
        known, value = self.bound[k], bound * unit
        if self.score is not None and value > self.score.components[k]:
            self.termination = "error"
            self.message = f"{COMPONENTS[k]}: {self.backend} claims a bound above a layout that it can see"
        elif known is None or value > known:
            self.bound[k] = value

    def _settled(self, k: int) -> bool:
        """Whether the incumbent's component k is proven; with one shard the first two are the same."""
        if k == 1 and self.problem.topology.num_shards == 1:
            self.bound[1] = max(self.bound[0] or 0, self.bound[1] or 0)
        return self.score is not None and self.result().proven[k]

    def result(self) -> ExactResult:
        """Return what is known now."""
        solution: Literal["optimal", "feasible", "none"] = "none"
        if self.score is not None:
            solution = "optimal" if self.termination == "optimal" else "feasible"
        return ExactResult(
            self.termination,
            solution,
            self.score,
            (self.bound[0], self.bound[1], self.bound[2]),
            self.best,
            self.placement,
            self.rows,
            self.backend,
            self.infeasible,
            tuple(self.log),
            self.message,
        )
