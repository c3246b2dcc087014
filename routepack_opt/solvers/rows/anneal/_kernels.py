"""Compiled annealing of a packing into a fixed number of cells, where the cost is what breaks the rules.

Guarantees: the violation it returns is exact (0 means that every rule holds); the same arguments give the
same packing; randomness is its own xorshift generator.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@njit(cache=True, nogil=True)
def _draw(state: Any) -> Any:
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@njit(cache=True, nogil=True)
def _move(item: int, cell: int, where: IntArray, after: IntArray, before: IntArray) -> None:
    """Move an item into another cell's ring; the ring of cell c goes through the sentinel items + c."""
    after[before[item]] = after[item]
    before[after[item]] = before[item]
    sentinel = where.size + cell
    after[item] = after[sentinel]
    before[item] = sentinel
    before[after[sentinel]] = item
    after[sentinel] = item
    where[item] = cell


@njit(cache=True, nogil=True)
def _broken(load: int, held: int, cap: int, limit: int, fill: bool, penalty: int) -> int:
    """Measure what one cell breaks, in tokens: overflow, samples over the limit, emptiness."""
    total = max(0, load - cap) + penalty * max(0, held - limit)
    return total + penalty if fill and held == 0 else total


@njit(cache=True, nogil=True)
def _spread(load: int, cap: int) -> float:
    """Reward for slack that is concentrated in few cells, where large items can use it."""
    slack = float(max(0, cap - load))
    return 0.05 * slack * slack / cap


@njit(cache=True, nogil=True)
def _partners(item: Any, draw: Any, kind: Any, size: int, after: IntArray) -> tuple[Any, Any]:
    """Draw what comes back for an item: one of like size (kind 1 to 3), or any one and its neighbour."""
    j: Any = draw % size
    k: Any = -1
    if kind < 4:
        # a distance in the order of sizes, on a logarithmic scale
        width = max(1, size >> (draw % 10))
        j = (item + 1 + (draw >> 8) % width) % size
        if draw & 64:
            j = (item + size - 1 - (draw >> 8) % width) % size
    else:
        k = after[j] if after[j] < size else after[after[j]]
        if k == j:
            k = -1
    return j, k


@njit(cache=True, nogil=True)
def _lay(
    tokens: IntArray,
    samples: IntArray,
    where: IntArray,
    after: IntArray,
    before: IntArray,
    load: IntArray,
    held: IntArray,
    slot: IntArray,
) -> None:
    """Put every item into the ring and the sums of its cell."""
    for item in range(tokens.size):
        cell = where[item]
        _move(item, cell, where, after, before)
        load[cell] += tokens[item]
        held[cell] += samples[item]
        slot[cell % slot.size] += samples[item]


@njit(cache=True, nogil=True)
def _all_broken(
    load: IntArray,
    held: IntArray,
    slot: IntArray,
    cap: int,
    limit: int,
    share: int,
    fill: bool,
    blocked: IntArray,
    penalty: int,
) -> int:
    """Sum what all cells and slots break."""
    total = 0
    for cell in range(load.size):
        if not blocked[cell]:
            total += _broken(load[cell], held[cell], cap, limit, fill, penalty)
    if share >= 0:
        for d in range(slot.size):
            total += penalty * abs(slot[d] - share)
    return total


@njit(cache=True, nogil=True)
def _change(
    a: Any,
    b: Any,
    flow: Any,
    count: Any,
    load: IntArray,
    held: IntArray,
    slot: IntArray,
    cap: int,
    limit: int,
    share: int,
    fill: bool,
    penalty: int,
) -> int:
    """How much more is broken when `flow` tokens and `count` samples go from cell a to cell b."""
    change = (
        _broken(load[a] - flow, held[a] - count, cap, limit, fill, penalty)
        + _broken(load[b] + flow, held[b] + count, cap, limit, fill, penalty)
        - _broken(load[a], held[a], cap, limit, fill, penalty)
        - _broken(load[b], held[b], cap, limit, fill, penalty)
    )
    c, d = a % slot.size, b % slot.size
    if share >= 0 and c != d:
        change += penalty * (
            abs(slot[c] - count - share)
            + abs(slot[d] + count - share)
            - abs(slot[c] - share)
            - abs(slot[d] - share)
        )
    return change


@njit(cache=True, nogil=True)
def anneal(
    tokens: IntArray,
    samples: IntArray,
    start: IntArray,
    low: IntArray,
    high: IntArray,
    cells: int,
    cap: int,
    limit: int,
    share: int,
    slot_offset: IntArray,
    fill: bool,
    blocked: IntArray,
    seed: int,
    proposals: int,
    hot: float,
    cold: float,
) -> tuple[IntArray, int]:
    """Anneal item relocations, exchanges of one for one and of one for two.

    Item i may use the cells from ``low[i]`` to ``high[i]``. With ``share >= 0`` every slot (cell modulo their
    number) must hold that many samples, ``slot_offset`` of them already there; ``fill`` asks that no cell be
    empty; ``blocked`` cells hold an oversize sample and take nothing. Temperatures are in tokens.
    """
    size, where, slot = tokens.size, start.copy(), slot_offset.copy()
    after, before = np.arange(size + cells), np.arange(size + cells)
    load, held = np.zeros(cells, np.int64), np.zeros(cells, np.int64)
    _lay(tokens, samples, where, after, before, load, held, slot)
    penalty = max(1, cap // 8)
    broken = _all_broken(load, held, slot, cap, limit, share, fill, blocked, penalty)
    state: Any = np.uint64(seed) | np.uint64(1)
    temperature, factor = hot, (cold / hot) ** (1000.0 / max(1000, proposals))
    for step in range(proposals):
        if broken == 0 or size == 0:
            break
        if step % 1000 == 999:
            temperature *= factor
        state = _draw(state)
        i: Any = np.int64((state >> np.uint64(11)) % np.uint64(size))
        if load[where[i]] <= cap and (state & np.uint64(1)):
            state = _draw(state)  # a second chance to meet an overfull cell
            i = np.int64((state >> np.uint64(11)) % np.uint64(size))
        kind: Any = np.int64(state >> np.uint64(4)) % 8
        state = _draw(state)
        draw: Any = np.int64(state >> np.uint64(11))
        j: Any = -1
        k: Any = -1
        a, b = where[i], low[i] + draw % (high[i] - low[i])
        if kind > 0:
            j, k = _partners(i, draw, kind, size, after)
            b = where[j]
        if a == b or blocked[b] or low[i] > b or high[i] <= b or (j >= 0 and (low[j] > a or high[j] <= a)):
            continue
        flow = tokens[i] - (tokens[j] if j >= 0 else 0) - (tokens[k] if k >= 0 else 0)
        count = samples[i] - (samples[j] if j >= 0 else 0) - (samples[k] if k >= 0 else 0)
        change = _change(a, b, flow, count, load, held, slot, cap, limit, share, fill, penalty)
        delta = change + _spread(load[a], cap) + _spread(load[b], cap)
        delta -= _spread(load[a] - flow, cap) + _spread(load[b] + flow, cap)
        if delta > 0:
            state = _draw(state)
            if float(state >> np.uint64(11)) / 9007199254740992.0 >= math.exp(-delta / temperature):
                continue
        broken += change
        _shift(a, b, flow, count, load, held, slot)
        _move(i, b, where, after, before)
        if j >= 0:
            _move(j, a, where, after, before)
        if k >= 0:
            _move(k, a, where, after, before)
    return where, broken


@njit(cache=True, nogil=True)
def _shift(a: Any, b: Any, flow: Any, count: Any, load: IntArray, held: IntArray, slot: IntArray) -> None:
    """Move tokens and samples from cell a to cell b in all sums."""
    load[a] -= flow
    load[b] += flow
    held[a] -= count
    held[b] += count
    slot[a % slot.size] -= count
    slot[b % slot.size] += count
