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

LayerAxis = Literal["all", "moe"]


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
    except (ValueError, TypeError, RuntimeError) as error:
        raise InputError("an integer array", f"{type(values).__name__} ({error})", where) from None
    if array.size == 0 and array.dtype == np.float64:
        array = array.astype(np.int64)  # an empty list has no dtype of its own
    if array.dtype.kind not in "iu":
        raise InputError("integer expert ids", f"dtype {array.dtype}", where)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


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
    routes: Routes, model: MoEModel, axis: LayerAxis | None
) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return `routes.ids` as [rows, width] (C-contiguous) and the first column of every MoE layer.

    Raises
    ------
    InputError
        The shape fits no reading, or two.
    """
    ids = integer_array(routes.ids, routes.where)
    where, top_k = routes.where, model.top_k
    if ids.ndim == 3:
        if ids.shape[2] != top_k:
            remedy = "A fused shared expert adds a column: drop it" if ids.shape[2] > top_k else None
            raise InputError(f"top_k = {top_k} ids per token and layer", f"shape {ids.shape}", where, remedy)
        columns = layer_columns(ids.shape[1], model, where, axis)
    elif ids.ndim == 2:
        if ids.shape[1] % top_k:
            raise InputError(f"[rows, layers * {top_k}]", f"shape {ids.shape}", where)
        columns = layer_columns(ids.shape[1] // top_k, model, where, axis)
    elif ids.ndim == 1:
        layers = _flat_layers(ids.size, routes, model, axis)
        ids, columns = ids.reshape(-1, layers * top_k), layer_columns(layers, model, where, axis)
    else:
        raise InputError("one sample's routes with 1 to 3 axes", f"shape {ids.shape}", where)
    return np.ascontiguousarray(ids).reshape(ids.shape[0], -1 if ids.size else len(columns) * top_k), columns


def _flat_layers(size: int, routes: Routes, model: MoEModel, axis: LayerAxis | None) -> int:
    """Return the layers of a flat array: the one reading whose row count fits the length."""
    choices = {"all": model.layers, "moe": model.num_moe_layers}
    layers = {choices[axis]} if axis else set(choices.values())
    readings = sorted(count for count in layers if size % (count * model.top_k) == 0)
    due = routes.length - routes.start
    exact = [count for count in readings if size // (count * model.top_k) in (due - 1, due)]
    short = [count for count in readings if size // (count * model.top_k) < due - 1]
    fits = exact or short
    if len(fits) == 1:
        return fits[0]
    each = " or ".join(f"{count * model.top_k} (for {count} layers)" for count in sorted(layers))
    if not fits:
        raise InputError(f"{due - 1} or {due} rows of {each} ids", f"{size} ids", routes.where)
    found = f"{size} ids, which is " + " and ".join(
        f"{size // (c * model.top_k)} rows of {c} layers" for c in fits
    )
    raise InputError("one reading", found, routes.where, 'Say which: layer_axis="all" or layer_axis="moe"')
