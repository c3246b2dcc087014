"""The promise of a plan: its placement as soon as that is known, the plan in time.

Guarantees: settled exactly once, whoever comes first; the plan that is returned has the placement that was
delivered before it; nobody waits longer than the deadline.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from routepack_opt.placement import Placement
from routepack_opt.planner.jobs import JobClock
from routepack_opt.planner.timeline import Timeline
from routepack_opt.plans import Plan


class PlanFuture:
    """What :meth:`routepack_opt.Planner.submit` returns.

    Parameters
    ----------
    clock : JobClock
        Time of the job, up to the moment at which the plan is handed over.
    margin : float
        Part of the time kept for handing over.
    hurry : callable
        Told the seconds left when they become fewer.
    late : callable
        Told when the time is over; it settles the future.
    """

    def __init__(
        self, clock: JobClock, margin: float, hurry: Callable[[float], None], late: Callable[[], None]
    ) -> None:
        self._clock, self._margin, self._hurry, self._late = clock, margin, hurry, late
        self._lock = threading.Lock()
        self._known, self._done = threading.Event(), threading.Event()
        self._placement: Placement | None = None
        self._plan: Plan | None = None
        self._error: BaseException | None = None
        self._timeline = Timeline()

    def done(self) -> bool:
        """Say whether there is a plan, or an error."""
        return self._done.is_set()

    def placement(self, timeout: float | None = None) -> Placement | None:
        """Wait for the placement; packing goes on meanwhile.

        Parameters
        ----------
        timeout : float, optional
            Seconds to wait; the window's deadline when left out.

        Returns
        -------
        Placement or None
            None when it is not known in time. The plan of this window will have this placement.
        """
        self._known.wait(self._seconds(timeout))
        return self._placement

    def result(self, deadline: float | None = None) -> Plan:
        """Wait for the plan.

        Parameters
        ----------
        deadline : float, optional
            Seconds from now; the search is cut short to keep it. The window's own deadline when left out, or
            when that is earlier.

        Returns
        -------
        Plan
            The best there is in time, or the fallback with the reason.

        Raises
        ------
        Exception
            What went wrong, only with ``on_error="raise"``.
        """
        seconds = self._seconds(deadline)
        if deadline is not None and seconds is not None and not self.done():
            self._hurry(seconds * (1 - self._margin))
        if not self._done.wait(seconds):
            self._late()
        if self._error is not None:
            raise self._error
        assert self._plan is not None
        return self._plan

    def timeline(
        self, *, actor: float | None = None, aux: float | None = None, admit: float | None = None
    ) -> Timeline:
        """Return the measured times of this window (Eqs. 19-20).

        Parameters
        ----------
        actor, aux, admit : float, optional
            Seconds that the trainer measured: T_actor, T_aux and T_admit.
        """
        return replace(self._timeline, actor=actor, aux=aux, admit=admit)

    def _seconds(self, timeout: float | None) -> float | None:
        limits = [max(limit, 0.0) for limit in (self._clock.wait, timeout) if limit is not None]
        return min(limits) if limits else None

    def deliver(self, placement: Placement) -> bool:
        """Make the placement known; False when the future is settled already."""
        with self._lock:
            if self._done.is_set():
                return False
            self._placement = placement
            self._known.set()
            return True

    def settle(
        self,
        build: Callable[[Placement | None], Plan],
        *,
        timeline: Timeline | None = None,
        error: BaseException | None = None,
    ) -> Plan | None:
        """Settle with the plan that `build` makes for the delivered placement, or with an error.

        Returns
        -------
        Plan or None
            None when someone else was first.
        """
        with self._lock:
            if self._done.is_set():
                return None
            self._plan, self._error = build(self._placement), error
            if self._placement is None:
                self._placement = self._plan.placement
            self._timeline = timeline or self._timeline
            self._known.set()
            self._done.set()
            return self._plan
