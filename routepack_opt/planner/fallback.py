"""What a step runs when there is no plan: the trainer's own layout, or nothing, and why.

Guarantees: never raises; the placement is one that the trainer already has or was already given.
"""

from __future__ import annotations

from typing import Any

from routepack_opt.certificates import RowCertificate
from routepack_opt.errors import RoutePackError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.planner.request import OwnLayout
from routepack_opt.plans import Plan
from routepack_opt.problem import Problem

UNCHECKED = "unchecked"  # broken rule of an own layout whose window could not be read


def fall_back(
    reason: str,
    *,
    placement: Placement,
    problem: Problem | None = None,
    own: OwnLayout | None = None,
) -> Plan:
    """Build the plan of the rungs ``own`` and ``none``.

    Parameters
    ----------
    reason : str
        Why there is no better one.
    placement : Placement
        Where the experts are, or where they are already being moved to.
    problem : Problem, optional
        Left out when the window itself cannot be used; an own layout is then unchecked.
    own : Layout or nested sequence, optional
        The trainer's own layout.

    Returns
    -------
    Plan
        Without a score, which would take time that is not there; ``feasible`` is False when the own layout
        breaks a rule or could not be checked.
    """
    provenance = _provenance(problem)
    layout, trouble = _read(own, problem)
    if layout is None:
        rows = _certificate(None, problem)
        text = reason if trouble is None else f"{reason}; the own layout cannot be read: {trouble}"
        return Plan(None, placement, rows, None, None, None, "none", text, provenance=provenance)
    broken: str | None = UNCHECKED
    if problem is not None:
        found = layout.broken_rule(problem)
        broken = found[0] if found is not None else None
    return Plan(
        layout,
        placement,
        _certificate(layout, problem if broken is None else None),
        None,
        None,
        None,
        "own",
        reason,
        feasible=broken is None,
        broken_rule=broken,
        provenance=provenance,
    )


def no_plan(placement: Placement) -> Plan:
    """Wrap a placement that a trainer starts from, so that it can stand for a previous plan."""
    return fall_back("not planned: the placement that was given", placement=placement)


def _read(own: OwnLayout | None, problem: Problem | None) -> tuple[Layout | None, str | None]:
    if own is None or isinstance(own, Layout):
        return own, None
    try:
        return Layout.from_cells(own, size=problem.window.size if problem is not None else None), None
    except RoutePackError as error:
        return None, str(error)


def _certificate(layout: Layout | None, problem: Problem | None) -> RowCertificate:
    """Hold the rows of a layout that keeps the rules, and claim nothing."""
    rows = layout.rows if layout is not None else None
    packing = layout.cell_of_item(problem) if layout is not None and problem is not None else None
    status = "best_known" if packing is not None else "unknown"
    digest = problem.rows_digest if problem is not None else ""
    return RowCertificate(rows, None, status, (), packing, digest, "interrupted")


def _provenance(problem: Problem | None) -> dict[str, Any]:
    values: dict[str, Any] = {"method": "fallback", "moves": None, "proposals": 0, "reproducible": False}
    if problem is not None:
        window = problem.window
        values |= {"problem": problem.digest, "window": window.digest, "routing": window.routing}
        values["policy_version"] = window.policy_version
    return values
