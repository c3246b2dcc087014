"""One sample's routes as they arrived, and the one place that resolves their axes.

Guarantees: the layer axis is decided by the model and never guessed from the ids; a reading that is not the
only possible one is an error that names both. Arrays keep their dtype.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay.npzfiles import ArrayStream, Stream

LayerAxis = Literal["all", "moe"]

_FUSED = "One id more per token and layer is a fused shared expert: drop that column"


@dataclass(frozen=True)
class Routes:
    """One sample as it arrived.

    Parameters
    ----------
    ids : integer array or None
        Routed experts [rows, layers, K], [rows, layers * K] or flat; ``None`` when the system lost them.
    length : int
        Tokens n of the sample.
    start : int
        Token of the first row.
    mask : bool array [rows], optional
        Rows that are real.
    prompt : int, optional
        The prompt that the sample answers.
    where : str
        What to call the sample in messages.
    """

    ids: NDArray[Any] | None
    length: int
    start: int = 0
    mask: NDArray[np.bool_] | None = None
    prompt: int | None = None
    where: str = "sample"


def integer_array(values: Any, where: str) -> NDArray[Any]:
    """Return `values` as a native-endian array of its own integer dtype; anything else is refused."""
    try:
        array = np.asarray(values)
    except (ValueError, TypeError, RuntimeError, OverflowError, MemoryError) as error:
        raise InputError("an integer array", f"{type(values).__name__} ({error})", where) from None
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)  # an empty list has no dtype of its own
    if array.dtype.kind not in "iu":
        raise InputError("integer expert ids", f"dtype {array.dtype}", where)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def row_stream(values: Any, where: str) -> Stream | ArrayStream:
    """Return routes of several samples as rows to be taken in order."""
    stream = values if isinstance(values, Stream) else ArrayStream(integer_array(values, where))
    if not stream.shape:
        raise InputError("[rows, layers, top-k]", "a scalar", where)
    return stream


def layer_columns(
    layers: int, model: MoEModel, where: str, axis: LayerAxis | None = None
) -> NDArray[np.int64]:
    """Return the first column of every MoE layer in a row of `layers` * K ids.

    Raises
    ------
    InputError
        The axis holds neither all decoder layers nor the MoE layers alone.
    """
    known = {"all": model.layers, "moe": model.num_moe_layers}
    accepted = [known[axis]] if axis else list(known.values())
    if layers not in accepted:
        names = {
            "all": f"{model.layers} (all decoder layers)",
            "moe": f"{model.num_moe_layers} (MoE layers only)",
        }
        raise InputError(
            names[axis] if axis else f"{names['all']} or {names['moe']}",
            f"{layers} layers",
            f"{where}, layer axis",
            "Check layers and dense_layers of the model, and that the axes are [token, layer, top-k]",
        )
    if layers == model.num_moe_layers:
        return np.arange(layers, dtype=np.int64) * model.top_k
    return np.asarray(model.moe_layers, np.int64) * model.top_k


def as_rows(
    ids: Any, model: MoEModel, axis: LayerAxis | None, where: str, due: int | None = None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Resolve the axes of one sample's routes, or of a part of them.

    Parameters
    ----------
    ids : integer array
        [rows, layers, K], [rows, layers * K] or flat.
    model : MoEModel
        Decides what `layers` may be.
    axis : {"all", "moe"} or None
        The caller's word on the layer axis.
    where : str
        Name for messages.
    due : int, optional
        Tokens that the rows belong to; tells readings of a flat array apart.

    Returns
    -------
    rows : integer array [rows, width]
        C-contiguous, in the dtype of `ids`.
    columns : int64 array [L]
        First column of every MoE layer.

    Raises
    ------
    InputError
        The shape fits no reading, or two.
    """
    ids, top_k = integer_array(ids, where), model.top_k
    if ids.ndim == 3:
        if ids.shape[2] != top_k:
            remedy = _FUSED if ids.shape[2] == top_k + 1 else None
            raise InputError(f"top_k = {top_k} ids per token and layer", f"shape {ids.shape}", where, remedy)
        layers = ids.shape[1]
    elif ids.ndim == 2:
        layers, rest = divmod(ids.shape[1], top_k)
        remedy = None if layers in (model.layers, model.num_moe_layers) else _fused(ids.shape[1], model)
        if rest or remedy:
            raise InputError(f"[rows, layers * {top_k}]", f"shape {ids.shape}", where, remedy)
    elif ids.ndim == 1:
        layers = _flat_layers(ids.size, model, axis, where, due)
    else:
        raise InputError("one sample's routes with 1 to 3 axes", f"shape {ids.shape}", where)
    columns = layer_columns(layers, model, where, axis)
    rows = ids.size // (layers * top_k) if ids.ndim == 1 else ids.shape[0]
    flat = np.ascontiguousarray(ids).reshape(rows, layers * top_k).view()
    flat.setflags(write=False)  # compiled code is made for each kind of array: one kind per dtype is enough
    return flat, columns


def _fused(size: int, model: MoEModel, due: int | None = None) -> str | None:
    """Explain a size that fits one more id per token and layer, in `due` rows or one less, or in one."""
    rows = (1,) if due is None else (due - 1, due)
    fits = {count * n * (model.top_k + 1) for count in (model.layers, model.num_moe_layers) for n in rows}
    return _FUSED if size in fits else None


def _flat_layers(size: int, model: MoEModel, axis: LayerAxis | None, where: str, due: int | None) -> int:
    """Return the layers of a flat array: the one reading whose row count fits."""
    choices = {"all": model.layers, "moe": model.num_moe_layers}
    layers = sorted({choices[axis]} if axis else set(choices.values()))
    rows = {count: size // (count * model.top_k) for count in layers if size % (count * model.top_k) == 0}
    if due is not None:
        exact = [count for count in rows if rows[count] in (due - 1, due)]
        short = [count for count in rows if rows[count] < due - 1]
        rows = {count: rows[count] for count in exact or short}
    if len(rows) == 1:
        return next(iter(rows))
    if not rows:
        each = " or ".join(f"{count * model.top_k} (for {count} layers)" for count in layers)
        wanted = f"{due - 1} or {due} rows" if due is not None else "whole rows"
        remedy = _fused(size, model, due)
        raise InputError(f"{wanted} of {each} ids", f"{size} ids", where, remedy)
    found = f"{size} ids: " + " or ".join(f"{r} rows of {count} layers" for count, r in rows.items())
    raise InputError("one reading", found, where, 'Say which: layer_axis="all" or layer_axis="moe"')
