"""Routing of alignment pads: whole assignments by largest remainder, added once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, frozen
from routepack_opt.errors import InputError
from routepack_opt.window import Window

_WEIGHT_BITS = (
    30  # weights become whole numbers of this size, so that shares are exact and equal on every host
)


def add_pads(window: Window, pads: IntArray, routing: Any) -> npt.NDArray[np.int32]:
    """Add ``pads[i] * top_k`` assignments to every layer of sample i.

    Parameters
    ----------
    window : Window
        Its counts are the start; its model gives top-k.
    pads : numpy.ndarray of int64, shape (N,)
        Alignment tokens t_i - n_i.
    routing : "none", "uniform" or nested tuple
        Weights (E,) or (L, E) of who carries them.

    Returns
    -------
    numpy.ndarray of int32, shape (N, L, E)

    Raises
    ------
    InputError
        When the window's model is unknown or the weights have another shape.
    """
    layers, experts = window.counts.shape[1:]
    if layers == 0 or (isinstance(routing, str) and routing == "none"):
        return window.counts
    weights = np.ones(experts) if isinstance(routing, str) else np.asarray(routing, np.float64)
    if weights.shape not in ((experts,), (layers, experts)):
        raise InputError(
            f"weights of shape ({experts},) or ({layers}, {experts})", f"{weights.shape}", "rules.pad_routing"
        )
    if not pads.any():
        return window.counts
    if window.model is None:
        remedy = "Build the window with model=MoEModel(...)"
        raise InputError("a window whose model says top_k", "no model", "rules.pad_routing", remedy)
    most = int(window.lengths.max()) + int(pads.max()) * window.model.top_k
    if most >= 2**31:
        raise InputError("counts with pads below 2^31", f"up to {most}", "rules.length_multiple")
    rows = np.broadcast_to(weights, (layers, experts))
    whole = np.rint(rows / rows.max(axis=1, keepdims=True) * 2**_WEIGHT_BITS).astype(np.int64)
    counts = window.counts.copy()
    for amount in np.unique(pads[pads > 0]):
        share = np.stack([largest_remainder(int(amount) * window.model.top_k, w) for w in whole])
        counts[pads == amount] += share.astype(np.int32)
    return frozen(counts)


def largest_remainder(total: int, weights: IntArray) -> IntArray:
    """Share `total` in proportion to whole `weights`, left-over units to the largest remainders.

    Parameters
    ----------
    total : int
        Units to share.
    weights : numpy.ndarray of int64, shape (E,)
        At least 0, with a positive sum.

    Returns
    -------
    numpy.ndarray of int64, shape (E,)
        Sums to `total`.
    """
    whole = [int(w) * total for w in weights]
    base = int(weights.sum())
    share = np.array([w // base for w in whole], np.int64)
    order = sorted(range(len(whole)), key=lambda e: (-(whole[e] % base), e))
    share[order[: total - int(share.sum())]] += 1
    return share
