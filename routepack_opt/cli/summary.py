"""A plan as a JSON record and as text for people."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from routepack_opt.cli.output import forecast, number, out, percent, print_table
from routepack_opt.crossings import Crossings
from routepack_opt.errors import InfeasibleError, NoLayoutError
from routepack_opt.plans import Plan
from routepack_opt.report.facts import LAYOUTS, METRICS, crossings_text, metric_texts

_HEAD = ("layout", *(name for name, _ in METRICS.values()))


def plan_record(plan: Plan) -> dict[str, Any]:
    """Return the JSON form of a plan's results; integers that may exceed 2^53 are strings."""
    score = plan.score
    record = {
        "rows": plan.rows.rows,
        "rows_lower_bound": plan.rows.lower_bound,
        "rows_status": plan.rows.status,
        "score": None if score is None else _score(plan),
        "bound_float": _unit(plan, plan.bound),
        "gap": plan.gap,
        "bound_any_float": _unit(plan, plan.bound_any),
        "gap_any": plan.gap_any,
        "rung": plan.rung,
        "reason": plan.reason,
        "feasible": plan.feasible,
        "seconds": plan.provenance.get("seconds"),
        "proposals": plan.provenance.get("proposals"),
        "moves": plan.provenance.get("moves"),
        "routing": plan.provenance.get("routing"),
        "stages": list(plan.snapshot.stages) if plan.snapshot is not None else [],
        "hash": plan.hash,
        "metrics": dict(plan.snapshot.table) if plan.snapshot is not None else {},
        "notes": list(plan.snapshot.notes) if plan.snapshot is not None else [],
        "cells": [[list(cell) for cell in row] for row in plan.cells],
    }
    return record if plan.crossings is None else record | {"crossings": _crossings(plan.crossings)}


def failure_record(error: InfeasibleError | NoLayoutError) -> dict[str, Any]:
    """Return the JSON form of a problem without a plan: no rows, and why."""
    rule = error.rule if isinstance(error, InfeasibleError) else None
    message = error.message if isinstance(error, InfeasibleError) else str(error)
    status = "infeasible" if isinstance(error, InfeasibleError) else "unknown"
    return {"rows": None, "rows_status": status, "rule": rule, "message": message}


def _score(plan: Plan) -> dict[str, Any]:
    assert plan.score is not None
    names = ("primary", "total", "row_peak")
    exact = {name: str(value) for name, value in zip(names, plan.score.components, strict=True)}
    floats = {f"{name}_float": value for name, value in zip(names, plan.score.as_float(), strict=True)}
    return exact | floats | {"denominator": str(plan.score.denominator)}


def _crossings(found: Crossings) -> dict[str, Any]:
    exact = {name: str(getattr(found, name)) for name in ("before", "after", "total")}
    return exact | {"ranks": found.ranks, "ranks_per_node": found.ranks_per_node, "share": found.share}


def _unit(plan: Plan, value: int | None) -> float | None:
    return None if value is None or plan.score is None else value / plan.score.denominator


def print_plan(plan: Plan, warm: float | None = None, output: Path | None = None) -> None:
    """Print the rows, the comparison and the gaps of a plan."""
    shot = plan.snapshot
    out.print(_rows_line(plan))
    if shot is not None:
        out.print(f"cells {percent(shot.fill, 1)} full, {_moves_line(plan)}")
        if shot.stages:
            out.print(f"attention stages (name:alpha:beta) {', '.join(shot.stages)}")
        rows = [[name, *metric_texts(shot.table[key])] for key, name in LAYOUTS.items() if key in shot.table]
        out.print()
        print_table("What each layout costs (joint = busiest shard's straggler time)", _HEAD, rows)
        for note in shot.notes:
            out.print(f"note: {note}")
        out.print()
    out.print(_gap_line(plan))
    if plan.crossings is not None:
        out.print(crossings_text(plan.crossings))
    out.print(_end_line(plan, warm))
    if output is not None:
        out.print(f"written to {output}")


def _rows_line(plan: Plan) -> str:
    rows = plan.rows
    known = {
        "certified": "certified: fewer rows cannot hold the window",
        "best_known": f"best known, at least {rows.lower_bound} are needed",
    }.get(rows.status, rows.status)
    note = forecast(plan.provenance.get("routing"))
    return f"{rows.rows} rows x {plan.layout.dp if plan.layout else 0} slots ({known}){note}"


def _moves_line(plan: Plan) -> str:
    moves, moved = plan.provenance.get("moves"), plan.provenance.get("bytes_moved")
    size = f" ({moved / 2**30:.2f} GiB)" if isinstance(moved, int) else ""
    return f"{moves} experts change rank{size}"


def _gap_line(plan: Plan) -> str:
    under, anyhow = _unit(plan, plan.bound), _unit(plan, plan.bound_any)
    return (
        f"above the proven bound by {percent(plan.gap)} under this placement (bound {number(under)}), "
        f"{percent(plan.gap_any)} over all placements (bound {number(anyhow)})"
    )


def _end_line(plan: Plan, warm: float | None) -> str:
    facts = plan.provenance
    reason = f" ({plan.reason})" if plan.reason else ""
    ready = f", kernels ready in {warm:.1f} s before" if warm is not None else ""
    seconds = facts.get("seconds")
    took = f"{seconds:.3f} s" if isinstance(seconds, float) else "?"
    same = "reproducible" if facts.get("reproducible") else "not reproducible (deadline)"
    done = f"{facts.get('proposals', 0):,} proposals in {took}{ready}"
    return f"{plan.rung}{reason}, {done}; {same}; hash {plan.hash[:16]}"
