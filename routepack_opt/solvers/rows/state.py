"""The state of one certification: best bound and best packing per class, under one deadline.

Guarantees: bounds only rise, packings only improve, and the certificate is built from nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from routepack_opt.bounds.rows import WeightBound
from routepack_opt.certificates import RowBound
from routepack_opt.solvers.rows.grid import lay_out, rows_per_class, split_bins
from routepack_opt.solvers.rows.instance import ClassBins, IntArray, RowTask
from routepack_opt.solvers.rows.reduction import Core, core_of

if TYPE_CHECKING:
    from routepack_opt.problem import Problem
    from routepack_opt.solvers.rows.columns.guide import Guide

Progress = Callable[[dict[str, object]], None]


@dataclass
class ClassState:
    """What is known of one class: rows proven and rows packed, with their evidence."""

    bins: ClassBins
    lower: int = 1
    bound: RowBound | None = None
    upper: int | None = None
    where: IntArray | None = None
    patterns: list[IntArray] | None = None  # of column generation, for later rounds
    guide: Guide | None = None  # of column generation, to start annealing from

    @cached_property
    def core(self) -> Core:
        """What is left to pack beside bins that some best packing has."""
        return core_of(self.bins)

    @property
    def closed(self) -> bool:
        """Whether the packing meets the bound."""
        return self.upper == self.lower

    @property
    def enough_bins(self) -> int:
        """Bound on shared bins that would leave nothing below the packing held."""
        rows = self.bins.most_rows + 1 if self.upper is None else self.upper
        return self.bins.bins_of_rows(rows - 1) + 1

    def raise_lower(self, size: int, found: WeightBound) -> None:
        """Take a weight bound over if it proves more rows; ``size`` is the number of items of the problem."""
        rows = self.bins.rows_of_bins(found.bins)
        if rows > self.lower:
            weights = np.zeros(size, dtype=np.int64)
            weights[self.bins.items] = found.weights
            self.lower = rows
            self.bound = RowBound(rows, "weights", found.source, self.bins.row_class, weights, found.k)

    def raise_rows(self, bound: RowBound) -> None:
        """Take any other proof over if it proves more rows."""
        if bound.rows > self.lower:
            self.lower, self.bound = bound.rows, bound

    def offer(self, where: IntArray, used: int) -> None:
        """Take a packing into ``used`` shared bins over if it needs fewer rows and they can be filled."""
        rows = self.bins.rows_of_bins(used)
        if rows <= self.bins.most_rows and (self.upper is None or rows < self.upper):
            self.upper, self.where = rows, where

    def offer_core(self, where: IntArray, used: int) -> None:
        """Offer a packing of the core into ``used`` bins."""
        self.offer(self.core.whole(where), used + self.core.used)


@dataclass
class RowState:
    """Everything known about the rows of a window."""

    problem: Problem
    task: RowTask
    classes: list[ClassState]
    deadline: float
    clock: Callable[[], float] = time.monotonic
    progress: Progress | None = None
    forced: int | None = None
    whole: RowBound | None = None
    layout: IntArray | None = None  # flat cell of every item, where bins alone do not make a layout
    layout_rows: int | None = None
    annealed_at: int | None = None  # the bound that the short rounds of annealing last aimed at
    stages: list[tuple[str, float]] = field(default_factory=list)

    @property
    def lower(self) -> int:
        """Proven legal rows."""
        whole = self.whole.rows if self.whole is not None else 1
        return self.task.legal(max(whole, sum(c.lower for c in self.classes)))

    @property
    def upper(self) -> int | None:
        """Legal rows of the best packing, None when there is none."""
        binned = self._binned_rows()
        known = [rows for rows in (binned, self.layout_rows) if rows is not None]
        return min(known, default=None)

    def _binned_rows(self) -> int | None:
        """Legal rows of the classes' packings together; None where equal slots need more than bins."""
        rows = [c.upper for c in self.classes]
        if self.task.equal_slots or None in rows:
            return None
        legal = self.task.legal(max(sum(r for r in rows if r is not None), self.forced or 1))
        return legal if legal <= self.task.most_rows else None

    def offer_layout(self, layout: IntArray, rows: int) -> None:
        """Take a layout over if it has fewer rows."""
        if self.upper is None or rows < self.upper:
            self.layout, self.layout_rows = layout, rows

    @property
    def target(self) -> int:
        """The row count that the search aims at."""
        return max(self.forced or 1, self.lower)

    def class_target(self, known: ClassState) -> int:
        """Shared bins of the most rows that a class may have at the target of the window."""
        others = sum(c.lower for c in self.classes if c is not known)
        rows = max(known.lower, min(self.target - others, known.bins.most_rows))
        return known.bins.bins_of_rows(rows)

    @property
    def closed(self) -> bool:
        """Whether nothing is left to find."""
        return self.infeasible or (self.upper is not None and self.upper <= self.target)

    @property
    def infeasible(self) -> bool:
        """Whether the bound exceeds the rows that items can fill, or the rows asked for."""
        most = self.task.most_rows
        if self.forced is not None:
            most = min(most, self.forced) if self.task.legal(self.forced) == self.forced <= most else 0
        return self.lower > most or any(c.lower > c.bins.most_rows for c in self.classes)

    @property
    def remaining(self) -> float:
        """Seconds to the deadline, never negative."""
        return max(0.0, self.deadline - self.clock())

    def report(self, stage: str, seconds: float) -> None:
        """Note a finished stage and tell the listener."""
        self.stages.append((stage, seconds))
        if self.progress is not None:
            self.progress({"stage": stage, "lower": self.lower, "upper": self.upper, "seconds": seconds})

    def bounds(self) -> tuple[RowBound, ...]:
        """Evidence of the lower bound."""
        found = [c.bound for c in self.classes if c.bound is not None]
        return tuple(found + ([self.whole] if self.whole is not None else []))

    def packing(self) -> IntArray | None:
        """Give the best packing as the flat cell of every item, on exactly ``upper`` rows."""
        rows = self.upper
        if self.layout is not None and rows == self.layout_rows:
            return self.layout
        least = [c.upper for c in self.classes if c.upper is not None]
        if rows is None:
            return None
        shares = rows_per_class(self.task, least, rows)
        if shares is None:
            return None
        cells = []
        for state, share in zip(self.classes, shares, strict=True):
            assert state.where is not None
            cells.append(split_bins(state.bins, _balanced(state, share), share))
        return lay_out(self.task, cells)


def _balanced(state: ClassState, rows: int) -> IntArray:
    """Prefer the least loaded packing of the same rows, which leaves the row's cells even."""
    from routepack_opt.solvers.rows.heuristics import least_loaded_bins

    assert state.where is not None
    even = least_loaded_bins(state.bins, state.bins.bins_of_rows(rows))
    return state.where if even is None else even
