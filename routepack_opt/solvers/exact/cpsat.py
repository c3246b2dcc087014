"""CP-SAT as a backend.

Guarantees: values and bounds are read as integers (the objective that the solver prints is a double and loses
bits above 2^53); Ctrl-C stops the search and keeps its layout and bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from routepack_opt.models.cpsat import build_cpsat
from routepack_opt.models.layout import LayoutModel
from routepack_opt.solvers.exact.result import Outcome, Report
from routepack_opt.solvers.interruptible import search

_MANY_LOADS = 64  # layers x ranks from which a stronger linear relaxation pays


class CpSatBackend:
    """Solve with CP-SAT.

    Parameters
    ----------
    seed, workers : int
        Random seed and number of search threads; one worker is reproducible.
    """

    name = "cpsat"

    def __init__(self, seed: int = 0, workers: int = 1) -> None:
        self.seed, self.workers = seed, workers

    def minimise(
        self,
        model: LayoutModel,
        component: str | None,
        locks: Sequence[tuple[int, int]],
        hint: Sequence[int] | None,
        seconds: float | None,
        report: Report,
    ) -> Outcome:
        """Minimise a component; see :class:`~routepack_opt.solvers.exact.result.Backend`."""
        from ortools.sat.python import cp_model

        objective = model.objective[component] if component else None
        built = build_cpsat(model.linear, objective, locks, hint)
        solver = self._solver(model, seconds)
        status, stopped = search(solver, built.model, _callback(built.variables, objective, report))
        found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
        values = [int(solver.value(v)) for v in built.variables] if found else None
        names = {
            cp_model.OPTIMAL: "optimal",
            cp_model.FEASIBLE: "feasible",
            cp_model.INFEASIBLE: "infeasible",
            cp_model.UNKNOWN: "unknown",
        }
        bound = None
        if objective is not None and status in (cp_model.OPTIMAL, cp_model.FEASIBLE, cp_model.UNKNOWN):
            bound = int(solver.response_proto.inner_objective_lower_bound)
            report("bound", bound)
        name = "interrupted" if stopped else names.get(status, "error")
        return Outcome(name, values, bound, solver.status_name(status))  # type: ignore[arg-type]

    def _solver(self, model: LayoutModel, seconds: float | None) -> Any:
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.num_workers = self.workers
        solver.parameters.random_seed = self.seed
        if seconds is not None:
            solver.parameters.max_time_in_seconds = max(seconds, 0.0)
        if model.demand.shape[1] * model.demand.shape[2] >= _MANY_LOADS:
            solver.parameters.linearization_level = 2
        return solver

    def close(self) -> None:
        """Nothing is held."""


def explain(model: LayoutModel, seconds: float | None = None) -> tuple[str, ...]:
    """Name rules that contradict each other, or nothing when none were found.

    Parameters
    ----------
    model : LayoutModel
        An infeasible model.
    seconds : float, optional
        Time limit.
    """
    from ortools.sat.python import cp_model

    built = build_cpsat(model.linear, explain=True)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    if seconds is not None:
        solver.parameters.max_time_in_seconds = max(seconds, 0.0)
    status, interrupted = search(solver, built.model)
    if interrupted:
        raise KeyboardInterrupt
    if status != cp_model.INFEASIBLE:
        return ()
    names = {literal.index: family for family, literal in built.assumptions.items()}
    core = [names[k] for k in solver.sufficient_assumptions_for_infeasibility() if k in names]
    return tuple(sorted(core))


def _callback(variables: list[Any], objective: int | None, report: Report) -> Any:
    from ortools.sat.python import cp_model

    class _Incumbents(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self) -> None:
            if objective is not None:
                report("incumbent", int(self.value(variables[objective])))

    return _Incumbents()
