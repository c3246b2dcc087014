"""What may be handed to a :class:`~routepack_opt.Planner`, and the ticket that a window gets there.

Guarantees: what is refused here is a mistake in the caller's code; what only this step's data break is not.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.planner.config import WINDOW_RULES
from routepack_opt.planner.future import PlanFuture
from routepack_opt.planner.jobs import JobClock
from routepack_opt.planner.request import OwnLayout
from routepack_opt.planner.workers import Worker
from routepack_opt.plans import Plan
from routepack_opt.problem import Problem
from routepack_opt.window import Window

Source = Window | Problem | Callable[[], Window | Problem]
Previous = Plan | Placement | Literal["auto"] | None


@dataclass(eq=False)
class Ticket:
    """One submitted window."""

    source: Source
    own: OwnLayout | None
    previous: Previous
    rules: dict[str, Any]
    clock: JobClock
    worker: Worker
    future: PlanFuture = field(init=False)
    problem: Problem | None = None
    ready: Plan | None = None  # the fallback
    thread: threading.Thread = field(init=False)


def check(source: Source, own: OwnLayout | None, previous: Previous, rules: dict[str, Any]) -> None:
    """Refuse arguments of the wrong kind: they are mistakes in the trainer's code, not faults of a step."""
    if not isinstance(source, (Window, Problem)) and not callable(source):
        raise InputError("a Window, a Problem or a callable", type(source).__name__, "window")
    if not (previous is None or isinstance(previous, (Plan, Placement)) or previous == "auto"):
        raise InputError("a Plan, a Placement, None or 'auto'", repr(previous), "previous")
    for name in rules:
        if name not in WINDOW_RULES:
            raise InputError(" or ".join(map(repr, WINDOW_RULES)), repr(name), "window rules")
    window = source.window if isinstance(source, Problem) else source
    if own is not None and not isinstance(own, Layout):
        Layout.from_cells(own, size=window.size if isinstance(window, Window) else None)


def shape_of(placement: Placement) -> tuple[int, int, int]:
    """Layers, experts and ranks of a placement."""
    return placement.num_layers, placement.num_experts, placement.ranks


def shape_wanted(problem: Problem) -> tuple[int, int, int]:
    """Layers, experts and ranks of a problem's placements."""
    return problem.window.num_layers, problem.window.num_experts, problem.topology.ep
