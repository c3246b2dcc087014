"""The few numbers of a plan that belong on a training dashboard.

Guarantees: at most twenty flat keys, always the same; a number that is unknown is None, never 0.
"""

from __future__ import annotations

from routepack_opt.plans.plan import RUNGS, Plan

_TABLE_KEYS = ("joint", "attention", "ep_peak_sum", "ep_tail_peak", "ep_balance_efficiency", "cv_global")


def metrics(plan: Plan) -> dict[str, float | None]:
    """Return flat metrics of a plan; the docs page on metrics defines each with its formula.

    Parameters
    ----------
    plan : Plan
        Any plan, of any rung.

    Returns
    -------
    dict of str to float or None
        Keys start with ``routepack/``.
    """
    table = plan.snapshot.table if plan.snapshot is not None else {}
    mine, baseline = table.get("routepack") or {}, table.get("baseline") or {}
    result: dict[str, float | None] = {f"routepack/{key}": mine.get(key) for key in _TABLE_KEYS}
    routing = plan.provenance.get("routing")
    joint, start = mine.get("joint"), baseline.get("joint")
    result |= {
        "routepack/joint_over_baseline": joint / start if joint is not None and start else None,
        "routepack/rows": plan.rows.rows,
        "routepack/rows_lower_bound": plan.rows.lower_bound,
        "routepack/rows_certified": float(plan.rows.status == "certified"),
        "routepack/gap": plan.gap,
        "routepack/gap_any": plan.gap_any,
        "routepack/rung": float(RUNGS.index(plan.rung)),
        "routepack/feasible": float(plan.feasible),
        "routepack/seconds": plan.provenance.get("seconds"),
        "routepack/experts_moved": plan.provenance.get("moves"),
        "routepack/bytes_moved": plan.provenance.get("bytes_moved"),
        "routepack/proposals": plan.provenance.get("proposals"),
        "routepack/predicted": None if routing is None else float(routing == "predicted"),
        "routepack/token_fill": plan.snapshot.fill if plan.snapshot is not None else None,
    }
    return result
