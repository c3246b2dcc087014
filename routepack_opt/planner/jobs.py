"""One window on its way through the planner: what is asked, what time it is, and the steps.

Guarantees: the placement is reported as soon as it is known, and the plan has that placement; a cancelled job
ends at its next look at the clock; a hurried one ends in time with the best it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from routepack_opt.errors import RoutePackError
from routepack_opt.placement import Placement
from routepack_opt.planner.config import PlannerConfig
from routepack_opt.planner.entry import plan
from routepack_opt.planner.request import OwnLayout
from routepack_opt.planner.timeline import Timeline
from routepack_opt.planner.worth import cannot_pay
from routepack_opt.plans import Plan
from routepack_opt.problem import Problem
from routepack_opt.solvers.annealing.population import Executor

Report = Callable[[Placement], object]


_HANDOVER, _LONGEST_HANDOVER = 0.02, 0.01  # part of the deadline, and seconds, for waking the caller


class CancelledError(RoutePackError):
    """Nobody waits for the job any more."""


class JobClock:
    """The clock of one job, which can be put forward and stopped.

    Parameters
    ----------
    clock : callable
        Seconds from any origin.
    deadline : float, optional
        Seconds from now at which the job must be done.
    """

    def __init__(self, clock: Callable[[], float], deadline: float | None) -> None:
        self._clock, self._ahead, self._cancelled = clock, 0.0, False
        self._limit = None if deadline is None else clock() + deadline
        self._handover = min(_HANDOVER * (deadline or 0.0), _LONGEST_HANDOVER)
        self._reserve = 0.0

    def __call__(self) -> float:
        """Return the job's time.

        Raises
        ------
        CancelledError
            After :meth:`cancel`; it ends whatever was working for the job.
        """
        if self._cancelled:
            raise CancelledError("the job was cancelled")
        return self._clock() + self._ahead

    @property
    def wait(self) -> float | None:
        """Seconds a caller waits at most, to have the fallback in time; None without a deadline."""
        return None if self._limit is None else self._limit - self._handover - self._clock()

    @property
    def left(self) -> float | None:
        """Seconds until the job must be done, by its own time; None without a deadline."""
        return None if self._limit is None else self._limit - self._reserve - self()

    def keep(self, seconds: float) -> None:
        """Keep seconds between the end of the job and that of its caller's patience."""
        self._reserve = seconds

    def hurry(self, seconds: float) -> None:
        """Let the job's time run ahead, so that its deadline comes after `seconds`."""
        left = None if self._cancelled else self.left
        if left is not None and left > seconds:
            self._ahead += left - seconds

    def cancel(self) -> None:
        """Make every later look at the clock raise."""
        self._cancelled = True


@dataclass(frozen=True, eq=False)
class Job:
    """What a worker is given for one window; it can be pickled.

    Parameters
    ----------
    problem : Problem
        The window on its topology.
    config : PlannerConfig
        How to search.
    own : Layout or nested sequence, optional
        The trainer's own layout.
    previous : Plan, optional
        Where the experts are now.
    """

    problem: Problem
    config: PlannerConfig
    own: OwnLayout | None = None
    previous: Plan | None = None


@dataclass(frozen=True, eq=False)
class Done:
    """A finished job."""

    plan: Plan
    timeline: Timeline


def run_job(job: Job, clock: JobClock, executor: Executor, report: Report) -> Done:
    """Place, report the placement, then pack.

    Parameters
    ----------
    job : Job
        What to plan.
    clock : JobClock
        Its time.
    executor : Executor
        Where the search runs.
    report : callable
        Told the placement as soon as it is known.
    """
    search, start = job.config.search, clock()
    futile = cannot_pay(job.problem)
    placed = None if search.refine_placement else _place(job)
    marks = {"placement": clock()}
    if placed is not None:
        report(placed)

    def mark(stage: str, facts: Any) -> None:
        if stage != "placement":  # handed in, not found: its time is measured here
            marks[stage] = clock()

    left = None if search.proposals is not None or clock.left is None else max(clock.left, 1e-3)
    found = plan(
        job.problem,
        seed=search.seed,
        deadline=left,
        budget=search.budget if left is None else None,
        method="seed" if futile else search.method,
        refine_placement=search.refine_placement,
        placement=placed,
        previous=job.previous,
        own=job.own,
        executor=executor,
        baselines=search.baselines,
        enough=search.enough,
        progress=mark,
        clock=clock,
    )
    if futile:
        found = replace(found, reason=futile)
    return Done(found, _timeline(start, marks, clock()))


def _place(job: Job) -> Placement:
    from routepack_opt.solvers.placing import place

    search, window = job.config.search, job.problem.window
    now = job.previous.placement if job.previous is not None else None
    if now is None and search.max_moves is not None:
        now = Placement.identity(window.num_layers, window.num_experts, job.problem.topology.ep)
    method = "lpt" if search.method == "paper" else "refined"
    return place(job.problem, method=method, previous=now, max_moves=search.max_moves).placement  # type: ignore[arg-type]


def _timeline(start: float, marks: dict[str, float], end: float) -> Timeline:
    """Turn the times at which stages ended into seconds."""
    rows = marks.get("rows", marks["placement"])
    seeds = marks.get("seeds", end)
    paired = min(marks.get("paired", seeds), seeds)
    return Timeline(
        lpt=marks["placement"] - start,
        rows=rows - marks["placement"],
        pair=paired - rows,
        qd=seeds - paired,
        sa=end - seeds,
    )
