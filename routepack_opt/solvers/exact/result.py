"""What an exact solve returns, and what its backends return per component."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from routepack_opt.layout import Layout
from routepack_opt.models.layout import LayoutModel
from routepack_opt.placement import Placement
from routepack_opt.scoring import Score

Bound = int | float | None


@dataclass(frozen=True)
class LogEntry:
    """One event: after `seconds` the incumbent or the bound of `component` became `value` (scaled)."""

    seconds: float
    component: str
    kind: Literal["incumbent", "bound"]
    value: int | float


@dataclass(frozen=True)
class ExactResult:
    """Outcome of :func:`~routepack_opt.solvers.exact.solve_exact`.

    Parameters
    ----------
    termination : {"optimal", "infeasible", "time_limit", "interrupted", "error"}
        Why the solve stopped; "interrupted" after Ctrl-C, which keeps what is found and proven.
    solution_status : {"optimal", "feasible", "none"}
        What `layout` is.
    score : Score or None
        Exact score of `layout`.
    bound : tuple of int, float or None
        Lower bound on every component of the optimum, scaled as in `score`. An int is exact (CP-SAT or
        counting); a float is a MIP solver's own claim; None is unknown.
    layout : Layout or None
        Best layout.
    placement : Placement
        The placement it was solved under.
    rows : int or None
        R; None when no number of rows was found feasible in the time.
    backend : str
        Solver that was used.
    infeasible : tuple of str
        Rules that contradict each other, when `termination` is "infeasible".
    log : tuple of LogEntry
        Incumbents and bounds over time.
    message : str
        What went wrong, when `termination` is "error".
    """

    termination: Literal["optimal", "infeasible", "time_limit", "interrupted", "error"]
    solution_status: Literal["optimal", "feasible", "none"]
    score: Score | None
    bound: tuple[Bound, Bound, Bound]
    layout: Layout | None
    placement: Placement
    rows: int | None
    backend: str
    infeasible: tuple[str, ...] = ()
    log: tuple[LogEntry, ...] = field(default=(), repr=False)
    message: str = ""

    @property
    def proven(self) -> tuple[bool, bool, bool]:
        """Which components of `score` are known to be those of the lexicographic optimum."""
        result, so_far = [], self.score is not None
        for k in range(3):
            bound = self.bound[k]
            value = self.score.components[k] if self.score is not None else 0
            so_far = so_far and bound is not None and bound >= value
            result.append(so_far)
        return result[0], result[1], result[2]


@dataclass(frozen=True)
class Outcome:
    """What a backend found for one component.

    Parameters
    ----------
    status : {"optimal", "feasible", "infeasible", "unknown", "interrupted", "error"}
        As the solver claims, or that Ctrl-C stopped it.
    values : sequence of float or None
        Every variable of the best solution.
    bound : int, float or None
        Lower bound on the component, in model units.
    message : str
        The solver's words, for errors.
    """

    status: Literal["optimal", "feasible", "infeasible", "unknown", "interrupted", "error"]
    values: Sequence[float] | None
    bound: Bound
    message: str = ""


class Backend(Protocol):
    """A solver of one component at a time."""

    name: str

    def minimise(
        self,
        model: LayoutModel,
        component: str | None,
        locks: Sequence[tuple[int, int]],
        hint: Sequence[int] | None,
        seconds: float | None,
        report: Report,
    ) -> Outcome:
        """Minimise a component (or only find a layout) with upper limits on others."""

    def close(self) -> None:
        """Give back whatever the backend holds."""


class Report(Protocol):
    """Called with each incumbent or bound, in model units."""

    def __call__(self, kind: Literal["incumbent", "bound"], value: int | float) -> None:
        """Take one event."""
