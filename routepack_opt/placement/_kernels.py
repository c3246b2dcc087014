"""Numba kernel of the demand projection.

Guarantees: plain arrays in and out; no allocation per sample; sums in int64.
"""

from typing import Any

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def project_counts(counts: Any, expert_of_slot: Any, out: Any) -> tuple[int, int]:
    """Fill `out` [M, L, P] with rank sums of `counts` [M, L, E] and return (least count, largest sum).

    Sums that do not fit `out` wrap; the largest sum tells the caller, who then repeats with a wider type.
    """
    samples, layers, ranks = out.shape
    per_rank = expert_of_slot.shape[1] // ranks
    least, largest = np.int64(0), np.int64(0)
    for i in range(samples):
        for layer in range(layers):
            slot = 0
            for p in range(ranks):
                total = np.int64(0)
                for _ in range(per_rank):
                    count = np.int64(counts[i, layer, expert_of_slot[layer, slot]])
                    least = min(least, count)
                    total += count
                    slot += 1
                out[i, layer, p] = total
                largest = max(largest, total)
    return int(least), int(largest)
