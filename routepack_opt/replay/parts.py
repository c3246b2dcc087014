"""Join the parts of one sample: turns, prompt and generation, resumed generations.

Guarantees: a row has one place, its token; rows that several parts hold are counted once (the first part that
has them stays); without start offsets parts are joined only if one reading fits the length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay.routes import LayerAxis, Routes, as_rows


@dataclass(frozen=True)
class Part:
    """Routes of consecutive tokens: their first token and how many they are, where that is known."""

    ids: Any
    start: int | None = None
    tokens: int | None = None


def join(
    parts: Sequence[Part],
    length: int,
    model: MoEModel,
    where: str,
    *,
    axis: LayerAxis | None,
    prompt: int | None,
) -> Routes:
    """Return the routes of a sample of `length` tokens from its parts.

    Raises
    ------
    InputError
        Layer axes of the parts differ, only some have a start, a part reaches beyond the sample, or both
        "one after the other" and "each repeats what came before" fit.
    """
    axis = axis or _stated_axis(parts, model)
    rows = [_rows(part, model, axis, f"{where}, part {i}") for i, part in enumerate(parts)]
    present = [i for i, part in enumerate(rows) if part is not None]
    if not present:
        return Routes(None, length, prompt=prompt, where=where)
    widths = sorted({rows[i].shape[1] for i in present})  # type: ignore[union-attr]
    if len(widths) > 1:
        found = " and ".join(str(width // model.top_k) for width in widths)
        raise InputError("the same layers in every part", f"{found} layers", where)
    starts = _starts(parts, [None if part is None else len(part) for part in rows], length, where)
    return _lay_out([(starts[i], rows[i]) for i in present], length, where, prompt)  # type: ignore[misc]


def _rows(part: Part, model: MoEModel, axis: LayerAxis | None, where: str) -> NDArray[Any] | None:
    if part.ids is None:
        return None
    rows = as_rows(part.ids, model, axis, where)[0]
    if part.tokens is not None and len(rows) > part.tokens:
        raise InputError(f"at most {part.tokens} rows for {part.tokens} tokens", f"{len(rows)}", where)
    return rows


def _stated_axis(parts: Sequence[Part], model: MoEModel) -> LayerAxis | None:
    """Return the layer axis of the first part that has a shape: flat parts of the sample have the same."""
    for part in parts:
        if part.ids is not None and part.ids.ndim == 3:
            return "all" if part.ids.shape[1] == model.layers else "moe"
    return None


def _starts(parts: Sequence[Part], sizes: list[int | None], length: int, where: str) -> list[int]:
    stated = [part.start for part in parts if part.start is not None]
    if len(stated) == len(parts):
        return stated
    if stated:
        found = f"{len(stated)} of {len(parts)}"
        raise InputError("a start offset for every part or for none", found, where)
    if None in sizes:
        raise InputError("a start offset for every part, as one has no routes", "none", where)
    known = [size for size in sizes if size is not None]
    full = (length - 1, length)
    in_turn, repeated = sum(known) in full, len(known) > 1 and known[-1] in full
    if in_turn and repeated and any(known[:-1]):
        found = (
            f"parts of {known} rows, which fit {length} tokens one after the other and each from the start"
        )
        raise InputError("one reading", found, where, "Give every part its start offset")
    if not in_turn and not repeated:
        found = f"parts of {known} rows for {length} tokens"
        raise InputError(
            "parts that add up, or a last part that holds all", found, where, "Give start offsets"
        )
    return [0] * len(known) if repeated else list(accumulate(known, initial=0))[:-1]


def _lay_out(placed: list[tuple[int, NDArray[Any]]], length: int, where: str, prompt: int | None) -> Routes:
    for start, rows in placed:
        if start < 0 or start + len(rows) > length:
            found = f"rows for tokens {start}..{start + len(rows) - 1}"
            raise InputError(f"rows within {length} tokens", found, where)
    first = min(start for start, _ in placed)
    end = max(start + len(rows) for start, rows in placed)
    if len(placed) == 1:
        return Routes(placed[0][1], length, first, prompt=prompt, where=where)
    dtype = np.result_type(*(rows.dtype for _, rows in placed))
    joined = np.zeros((end - first, placed[0][1].shape[1]), dtype)
    covered = np.zeros(end - first, np.bool_)
    for start, rows in placed:
        place = slice(start - first, start - first + len(rows))
        fresh = ~covered[place]
        joined[place][fresh] = rows[fresh]
        # An unset row leaves its place to a later part that has it.
        covered[place] |= (rows != -1).any(axis=1) if rows.dtype.kind == "i" else True
    present = np.zeros(end - first, np.bool_)
    for start, rows in placed:
        present[start - first : start - first + len(rows)] = True
    return Routes(joined, length, first, present, prompt, where)
