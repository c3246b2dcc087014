"""One pass over the routed experts of one sample: range check, row validity and histogram together.

Guarantees: an id is read once, in its own dtype; a row is counted in every layer or in none; the result
depends on nothing but the arguments. A row's status is the worst of its layers': an integer of
``ROW_*`` below.

A repeated expert is found by a stamp per expert (the last row that used it) instead of comparing pairs, and
rows are taken one after another, so that no two increments that follow each other hit the same counter.
"""

from __future__ import annotations

import numpy as np
from numba import njit

ROW_KEPT, ROW_MASKED, ROW_MISSING, ROW_FILLER, ROW_CORRUPT, ROW_FOREIGN = range(6)

#: Below so many ids per row, a row that counts upwards may be a real one.
COUNTING_ROW_IDS = 16


@njit(cache=True, nogil=True)
def count_rows(ids, columns, top_k, experts, use, status, layer_lost, hist, stamp):  # type: ignore[no-untyped-def]
    """Count the experts of one sample's rows.

    Parameters
    ----------
    ids : integer array [rows, width]
        Routed experts, C-contiguous, any integer dtype; ``width`` ids per row.
    columns : int64 array [L]
        First column of each MoE layer.
    top_k, experts : int
        K and E.
    use : bool array [rows] or [0]
        Rows that are real; empty when all may be.
    status : uint8 array [rows]
        Out: ``ROW_*`` of each row.
    layer_lost : int64 array [L]
        Out, added to: rows of each layer that are not valid there.
    hist : int32 array [L, E + 1]
        Out, added to: counts of the kept rows; the last column is scratch.
    stamp : int64 array [E + 1]
        Scratch; zeroed by the caller.

    Returns
    -------
    kept : int
        Rows counted.
    longest, longest_end : int
        Length of the longest run of identical kept rows, and the row after it.
    """
    rows, width = ids.shape
    top = np.uint64(experts)
    serial = np.int64(0)
    kept = run = longest = longest_end = 0
    for t in range(rows):
        row = ids[t]
        if use.size and not use[t]:
            status[t] = ROW_MASKED
            run = 0
            continue
        bad = False
        for layer in range(columns.size):
            serial += 1
            counts = hist[layer]
            start = columns[layer]
            for k in range(top_k):
                expert = np.uint64(row[np.uint64(start + k)])
                slot = min(expert, top)
                bad |= (expert >= top) | (stamp[slot] == serial)
                stamp[slot] = serial
                counts[slot] += 1
        if not bad and row[columns[0] + 1 if top_k > 1 else 0] == row[columns[0]] + 1:
            bad = _counts_upwards(row, columns, top_k, experts)
        if bad:
            _take_back(row, columns, top_k, top, hist)
            status[t] = _row_status(row, columns, top_k, experts, layer_lost)
            run = 0
            continue
        status[t] = ROW_KEPT
        kept += 1
        run = run + 1 if run and _same(row, ids[t - 1], width) else 1
        if run > longest:
            longest, longest_end = run, t + 1
    return kept, longest, longest_end


@njit(cache=True, nogil=True)
def _same(row, other, width):  # type: ignore[no-untyped-def]
    for i in range(width):  # noqa: SIM110 - compiled, no generators
        if row[i] != other[i]:
            return False
    return True


@njit(cache=True, nogil=True)
def _take_back(row, columns, top_k, top, hist):  # type: ignore[no-untyped-def]
    for layer in range(columns.size):
        for k in range(top_k):
            hist[layer, min(np.uint64(row[columns[layer] + k]), top)] -= 1


@njit(cache=True, nogil=True)
def _counts_upwards(row, columns, top_k, experts):  # type: ignore[no-untyped-def]
    """Tell whether all layers hold 0..K-1, or the row goes on counting from layer to layer (modulo E)."""
    if columns.size * top_k < COUNTING_ROW_IDS:
        return False
    restarts = continues = True
    begin = np.int64(row[columns[0]])
    for layer in range(columns.size):
        offset = columns[layer] - columns[0]
        for k in range(top_k):
            expert = np.int64(row[columns[layer] + k])
            restarts &= expert == k
            continues &= expert == (begin + offset + k) % experts
    return restarts or continues


@njit(cache=True, nogil=True)
def _row_status(row, columns, top_k, experts, layer_lost):  # type: ignore[no-untyped-def]
    worst = ROW_MASKED
    for layer in range(columns.size):
        status = layer_status(row, columns[layer], top_k, experts)
        if status != ROW_KEPT:
            layer_lost[layer] += 1
        worst = max(worst, status)
    # Every layer is valid by itself: only the row as a whole counts upwards.
    return ROW_FILLER if worst == ROW_MASKED else worst


@njit(cache=True, nogil=True)
def layer_status(row, start, top_k, experts):  # type: ignore[no-untyped-def]
    """Return the ``ROW_*`` of one layer of one row, from its ids alone."""
    negative = beyond = repeated = False
    unset = 0
    for k in range(top_k):
        expert = np.int64(row[start + k])
        if expert < 0:
            negative = True
        if expert >= experts:
            beyond = True
        unset += 1 if expert == -1 else 0
        for other in range(k):
            if row[start + other] == row[start + k]:
                repeated = True
    if beyond:
        return ROW_FOREIGN
    if unset == top_k:
        return ROW_MISSING
    if negative:
        return ROW_CORRUPT
    return ROW_FILLER if repeated else ROW_KEPT
