"""`Planner`: the planner as a service inside a trainer.

Guarantees: in lenient mode nothing but a bad argument raises; a plan or its fallback is there at the
deadline, with its rung and reason; closing leaves no process and no thread behind (a thread stuck in foreign
code ends with the interpreter); a forked child gets workers of its own.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from routepack_opt.errors import InputError, NoLayoutError
from routepack_opt.placement import Placement
from routepack_opt.planner.agreement import Gather, agree
from routepack_opt.planner.config import PlannerConfig
from routepack_opt.planner.fallback import fall_back, no_plan
from routepack_opt.planner.future import PlanFuture
from routepack_opt.planner.intake import Previous, Source, Ticket, check, shape_of, shape_wanted
from routepack_opt.planner.jobs import CancelledError, Job, JobClock
from routepack_opt.planner.request import OwnLayout
from routepack_opt.planner.reserve import Reserve
from routepack_opt.planner.warmup import warm_up as warm_up_kernels
from routepack_opt.planner.workers import ProcessWorker, Worker, start_worker
from routepack_opt.plans import Plan
from routepack_opt.problem import Problem

logger = logging.getLogger("routepack_opt")

_PATIENCE = 1.0  # seconds that closing waits for a cancelled job


class Planner:
    """Plans one window after another, warmed up and in time.

    Parameters
    ----------
    config : PlannerConfig or mapping
        See :meth:`PlannerConfig.from_dict`.
    warm_up : bool, default True
        Get every kernel ready now. Without it the first windows may be late.
    placement : Placement, optional
        Where the experts are when they do not start in canonical order.
    clock : callable
        Seconds; injected by tests.
    start : callable
        Starts a worker; injected by tests.

    Attributes
    ----------
    rungs : collections.Counter
        Windows by the rung of their plan.
    """

    def __init__(
        self,
        config: PlannerConfig | dict[str, Any],
        *,
        warm_up: bool = True,
        placement: Placement | None = None,
        clock: Callable[[], float] = time.perf_counter,
        start: Callable[[Any], Worker] = start_worker,
    ) -> None:
        self.config = config if isinstance(config, PlannerConfig) else PlannerConfig.from_dict(config)
        self._clock, self._start = clock, start
        self._last = self._agreed = no_plan(placement) if placement is not None else None
        self.rungs: Counter[str] = Counter()
        self._reserve = Reserve(self.config.search)
        self._open = True
        self._renew()
        if warm_up:
            self._warm_up()
        _planners.add(self)

    def _warm_up(self) -> None:
        worker = self._started()
        if isinstance(worker, ProcessWorker):
            worker.wait_ready()
        else:
            warm_up_kernels()

    def _renew(self) -> None:
        """Forget the worker and its windows; locks that a lost thread may hold are left alone."""
        self._turn = threading.Lock()
        self._tickets: list[Ticket] = []
        self._worker: Worker | None = None

    def _started(self) -> Worker:
        if self._worker is None:
            self._worker = self._start(self.config.search)
        return self._worker

    def forked(self) -> None:
        """Start afresh in a forked child: its threads are gone, and the process is its parent's."""
        if isinstance(self._worker, ProcessWorker):
            self._worker.let_go()
        self._renew()

    def plan(
        self,
        window: Source,
        own: OwnLayout | None = None,
        previous: Previous = "auto",
        **window_rules: Any,
    ) -> Plan:
        """Plan a window and wait for it; see :meth:`submit`."""
        return self.submit(window, own, previous, **window_rules).result()

    def submit(
        self,
        window: Source,
        own: OwnLayout | None = None,
        previous: Previous = "auto",
        **window_rules: Any,
    ) -> PlanFuture:
        """Start to plan a window.

        Parameters
        ----------
        window : Window, Problem or callable
            The sealed step. A callable is asked for the window by the planner, so that a replay that cannot
            be read is a fault like any other, and reading it counts against the deadline.
        own : Layout or nested sequence, optional
            The trainer's own layout: never made worse, and the fallback.
        previous : Plan, Placement or None, default "auto"
            Where the experts are now; "auto" is the plan before.
        **window_rules
            ``same_cell`` and ``row_class`` of this window.

        Returns
        -------
        PlanFuture

        Raises
        ------
        InputError
            When an argument is of the wrong kind, or the planner is closed.
        """
        if not self._open:
            raise InputError("an open planner", "a closed one", "Planner")
        check(window, own, previous, window_rules)
        self._abandon_stuck()
        worker = self._started()
        margin = self.config.search.margin
        clock = JobClock(self._clock, self.config.search.deadline)
        clock.keep(self._reserve.seconds)
        ticket = Ticket(window, own, previous, window_rules, clock, worker)
        ticket.future = PlanFuture(
            clock, margin, lambda s: self._hurry(ticket, s), lambda: self._late(ticket)
        )
        ticket.thread = threading.Thread(
            target=self._serve, args=(ticket, self._turn), name="routepack-planner", daemon=True
        )
        self._tickets = [t for t in self._tickets if t.thread.is_alive()] + [ticket]
        try:
            ticket.thread.start()
        except RuntimeError as error:  # the interpreter is shutting down
            self._fail(ticket, error)
        return ticket.future

    def fallback(self, reason: str, own: OwnLayout | None = None) -> Plan:
        """Return what a step runs without a plan: `own`, or nothing, under the present placement."""
        return fall_back(reason, placement=self._present(None), own=own)

    def agree(self, plan: Plan | None, gather: Gather, own: OwnLayout | None = None) -> Plan:
        """Make all ranks run the same plan; see :func:`routepack_opt.planner.agreement.agree`.

        Parameters
        ----------
        plan : Plan or None
            This rank's plan; None where another rank plans.
        gather : callable
            All-gather of bytes over the ranks.
        own : Layout or nested sequence, optional
            What all ranks run when they do not agree, under the placement of the last plan they agreed on.
        """
        agreed = agree(plan, gather, lambda reason: self._disagree(reason, own))
        self._last = self._agreed = agreed
        return agreed

    def _disagree(self, reason: str, own: OwnLayout | None) -> Plan:
        """Fall back to where all ranks are: not to a placement that only some were told."""
        self._last = self._agreed
        logger.warning("the step runs without a plan: %s", reason)
        return self.fallback(reason, own)

    def close(self) -> None:
        """Cancel what is in flight and give everything back; closing twice is no error."""
        self._open = False
        worker, self._worker = self._worker, None
        for ticket in self._tickets:
            self._fail(ticket, CancelledError("the planner was closed"))
            self._cancel(ticket)
        idle = self._join()
        if worker is not None:
            worker.end(wait=idle)
        if not idle:
            self._join()

    def _join(self) -> bool:
        """Wait a little for cancelled windows; say whether all have ended."""
        mine = [ticket.thread for ticket in self._tickets if ticket.thread is not threading.current_thread()]
        for thread in mine:
            if thread.ident is not None:
                thread.join(_PATIENCE)
        return not any(thread.is_alive() for thread in mine)

    def __enter__(self) -> Planner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self, ticket: Ticket, turn: threading.Lock) -> None:
        """Plan one window, in a thread of its own; windows take turns."""
        try:
            with turn:
                if ticket.future.done():
                    return
                ticket.problem = self._problem(ticket)
                ticket.ready = self._fallback_of(ticket, "not planned yet")
                job = Job(ticket.problem, self.config, ticket.own, self._previous(ticket))
                done = ticket.worker.run(job, ticket.clock, ticket.future.deliver)
            self._reserve.ended(ticket.clock.left)
            self._settle(ticket, lambda _: done.plan, timeline=done.timeline)
        except BaseException as error:
            self._fail(ticket, error)

    def _problem(self, ticket: Ticket) -> Problem:
        source = ticket.source() if callable(ticket.source) else ticket.source
        return source if isinstance(source, Problem) else self.config.problem(source, **ticket.rules)

    def _previous(self, ticket: Ticket) -> Plan | None:
        """Return the plan to start from, when it is of the same layers, experts and ranks."""
        previous = self._last if ticket.previous == "auto" else ticket.previous
        plan = no_plan(previous) if isinstance(previous, Placement) else previous
        assert ticket.problem is not None
        if not isinstance(plan, Plan) or shape_of(plan.placement) != shape_wanted(ticket.problem):
            return None
        return plan if plan.feasible else no_plan(plan.placement)

    def _present(self, problem: Problem | None) -> Placement:
        """Say where the experts are now."""
        wanted = shape_wanted(problem) if problem is not None else None
        if self._last is not None and wanted in (None, shape_of(self._last.placement)):
            return self._last.placement
        ranks = self.config.topology.ep
        return Placement.identity(*(wanted if wanted is not None else (0, ranks, ranks)))

    def _hurry(self, ticket: Ticket, seconds: float) -> None:
        ticket.clock.hurry(seconds)
        try:
            ticket.worker.hurry(seconds)
        except Exception as error:
            self._fail(ticket, error)

    def _late(self, ticket: Ticket) -> None:
        """Settle a window whose time is over."""
        self._fail(ticket, NoLayoutError(f"no plan within the deadline of {self.config.search.deadline} s"))
        self._reserve.missed()
        self._cancel(ticket)

    def _cancel(self, ticket: Ticket) -> None:
        ticket.clock.cancel()
        try:
            ticket.worker.cancel()
        except Exception as problem:  # its process is gone; the next window gets another
            logger.debug("cancelling failed: %s", problem)

    def _fail(self, ticket: Ticket, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"

        def build(delivered: Placement | None) -> Plan:
            ready = ticket.ready or self._fallback_of(ticket, reason)
            return replace(ready, reason=reason, placement=delivered or ready.placement)

        strict = self.config.on_error == "raise"
        self._settle(ticket, build, error=error if strict else None)

    def _fallback_of(self, ticket: Ticket, reason: str) -> Plan:
        """Build what the step runs without a plan: before planning, so that it is there when time is up."""
        now = self._present(ticket.problem)
        try:
            return fall_back(reason, placement=now, problem=ticket.problem, own=ticket.own)
        except Exception as error:  # an own layout that nothing can be done with
            return fall_back(f"{reason}; then {error}", placement=now, problem=ticket.problem)

    def _settle(self, ticket: Ticket, build: Callable[[Placement | None], Plan], **more: Any) -> None:
        plan = ticket.future.settle(build, **more)
        if plan is None:
            return
        if shape_of(plan.placement)[0] or self._last is None:
            self._last = plan
        self.rungs[plan.rung] += 1
        if plan.rung in ("own", "none") and self.rungs["own"] + self.rungs["none"] == 1:
            logger.warning(
                "no plan, the step runs on rung %r: %s (later ones are counted only)", plan.rung, plan.reason
            )

    def _abandon_stuck(self) -> None:
        """Replace the worker when it is dead, or still busy with a window that was given up."""
        stuck = any(t.future.done() and t.thread.is_alive() for t in self._tickets)
        if stuck:
            for ticket in self._tickets:
                ticket.thread.join(0.01)
            stuck = any(t.future.done() and t.thread.is_alive() for t in self._tickets)
        worker = self._worker
        dead = isinstance(worker, ProcessWorker) and worker.process.poll() is not None
        if stuck or dead:
            if worker is not None:
                worker.end(wait=False)
            self._renew()
            self._started()


_planners: weakref.WeakSet[Planner] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for planner in list(_planners):
        planner.close()


def _all_forked() -> None:
    for planner in list(_planners):
        planner.forked()


os.register_at_fork(after_in_child=_all_forked)
