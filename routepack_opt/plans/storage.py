"""The file form of a plan: see the docs page on file formats, field by field."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt import files
from routepack_opt.arrays import frozen
from routepack_opt.certificates import RowCertificate
from routepack_opt.crossings import Crossings
from routepack_opt.errors import FormatError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.plans.plan import RUNGS, Plan
from routepack_opt.plans.snapshot import Snapshot
from routepack_opt.scoring import Score

KIND, SCHEMA = "plan", 1
_ARRAYS = (
    "lengths",
    "aligned",
    "alone",
    "cell_tokens",
    "attention",
    "expert",
    "loads_identity",
    "loads_plan",
)


def save_plan(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write `plan` to `path`."""
    meta: dict[str, Any] = {
        "ranks": plan.placement.ranks,
        "rows": plan.rows.to_json(),
        "score": [str(x) for x in (*plan.score.components, plan.score.denominator)] if plan.score else None,
        "bound": _text(plan.bound),
        "bound_any": _text(plan.bound_any),
        "rung": plan.rung,
        "reason": plan.reason,
        "feasible": plan.feasible,
        "broken_rule": plan.broken_rule,
        "provenance": dict(plan.provenance),
        "trace": [dict(level) for level in plan.trace],
        "hash": plan.hash,
    }
    if plan.crossings is not None:
        meta["crossings"] = {name: str(value) for name, value in asdict(plan.crossings).items()}
    arrays: dict[str, npt.NDArray[Any]] = {"slot_of_expert": plan.placement.slot_of_expert}
    if plan.layout is not None:
        arrays["cell_of_sample"] = plan.layout.cell_of_sample
        meta["shape"] = [plan.layout.rows, plan.layout.dp]
    if plan.snapshot is not None:
        shot = plan.snapshot
        arrays |= {name: getattr(shot, name) for name in _ARRAYS}
        meta["snapshot"] = {
            "stages": list(shot.stages),
            "capacity": shot.capacity,
            "cell_cap": shot.cell_cap,
            "table": {name: dict(row) if row is not None else None for name, row in shot.table.items()},
            "notes": list(shot.notes),
        }
    files.save_npz(path, KIND, SCHEMA, meta, arrays)


def load_plan(path: str | os.PathLike[str]) -> Plan:
    """Read a plan; see :meth:`Plan.load`."""
    meta, arrays = files.load_npz(path, KIND, SCHEMA)
    try:
        plan = _decode(meta, arrays)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise FormatError("a complete plan", f"{type(error).__name__}: {error}", str(path)) from error
    if plan.hash != meta.get("hash"):
        found = f"{plan.hash[:12]}, stated {str(meta.get('hash'))[:12]}"
        raise FormatError("contents that match the stated hash", found, str(path))
    return plan


def _decode(meta: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Plan:
    layout = Layout(arrays["cell_of_sample"], *meta["shape"]) if "cell_of_sample" in arrays else None
    if meta["rung"] not in RUNGS:
        raise FormatError(f"one of {RUNGS}", repr(meta["rung"]), "rung")
    return Plan(
        layout=layout,
        placement=Placement(arrays["slot_of_expert"], meta["ranks"]),
        rows=RowCertificate.from_json(meta["rows"]),
        score=Score(*(int(x) for x in meta["score"])) if meta["score"] else None,
        bound=_number(meta["bound"]),
        bound_any=_number(meta["bound_any"]),
        rung=meta["rung"],
        reason=meta["reason"],
        feasible=meta["feasible"],
        broken_rule=meta["broken_rule"],
        snapshot=_snapshot(meta["snapshot"], arrays) if "snapshot" in meta else None,
        provenance=meta["provenance"],
        trace=tuple(meta["trace"]),
        crossings=_crossings(meta.get("crossings")),
    )


def _snapshot(meta: dict[str, Any], arrays: dict[str, npt.NDArray[Any]]) -> Snapshot:
    values = {name: frozen(np.asarray(arrays[name])) for name in _ARRAYS}
    return Snapshot(
        **values,
        stages=tuple(meta["stages"]),
        capacity=meta["capacity"],
        cell_cap=meta["cell_cap"],
        table=meta["table"],
        notes=tuple(meta["notes"]),
    )


def _crossings(meta: dict[str, str] | None) -> Crossings | None:
    return None if meta is None else Crossings(**{name: int(value) for name, value in meta.items()})


def _text(value: int | None) -> str | None:
    return None if value is None else str(value)


def _number(value: str | None) -> int | None:
    return None if value is None else int(value)
