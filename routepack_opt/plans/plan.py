"""`Plan`: the answer of the planner."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, digest, whole_number
from routepack_opt.certificates import RowCertificate
from routepack_opt.crossings import Crossings, count_crossings
from routepack_opt.errors import CheckError, InputError
from routepack_opt.layout import Cells, Layout
from routepack_opt.placement import Placement
from routepack_opt.plans.snapshot import Snapshot
from routepack_opt.plans.views import SlotView, inverse_order, order_by_slot, slot_view
from routepack_opt.problem import Problem
from routepack_opt.scoring import Score, loads_of, score_of

#: How far the planner came, from best to worst.
RUNGS = ("annealed", "incumbent", "seed", "own", "none")


@dataclass(frozen=True, eq=False)
class Plan:
    """Placement, layout and what is known about them.

    Attributes
    ----------
    layout : Layout or None
        Sample to cell; None only for the rung ``none``.
    placement : Placement
        Expert slots per layer.
    rows : RowCertificate
        The row count and how it is known.
    score : Score or None
        Exact score of the layout.
    bound, bound_any : int or None
        Lower bound on the primary component under this placement and over all placements, times the
        denominator; None when unknown.
    rung : str
        One of :data:`RUNGS`.
    reason : str or None
        Why the rung is not the first one.
    feasible : bool
        False only for a trainer's own layout that breaks a rule.
    broken_rule : str or None
        That rule.
    snapshot : Snapshot or None
        Numbers for tables, figures and reports.
    provenance : mapping
        Digests, seed, method, budget, versions, seconds and moves; JSON-serializable.
    trace : tuple of mapping
        Levels of the search.
    crossings : Crossings or None
        Assignments that leave their node; None unless the topology says `ranks_per_node`.
    """

    layout: Layout | None
    placement: Placement
    rows: RowCertificate
    score: Score | None
    bound: int | None
    bound_any: int | None
    rung: str
    reason: str | None = None
    feasible: bool = True
    broken_rule: str | None = None
    snapshot: Snapshot | None = None
    provenance: Mapping[str, Any] = field(default_factory=dict)
    trace: tuple[Mapping[str, Any], ...] = ()
    crossings: Crossings | None = None

    @property
    def cells(self) -> Cells:
        """``cells[r][d]``: sorted tuple of sample ids; empty without a layout."""
        return self.layout.cells if self.layout is not None else ()

    @property
    def gap(self) -> float | None:
        """(primary - bound) / bound under this placement; None when the bound is unknown or 0."""
        return self._gap(self.bound)

    @property
    def gap_any(self) -> float | None:
        """The same over all placements."""
        return self._gap(self.bound_any)

    def _gap(self, bound: int | None) -> float | None:
        if self.score is None or not bound:
            return None
        return (self.score.primary - bound) / bound

    def slot(self, d: int) -> SlotView:
        """Return what DP slot `d` runs: samples in execution order and, per row, positions into them."""
        layout = self._layout()
        return slot_view(layout, whole_number(d, "slot", high=layout.dp - 1))

    @cached_property
    def order(self) -> IntArray:
        """Window indices in slot-major order, int64 (N,)."""
        return order_by_slot(self._layout())

    @cached_property
    def inverse(self) -> IntArray:
        """Position of every sample in :attr:`order`, int64 (N,)."""
        return inverse_order(self.order)

    def _layout(self) -> Layout:
        if self.layout is None:
            raise InputError("a plan with a layout", f"rung 'none' ({self.reason})", "plan")
        return self.layout

    @cached_property
    def hash(self) -> str:
        """SHA-256 of every decision: problem, placement, cells and score. Equal on all ranks that agree."""
        cells = self.layout.cell_of_sample if self.layout is not None else ""
        score = repr(self.score.components) if self.score is not None else ""
        return digest(["plan", str(self.provenance.get("problem", "")), self.placement.digest, cells, score])

    def validate(self, problem: Problem) -> Plan:
        """Return the plan, or raise when it does not hold for `problem`.

        Raises
        ------
        CheckError
            When it was made for another problem, breaks a rule, or states another row count, score, bound or
            number of crossings than it has.
        """
        made_for = self.provenance.get("problem")
        if made_for != problem.digest:
            raise CheckError(f"plan: made for problem {str(made_for)[:12]}, not {problem.digest[:12]}")
        layout = self._layout()
        if self.feasible:
            self._check_rules(layout, problem)
        demand = self.placement.demand(problem.item_counts)
        found = score_of(problem, loads_of(problem, demand, layout))
        if found != self.score:
            raise CheckError(f"plan: states {self.score}, has {found}")
        for bound in (self.bound, self.bound_any):
            if bound is not None and found.primary < bound:
                raise CheckError(f"plan: primary {found.primary} below its bound {bound}")
        if self.crossings is not None:
            counted = count_crossings(problem, demand, layout)
            if counted != self.crossings.after:
                raise CheckError(f"plan: states {self.crossings.after} crossings, has {counted}")
        return self

    def _check_rules(self, layout: Layout, problem: Problem) -> None:
        broken = layout.broken_rule(problem)
        if broken is not None:
            raise CheckError(f"plan: expected {broken[0]}, found {broken[1]}")
        if self.rows.digest != problem.rows_digest or self.rows.rows != layout.rows:
            raise CheckError(f"plan: its certificate is for {self.rows.rows} rows, or for another problem")
        fullest = np.zeros(layout.rows * layout.dp, np.int64)
        np.add.at(fullest, layout.cell_of_sample, problem.aligned)
        fullest = fullest.reshape(layout.rows, layout.dp).max(axis=1)
        if problem.rules.row_order == "largest_first" and (np.diff(fullest) > 0).any():
            row = int(np.argmax(np.diff(fullest) > 0)) + 1
            raise CheckError(f"plan: row_order: row {row} is fuller than row {row - 1}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to `path` (`.npz`, fields in the docs page on file formats)."""
        from routepack_opt.plans.storage import save_plan

        save_plan(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Plan:
        """Read a plan written by :meth:`save`.

        Raises
        ------
        FormatError
            When the file is truncated, of another kind or of a newer schema.
        """
        from routepack_opt.plans.storage import load_plan

        return load_plan(path)
