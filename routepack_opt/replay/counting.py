"""Routes of one sample -> counts, and what became of each row.

Guarantees: no row is counted in one layer and not in another; ids outside 0..E-1 and lost pipeline stages are
an error under every policy; the other bad rows are what the policy makes of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import CheckError, InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay.result import Policy
from routepack_opt.replay.routes import LayerAxis, Routes, as_rows

_FOREIGN_REMEDY = (
    "The ids may be physical (after expert placement) or hold a fused shared-expert column: record logical "
    "ids before any remapping; or the model has more experts"
)
_LOST_REMEDY = 'Fix the capture, or choose policy="count" (count the valid rows) or policy="rescale"'
_MASK_REMEDY = "Pass mask= with True for every real row (or mask=True to vouch for all of them)"


@dataclass(frozen=True)
class Counting:
    """How to count: the model, and what to do about rows that are not valid."""

    model: MoEModel
    policy: Policy = "error"
    layer_axis: LayerAxis | None = None
    repeat_limit: int | None = 64
    vouched: bool = False


@dataclass(frozen=True)
class SampleCount:
    """Counts [L, E] of one sample and what became of its rows."""

    length: int
    counts: NDArray[np.int32]
    prompt: int | None = None
    expected: int = 0
    rows: dict[str, int] = field(default_factory=dict)  # kept, missing, filler, corrupt, padded
    longest_run: int = 0


def count_sample(routes: Routes, how: Counting) -> SampleCount:
    """Count one sample.

    Raises
    ------
    InputError
        Rows do not fit the length, an id is out of range, a whole layer is lost, or rows are lost and the
        policy is ``error``.
    """
    model, length = how.model, routes.length
    if routes.ids is None:
        rows, columns = np.zeros((0, model.num_moe_layers * model.top_k), np.uint8), np.zeros(0, np.int64)
    else:
        rows, columns = as_rows(routes.ids, model, how.layer_axis, routes.where, length - routes.start)
    end = routes.start + len(rows)
    if routes.start < 0 or end > length:
        raise InputError(
            f"at most {length} rows for {length} tokens",
            f"rows for tokens {routes.start}..{end - 1}",
            routes.where,
            "The sample was truncated after its routes were recorded, or parts were joined twice",
        )
    if model.top_k == 1 and len(rows) and routes.mask is None and not how.vouched:
        raise InputError(
            "a mask: filler cannot be told from routes with top_k = 1", "none", routes.where, _MASK_REMEDY
        )
    use = None
    if routes.mask is not None:
        use = np.ascontiguousarray(routes.mask, np.bool_)
        if use.shape != (len(rows),):
            raise InputError(f"a mask of {len(rows)} rows", f"shape {use.shape}", routes.where)
    scanned = scan(rows, columns, model, use)
    _refuse(scanned, rows, columns, routes, how)
    return _settle(routes, how, scanned, end)


@dataclass(frozen=True)
class Scan:
    """What one pass over rows found.

    Counts [L, E], the status of each row, the invalid rows of each layer, rows counted, the longest run of
    identical rows and the row after it.
    """

    counts: NDArray[np.int32]
    status: NDArray[np.uint8]
    lost: NDArray[np.int64]
    kept: int = 0
    longest: int = 0
    longest_end: int = 0


def scan(
    rows: NDArray[Any], columns: NDArray[np.int64], model: MoEModel, use: NDArray[np.bool_] | None = None
) -> Scan:
    """Count rows [rows, width] whose MoE layers begin at `columns`; `use` tells which are real.

    Raises
    ------
    CheckError
        The counts of a layer do not sum to K times the rows counted: a bug here, never the caller's.
    """
    from routepack_opt.replay import _kernels

    hist = np.zeros((model.num_moe_layers, model.experts + 1), np.int32)
    status, lost = np.zeros(len(rows), np.uint8), np.zeros(model.num_moe_layers, np.int64)
    counts = hist[:, :-1]
    if not len(rows):
        return Scan(counts, status, lost)
    stamp, real = np.zeros(model.experts + 1, np.int64), np.zeros(0, np.bool_) if use is None else use
    kept, longest, end = _kernels.count_rows(
        rows, columns, model.top_k, model.experts, real, status, lost, hist, stamp
    )
    if (counts.sum(axis=1, dtype=np.int64) != model.top_k * kept).any() or hist[:, -1].any():
        raise CheckError(f"counts of a layer do not sum to {model.top_k} * {kept} rows")
    return Scan(counts, status, lost, kept, longest, end)


def _refuse(
    scanned: Scan, rows: NDArray[Any], columns: NDArray[np.int64], routes: Routes, how: Counting
) -> None:
    """Refuse what no policy accepts, and under ``error`` a capture that repeats itself."""
    from routepack_opt.replay._kernels import ROW_MASKED

    if scanned.kept < len(rows):
        _refuse_foreign(rows, columns, scanned.status, routes, how.model)
        _refuse_lost_layer(scanned.lost, int((scanned.status != ROW_MASKED).sum()), routes)
    longest, end = scanned.longest, scanned.longest_end
    if how.policy == "error" and how.repeat_limit and longest >= how.repeat_limit:
        raise InputError(
            f"fewer than {how.repeat_limit} identical rows in succession",
            f"{longest}, rows {end - longest}..{end - 1}",
            routes.where,
            "The capture repeats itself (warm-up or a replayed graph); pass repeat_limit=None if it is real",
        )


def _refuse_foreign(
    rows: NDArray[Any], columns: NDArray[np.int64], status: NDArray[np.uint8], routes: Routes, model: MoEModel
) -> None:
    from routepack_opt.replay._kernels import ROW_FOREIGN

    bad = np.flatnonzero(status == ROW_FOREIGN)
    if not bad.size:
        return
    ids = rows[bad[0]][columns[:, None] + np.arange(model.top_k)]
    layer, k = np.argwhere(ids >= model.experts)[0]
    place = f"{routes.where}, token {routes.start + bad[0]}, MoE layer {layer}, choice {k}"
    raise InputError(f"expert ids 0..{model.experts - 1}", f"{ids[layer, k]}", place, _FOREIGN_REMEDY)


def _refuse_lost_layer(lost: NDArray[np.int64], rows: int, routes: Routes) -> None:
    """Refuse a layer without a valid row beside layers that have some: a pipeline stage is lost."""
    gone = np.flatnonzero(lost == rows)
    # Two rows at least: a lone bad row says nothing about the layer.
    if rows > 1 and 0 < gone.size < lost.size and (lost < rows - 1).any():
        raise InputError(
            "routes in every MoE layer",
            f"none valid in MoE layers {gone.tolist()}",
            routes.where,
            "The routes of a pipeline stage are lost; no policy can count them",
        )


def _settle(routes: Routes, how: Counting, scanned: Scan, end: int) -> SampleCount:
    """Sort the rows into kept and lost, and apply the policy ``error``."""
    from routepack_opt.replay import _kernels as kernels

    length, status, padded = routes.length, scanned.status, 0
    no_route = (kernels.ROW_MASKED, kernels.ROW_MISSING, kernels.ROW_FILLER)
    if end == length and status.size and status[-1] in no_route:
        status, padded = status[:-1], 1  # the last token's row: never fed, so not lost
    expected = length if end == length and not padded and status.size else length - 1
    tally = np.bincount(status, minlength=6).tolist()
    rows = {
        "kept": tally[kernels.ROW_KEPT],
        "missing": tally[kernels.ROW_MASKED] + tally[kernels.ROW_MISSING] + expected - len(status),
        "filler": tally[kernels.ROW_FILLER],
        "corrupt": tally[kernels.ROW_CORRUPT],
        "padded": padded,
    }
    if how.policy == "error" and rows["kept"] < expected:
        bad = np.flatnonzero(status != kernels.ROW_KEPT)
        first = 0 if routes.start else int(bad[0]) if bad.size else end
        lost = ", ".join(f"{rows[name]} {name}" for name in ("missing", "filler", "corrupt") if rows[name])
        raise InputError(
            f"{expected} valid rows", f"{lost} (first: token {first})", routes.where, _LOST_REMEDY
        )
    return SampleCount(length, scanned.counts, routes.prompt, expected, rows, scanned.longest)
