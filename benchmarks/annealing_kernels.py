"""What the annealer's speed is compared with: a straightforward kernel, and plain streaming."""

import numpy as np
from numba import njit


@njit(nogil=True)
def plain_swaps(routed, demand, row, number):
    """Score the expert terms alone of `number` random swaps, incrementally, in int64."""
    state = np.uint64(88172645463325252)
    total = np.int64(0)
    samples, layers, ranks = demand.shape
    for _ in range(number):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        i = np.int64((state >> np.uint64(33)) % np.uint64(samples))
        j = np.int64((state >> np.uint64(11)) % np.uint64(samples))
        a, b = row[i], row[j]
        for layer in range(layers):
            peak_a, peak_b = np.int64(0), np.int64(0)
            for p in range(ranks):
                after_a = routed[a, layer, p] - demand[i, layer, p] + demand[j, layer, p]
                after_b = routed[b, layer, p] - demand[j, layer, p] + demand[i, layer, p]
                peak_a = max(peak_a, after_a)
                peak_b = max(peak_b, after_b)
            total += peak_a + peak_b
    return total


@njit(nogil=True)
def rescored_rows(demand, order, starts, number):
    """Score `number` random swaps by adding up both rows again in int64: expert terms only."""
    state = np.uint64(88172645463325252)
    total = np.int64(0)
    _, layers, ranks = demand.shape
    rows = starts.size - 1
    sums = np.zeros((layers, ranks), np.int64)
    for _ in range(number):
        state ^= state << np.uint64(13)
        state ^= state >> np.uint64(7)
        state ^= state << np.uint64(17)
        first = np.int64((state >> np.uint64(33)) % np.uint64(rows))
        for row in (first, (first + 1) % rows):
            sums[:] = 0
            for k in range(starts[row], starts[row + 1]):
                sums += demand[order[k]]
            for layer in range(layers):
                total += sums[layer].max()
    return total


@njit(nogil=True)
def stream(data, number):
    """Read `data` `number` times."""
    total = np.int64(0)
    for k in range(number):
        data[k % data.size] += 1  # keeps the compiler from reading once for all
        for x in data:
            total += x
    return total
