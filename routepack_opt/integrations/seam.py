"""Where a trainer asks for a layout, whatever the trainer.

Guarantees: the answer is a plan that keeps the trainer's rules, or None, upon which the trainer runs its own
function; nothing is raised that the trainer would not have raised (unless ``on_error="raise"``); a plan is
made only for the slots and the capacity that the planner was set up for.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.model import MoEModel
from routepack_opt.planner import Planner
from routepack_opt.planner.request import OwnLayout
from routepack_opt.plans import Plan, metrics
from routepack_opt.problem import LayoutRules, Problem
from routepack_opt.window import Window, read_replay

logger = logging.getLogger("routepack_opt")

_OF_COUNTS = ("routing", "policy_version")  # options of a replay that hold for counts as well


class Seam:
    """One place of a trainer at which a planner is asked.

    Parameters
    ----------
    planner : Planner
        Set up with the trainer's topology, capacity, stages and rules.
    model : MoEModel, optional
        Shape of the model, without which the replay that a trainer carries is not read.
    **replay
        Options of :func:`routepack_opt.read_replay`, such as ``policy="count"`` or ``routing="predicted"``.

    Attributes
    ----------
    plans : list of Plan
        Plans of the last batch, one for each optimizer step in it; where the experts belong is in each.
    outcomes : collections.Counter
        Windows by what ran: ``planned`` or ``own``.
    reason : str or None
        Why the last window ran the trainer's own layout.
    """

    def __init__(self, planner: Planner, *, model: MoEModel | None = None, **replay: Any) -> None:
        self.planner, self.model, self.replay = planner, model, replay
        self.plans: list[Plan] = []
        self.outcomes: Counter[str] = Counter()
        self.reason: str | None = None

    def begin(self) -> None:
        """Start a batch: forget the plans of the one before."""
        self.plans = []

    def plan(
        self,
        lengths: Sequence[int],
        *,
        dp: int,
        capacity: int | None = None,
        counts: Any = None,
        routing: Any = None,
        form: str | None = None,
        own: Callable[[], OwnLayout | None] | None = None,
        **rules: Any,
    ) -> Plan | None:
        """Plan the samples of one optimizer step.

        Parameters
        ----------
        lengths : sequence of int, length N
            Raw tokens of every sample.
        dp, capacity : int
            What the trainer runs with; the planner must be set up for the same.
        counts : array_like of int, shape (N, L, E), or callable, optional
            Routed tokens, or what returns them.
        routing : optional
            Replay of the samples, or what returns it; read where there are no counts and the model is known.
            Without either the window is packed by length.
        form : str, optional
            Form of the replay, where it carries no marker.
        own : callable, optional
            Returns the cells that the trainer would have run, or None where it has none.
        **rules
            Rules of the trainer at this place, joined with the planner's.

        Returns
        -------
        Plan or None
            None when the trainer shall run its own function; :attr:`reason` says why.
        """
        try:
            cells = _whole(own, len(lengths)) if own is not None else None
            found = self.planner.plan(
                lambda: self._problem(self._window(lengths, counts, routing, form), dp, capacity, rules),
                own=cells,
            )
        except Exception as error:  # whatever one step's data can do to a planner, the step goes on
            self.fail(error)
            return None
        self.plans.append(found)
        if found.layout is None or found.rung in ("own", "none"):
            self.refuse(found.reason or found.rung)
            return None
        self.outcomes["planned"] += 1
        return found

    def fail(self, error: Exception) -> None:
        """Refuse a window for an error, or raise it with ``on_error="raise"``."""
        if self.planner.config.on_error == "raise":
            raise error
        self.refuse(f"{type(error).__name__}: {error}")

    def refuse(self, reason: str) -> None:
        """Count a window that runs the trainer's own layout, and log the first of them."""
        self.reason = reason
        self.outcomes["own"] += 1
        if self.outcomes["own"] == 1:
            logger.warning(
                "the trainer runs its own layout: %s (later windows are counted only)", self.reason
            )

    def metrics(self) -> dict[str, float | None]:
        """Return :func:`routepack_opt.metrics` of the last plan, and how many windows ran which layout."""
        values: dict[str, float | None] = metrics(self.plans[-1]) if self.plans else {}
        return values | {
            f"routepack/windows_{name}": float(self.outcomes[name]) for name in ("planned", "own")
        }

    def _window(self, lengths: Sequence[int], counts: Any, routing: Any, form: str | None) -> Window:
        sizes = np.asarray(lengths, np.int64)
        if counts is not None:
            given = np.asarray(counts() if callable(counts) else counts)
            named = {name: self.replay[name] for name in _OF_COUNTS if name in self.replay}
            return Window.from_counts(sizes, given, **named)
        found = None if self.model is None else routing() if callable(routing) else routing
        if found is None or self.model is None:
            return Window.from_lengths(sizes)
        return read_replay(found, self.model, lengths=sizes, **({"form": form} | self.replay))

    def _problem(self, window: Window, dp: int, capacity: int | None, rules: Mapping[str, Any]) -> Problem:
        config = self.planner.config
        for name, mine, theirs in (
            ("DP slots", config.topology.dp, dp),
            ("tokens per cell", config.capacity, capacity),
        ):
            if theirs is not None and int(theirs) != mine:
                raise InputError(f"{mine} {name}, as the planner is set up", f"{theirs}", "the trainer")
        joined = join_rules(config.rules, rules)
        return Problem(window, config.topology, config.capacity, config.stages, joined, config.expert_bytes)


def join_rules(rules: LayoutRules, wanted: Mapping[str, Any]) -> LayoutRules:
    """Return rules that keep both: the planner's, and what a trainer wants at one place.

    Multiples are joined by their least common multiple, floors by the larger, ceilings by the smaller; every
    other rule is the trainer's where it names one.
    """
    given = {name: value for name, value in wanted.items() if value is not None}
    default = {f.name: getattr(LayoutRules(), f.name) for f in fields(LayoutRules)}
    for name in ("length_multiple", "cell_multiple", "row_multiple"):
        given[name] = math.lcm(int(given.get(name, 1)), getattr(rules, name))
    given["min_rows"] = max(int(given.get("min_rows", 1)), rules.min_rows)
    limits = [v for v in (given.get("max_samples_per_cell"), rules.max_samples_per_cell) if v is not None]
    given["max_samples_per_cell"] = min(limits, default=None)
    for name, value in default.items():
        if given.get(name, value) == value:
            given.pop(name, None)
    return replace(rules, **given)


def _whole(own: Callable[[], OwnLayout | None], size: int) -> OwnLayout | None:
    """Return the trainer's cells, or None when it has none or they are no layout of the window."""
    try:
        cells = own()
        return cells if cells is None or isinstance(cells, Layout) else Layout.from_cells(cells, size=size)
    except Exception as error:
        logger.debug("the trainer's own layout cannot be compared with: %s", error)
        return None
