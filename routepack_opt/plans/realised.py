"""Planned against realised expert loads, after the step ran.

Guarantees: loads are compared as integers; counts that were forecast say so in every output.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.plans.plan import Plan


@dataclass(frozen=True, eq=False)
class Realised:
    """How the loads of a step differ from what was planned.

    Attributes
    ----------
    routing : str
        ``"exact"`` or ``"predicted"``: what the planned counts were.
    planned, realised : numpy.ndarray of int64
        Busiest-rank assignments summed over layers, of every row and shard, (R, G); for realised loads of
        shape (L, P), the loads of every layer and rank over the window.
    unit : str
        ``"peaks"`` or ``"loads"``: which of the two.
    assignments : tuple of int
        Planned and realised assignments in all; they differ when tokens were dropped or routed again.
    """

    routing: str
    planned: IntArray
    realised: IntArray
    unit: str
    assignments: tuple[int, int]

    @property
    def exact(self) -> bool:
        """Whether every compared number is the planned one."""
        return bool((self.planned == self.realised).all())

    @property
    def worst(self) -> tuple[int, ...] | None:
        """Index of the largest difference, (row, shard) or (layer, rank); None when there is none."""
        if self.exact:
            return None
        flat = int(np.abs(self.realised - self.planned).argmax())
        return tuple(int(k) for k in np.unravel_index(flat, self.planned.shape))

    @property
    def error(self) -> float:
        """Sum of the differences over the sum planned; 0 when nothing was planned and nothing came."""
        difference, planned = int(np.abs(self.realised - self.planned).sum()), int(self.planned.sum())
        return difference / planned if planned else float(difference > 0)

    def as_dict(self) -> dict[str, float]:
        """Return flat metrics, ``routepack/realised_*``."""
        return {
            "routepack/realised_exact": float(self.exact),
            "routepack/realised_error": self.error,
            "routepack/realised_over_planned": _ratio(int(self.realised.max()), int(self.planned.max())),
            "routepack/realised_assignments": float(self.assignments[1]),
            "routepack/predicted": float(self.routing == "predicted"),
        }

    def __str__(self) -> str:
        """One line for a log."""
        note = " (the planned counts were predicted)" if self.routing == "predicted" else ""
        if self.exact:
            return f"realised {self.unit} are as planned{note}"
        names = ("row", "shard") if self.unit == "peaks" else ("layer", "rank")
        worst = self.worst or (0, 0)
        where = ", ".join(f"{name} {k}" for name, k in zip(names, worst, strict=True))
        found = f"{int(self.realised[worst])} for {int(self.planned[worst])} planned"
        return f"realised {self.unit} differ by {self.error:.2%}, most at {where}: {found}{note}"


def compare(plan: Plan, realised_loads: Any) -> Realised:
    """Compare a plan with the expert loads of the step that ran it.

    Parameters
    ----------
    plan : Plan
        A plan with a snapshot: any but the fallbacks.
    realised_loads : array_like of int, shape (R, G, L, P) or (L, P)
        W[r,g,l,p] as counted by the trainer, or its sum over rows and shards.

    Returns
    -------
    Realised
        For (R, G, L, P) the sums over layers of the busiest rank are compared, the terms of Eq. 14.

    Raises
    ------
    InputError
        When the plan has no loads, or the shapes do not agree.
    """
    shot, score = plan.snapshot, plan.score
    if shot is None or score is None:
        raise InputError("a plan with its loads", f"rung {plan.rung!r} ({plan.reason})", "plan")
    loads = np.asarray(realised_loads)
    shape: tuple[int | None, ...] = (*shot.expert.shape, *shot.loads_plan.shape)
    if loads.ndim == 2:
        shape = shot.loads_plan.shape
    found = whole_numbers(loads, "realised_loads", shape=shape)
    routing = str(plan.provenance.get("routing", "exact"))
    total = int(shot.loads_plan.sum()), int(found.sum())
    if found.ndim == 2:
        return Realised(routing, shot.loads_plan, found, "loads", total)
    planned = shot.expert // (score.denominator // shot.capacity)  # scaled by S C, see Problem.expert_unit
    peaks = found.max(axis=3).sum(axis=2) if found.size else np.zeros_like(planned)
    return Realised(routing, planned, peaks, "peaks", total)


def _ratio(a: int, b: int) -> float:
    return a / b if b else float(a == b)
