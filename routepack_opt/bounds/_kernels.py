"""Compiled scan of dual feasible functions over their parameters.

Guarantees: whole numbers only; for every function f and capacity C here, tokens that sum to at most C have
weights that sum to at most f(C).
"""

from __future__ import annotations

from typing import Any

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
def _between(running: IntArray, low: int, high: int) -> Any:
    """Sum what ``running`` accumulates over tokens from ``low`` to ``high``."""
    return running[high + 1] - running[low] if high >= low else np.int64(0)


@njit(cache=True, nogil=True)
def _mirrored(whole: int, step: int, cap: int, low: int, high: int, count: IntArray) -> Any:
    """Sum ``whole - floor((cap - t) / step)`` over the items above half the capacity."""
    total = np.int64(0)
    start = cap // 2 + 1
    for k in range((cap - start) // step + 1):
        first = max(cap - (k + 1) * step + 1, start, low)
        total += (whole - k) * _between(count, first, min(cap - k * step, high))
    return total


@njit(cache=True, nogil=True)
def _vanderbeck(k: int, cap: int, low: int, high: int, count: IntArray) -> Any:
    """Sum the family's weights over items of ``low`` to ``high`` tokens."""
    total = np.int64(0)
    half = (cap - 1) // 2
    for j in range(1, k + 1):
        # from `a` to `b` tokens, ceil(k t / cap) is j
        a, b = (j - 1) * cap // k + 1, min(j * cap // k, half)
        first = 0 if j == 1 else a
        if first > half:
            break
        total += 2 * (j - 1) * _between(count, max(a, low), min(b, high))
        total += 2 * (k - j) * _between(count, max(cap - b, low), min(cap - first, high))
    if cap % 2 == 0:
        total += (k - 1) * _between(count, max(cap // 2, low), min(cap // 2, high))
    return total


@njit(cache=True, nogil=True)
def counted(
    family: int, parameter: int, cap: int, low: int, high: int, count: IntArray, tokens: IntArray
) -> Any:
    """Sum the weights of all items of ``low`` to ``high`` tokens, range by range of equal (or linear) weight.

    ``count[t]`` and ``tokens[t]`` are the number and the tokens of the items of fewer than t tokens.
    """
    total = np.int64(0)
    if family == FS_ROUNDING:
        for j in range(parameter + 2):
            first, last = -(-j * cap // (parameter + 1)), -(-(j + 1) * cap // (parameter + 1)) - 1
            total += j * cap * _between(count, max(first, low), min(last, high))
            if j * cap % (parameter + 1) == 0 and low <= first <= high:
                total += (parameter * first - j * cap) * _between(count, first, first)
        return total
    if family == FS_COUNTING:
        total += _between(count, max(parameter, low), min(cap // 2, high))
        return total + _mirrored(cap // parameter, parameter, cap, low, high, count)
    if family == CCM:
        half = (cap - 1) // 2
        for k in range(1, half // parameter + 1):
            last = min((k + 1) * parameter - 1, half, high)
            total += k * _between(count, max(k * parameter, low), last)
        total = 2 * (total + _mirrored(cap // parameter, parameter, cap, low, high, count))
        if cap % 2 == 0:
            total += cap // parameter * _between(count, max(cap // 2, low), min(cap // 2, high))
        return total
    if family == VANDERBECK:
        return _vanderbeck(parameter, cap, low, high, count)
    rest = cap % parameter
    for k in range(high // parameter + 1):
        base, last = k * parameter, min((k + 1) * parameter - 1, high)
        total += k * (parameter - rest) * _between(count, max(base, low), last)
        first = max(base + rest + 1, low)
        total += _between(tokens, first, last) - (base + rest) * _between(count, first, last)
    return total


@njit(cache=True, nogil=True)
def scan(
    count: IntArray,
    tokens: IntArray,
    cap: int,
    thresholds: IntArray,
    families: IntArray,
    parameters: IntArray,
    enough: int,
) -> tuple[int, int, int, int]:
    """Best (bins, family, parameter, threshold) over all pairs given; stops at `enough` bins."""
    best_bins, best_family, best_parameter, best_threshold = 0, -1, 0, 0
    for threshold in thresholds:
        high = cap - threshold
        full = _between(count, high + 1, cap)
        for p in range(families.size):
            k = weight(families[p], parameters[p], cap, cap)
            if k <= 0:
                continue
            total = k * full + counted(families[p], parameters[p], cap, threshold, high, count, tokens)
            bins = -(-total // k)
            if bins > best_bins:
                best_bins, best_family = bins, families[p]
                best_parameter, best_threshold = parameters[p], threshold
                if bins >= enough:
                    return best_bins, best_family, best_parameter, best_threshold
    return best_bins, best_family, best_parameter, best_threshold
