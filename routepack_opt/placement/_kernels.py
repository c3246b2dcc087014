"""Numba kernel of the demand projection.

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
    rank.
    """
    samples, layers, experts = counts.shape
    ranks = out.shape[2]
    sums = np.zeros(ranks, np.int64)
    signs, largest = np.int64(0), np.int64(0)
    for i in range(samples):
        for layer in range(layers):
            sums[:] = 0
            for expert in range(experts):
                count = np.int64(counts[i, layer, expert])
                signs |= count
                sums[rank_of_expert[layer, expert]] += count
            for p in range(ranks):
                out[i, layer, p] = sums[p]
                largest = max(largest, sums[p])
    return int(signs), int(largest)
