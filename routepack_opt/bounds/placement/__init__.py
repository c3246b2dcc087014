"""Lower bounds on the busiest rank of a layer, over all placements.

Guarantees: no placement with the same number of experts on every rank goes below a bound; exact integers; the
same loads give the same bound on every host, because searches are limited in steps and not in time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray

STEPS = 200_000  # per layer: about two milliseconds, which settles most layers of 32 experts on 8 ranks
_DEEP = 16  # ranks beyond which a search ends within few steps, or not at all


def rank_peaks(loads: npt.NDArray[Any], ranks: int, steps: int = STEPS) -> IntArray:
    """Bound, per layer, the load of the busiest rank over all placements.

    Parameters
    ----------
    loads : numpy.ndarray of int, shape (L, E)
        Load of every expert, not negative.
    ranks : int
        P; every rank owns H = E / P experts.
    steps : int, optional
        Work of :func:`split_layer` per layer.

    Returns
    -------
    numpy.ndarray of int64, shape (L,)
        At least :func:`counting_peaks`.
    """
    table = loads.astype(np.int64)
    bound = counting_peaks(table, ranks)
    for layer, row in enumerate(table):
        bound[layer], _ = split_layer(row, ranks, int(bound[layer]), steps)
    return bound


def split_layer(loads: IntArray, ranks: int, low: int, steps: int = STEPS) -> tuple[int, IntArray | None]:
    """Raise a bound on one layer by trying, exhaustively, to stay at limits above it.

    Parameters
    ----------
    loads : numpy.ndarray of int64, shape (E,)
        Loads of the experts.
    ranks : int
        P.
    low : int
        A bound already known.
    steps : int, optional
        Work allowed, in steps of some ten nanoseconds; beyond 16 ranks it falls with their square.

    Returns
    -------
    low : int
        The bound. Every limit below it was proven impossible.
    slots : numpy.ndarray of int64, shape (E,), or None
        The best placement found on the way, least possible when its peak equals `low`.
    """
    settled = ranks < 2 or loads.size < 2 * ranks
    if settled or steps <= 0 or int(loads.max()) * loads.size >= 2**61:  # room for limits above the bound
        return low, None
    from routepack_opt.bounds.placement._kernels import narrow

    steps = steps * _DEEP**2 // max(ranks, _DEEP) ** 2
    slots = np.empty(loads.size, np.int64)
    order = np.argsort(-loads, kind="stable")
    low, high, _ = narrow(loads, order, ranks, low, steps, slots)
    return int(low), slots if high >= 0 else None


def counting_peaks(loads: npt.NDArray[Any], ranks: int) -> IntArray:
    """Bound, per layer, the load of the busiest rank by averages and by counting the hottest experts.

    Parameters and result are those of :func:`rank_peaks`. The bound is the largest of

    - the average over all ranks, rounded up;
    - for every k up to H: the k smallest of the ``(k - 1) P + 1`` hottest experts, some k of which share a
      rank, with the H - k coldest;
    - for every k up to P: the k hottest experts either sit on k ranks, which hold k (H - 1) others and of
      which one has the average, or two of them share a rank; the smaller of the two loads counts.
    """
    layers, experts = loads.shape
    if loads.size == 0:
        return np.zeros(layers, np.int64)
    held = experts // ranks
    ordered = -np.sort(-loads.astype(np.int64), axis=1)
    running = np.concatenate([np.zeros((layers, 1), np.int64), np.cumsum(ordered, axis=1)], axis=1)

    def coldest(count: IntArray) -> IntArray:
        return np.asarray(running[:, -1:] - running[:, experts - count], np.int64)

    k = np.arange(1, held + 1)
    last = (k - 1) * ranks + 1
    together = running[:, last] - running[:, last - k] + coldest(held - k)
    average = -(-running[:, -1:] // ranks)
    parts = [average, together]
    if held > 1 and ranks > 1:
        k = np.arange(2, ranks + 1)
        pair = running[:, k] - running[:, k - 2] + coldest(np.array([held - 2]))
        apart = -(-(running[:, k] + coldest(k * (held - 1))) // k)
        parts.append(np.minimum(pair, apart))
    return np.asarray(np.concatenate(parts, axis=1).max(axis=1), np.int64)
