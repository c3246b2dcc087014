"""Compiled scan of dual feasible functions over their parameters.

Guarantees: whole numbers only; for every function f and capacity C here, tokens that sum to at most C have
weights that sum to at most f(C).
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

IntArray = NDArray[np.int64]

FS_ROUNDING, FS_COUNTING, CCM, VANDERBECK, BURDET_JOHNSON = 0, 1, 2, 3, 4


@njit(cache=True, nogil=True)
def weight(family: int, parameter: int, cap: int, t: int) -> int:
    """Weight of t tokens under one function; t = cap gives K. See :mod:`routepack_opt.bounds.dff`."""
    if family == FS_ROUNDING:
        scaled = (parameter + 1) * t
        if scaled % cap == 0:
            return parameter * t
        return scaled // cap * cap
    if family == FS_COUNTING:
        whole = cap // parameter
        if t < parameter:
            return 0
        if 2 * t <= cap:
            return 1
        return whole - (cap - t) // parameter
    if family == CCM:
        if 2 * t > cap:
            return 2 * (cap // parameter - (cap - t) // parameter)
        if 2 * t == cap:
            return cap // parameter
        return 2 * (t // parameter)
    if family == VANDERBECK:
        if 2 * t == cap:
            return parameter - 1
        small = cap - t if 2 * t > cap else t
        value = 2 * max(0, -(-parameter * small // cap) - 1)
        return 2 * (parameter - 1) - value if 2 * t > cap else value
    rest = cap % parameter
    return t // parameter * (parameter - rest) + max(0, t % parameter - rest)


@njit(cache=True, nogil=True)
def weights_of(
    family: int, parameter: int, threshold: int, cap: int, tokens: IntArray
) -> tuple[IntArray, int]:
    """Weights after the threshold step (full above cap - threshold, nothing below threshold), and K."""
    result = np.empty(tokens.size, np.int64)
    for i in range(tokens.size):
        t = tokens[i]
        if t > cap - threshold:
            t = cap
        elif t < threshold:
            t = 0
        result[i] = weight(family, parameter, cap, t)
    return result, weight(family, parameter, cap, cap)


@njit(cache=True, nogil=True)
def scan(
    sizes: IntArray,
    counts: IntArray,
    cap: int,
    thresholds: IntArray,
    families: IntArray,
    parameters: IntArray,
    enough: int,
) -> tuple[int, int, int, int]:
    """Best (bins, family, parameter, threshold) over all pairs given; stops at `enough` bins."""
    best_bins, best_family, best_parameter, best_threshold = 0, -1, 0, 0
    clipped = np.empty(sizes.size, np.int64)
    for threshold in thresholds:
        for i in range(sizes.size):
            t = sizes[i]
            clipped[i] = cap if t > cap - threshold else (0 if t < threshold else t)
        for p in range(families.size):
            k = weight(families[p], parameters[p], cap, cap)
            if k <= 0:
                continue
            total = 0
            for i in range(sizes.size):
                if clipped[i] > 0:
                    total += counts[i] * weight(families[p], parameters[p], cap, clipped[i])
            bins = -(-total // k)
            if bins > best_bins:
                best_bins, best_family = bins, families[p]
                best_parameter, best_threshold = parameters[p], threshold
                if bins >= enough:
                    return best_bins, best_family, best_parameter, best_threshold
    return best_bins, best_family, best_parameter, best_threshold
