"""Numba kernels of the demand projection and of sums over samples.

Guarantees: plain arrays in and out; no allocation per sample; sums in int64.
"""

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def project_counts(counts: Any, rank_of_expert: Any, out: Any) -> tuple[int, int]:
    """Fill `out` [M, L, P] with rank sums of `counts` [M, L, E].

    Returns a number that is negative when a count is, and the largest sum. Sums that do not fit `out` wrap;
    the caller then repeats with a wider type. Counts are read as they lie in memory, twice as fast as rank by
    rank; four samples at a time share the look-up of the rank, and their sums are added as one vector.
    """
    samples, layers, experts = counts.shape
    ranks = out.shape[2]
    sums = np.zeros((ranks, 4), np.int64)
    signs, largest = np.int64(0), np.int64(0)
    for i in range(0, samples, 4):
        j, k, m = min(i + 1, samples - 1), min(i + 2, samples - 1), min(i + 3, samples - 1)
        for layer in range(layers):
            sums[:] = 0
            for expert in range(experts):
                a, b = np.int64(counts[i, layer, expert]), np.int64(counts[j, layer, expert])
                c, d = np.int64(counts[k, layer, expert]), np.int64(counts[m, layer, expert])
                signs |= a | b | c | d
                p = rank_of_expert[layer, expert]
                sums[p, 0] += a
                sums[p, 1] += b
                sums[p, 2] += c
                sums[p, 3] += d
            for p in range(ranks):
                out[i, layer, p], out[j, layer, p] = sums[p, 0], sums[p, 1]
                out[k, layer, p], out[m, layer, p] = sums[p, 2], sums[p, 3]
                largest = max(largest, sums[p, 0], sums[p, 1], sums[p, 2], sums[p, 3])
    return int(signs), int(largest)


@njit(cache=True, nogil=True)
def add_groups(table: Any, order: Any, starts: Any, out: Any) -> None:
    """Add to `out` [K, F] the rows of `table` [M, F] that `order` [M] lists from `starts` [K + 1] on.

    Four rows are read for every time that a sum is loaded and stored.
    """
    for group in range(starts.size - 1):
        target, k, end = out[group], starts[group], starts[group + 1]
        while k + 4 <= end:
            a, b, c, d = table[order[k]], table[order[k + 1]], table[order[k + 2]], table[order[k + 3]]
            for f in range(target.size):
                target[f] += np.int64(a[f]) + np.int64(b[f]) + np.int64(c[f]) + np.int64(d[f])
            k += 4
        while k < end:
            a = table[order[k]]
            for f in range(target.size):
                target[f] += np.int64(a[f])
            k += 1
