"""Karmarkar-Karp in two stages, as verl balances: over the slots, then inside each slot, under the cap.

Own implementation of largest differencing (Karmarkar and Karp 1982). The work of a sample is
``24576 t + t^2``. The count starts at the tokens over the capacity and rises, alike for all slots, until no
cell is over the cap.
"""

import heapq


def differencing(work, ids, parts):
    """Split ids into `parts` lists of like work by largest differencing."""
    heap = []
    for number, i in enumerate(ids):
        state = [(work[i], [i])] + [(0, [])] * (parts - 1)
        heap.append((-work[i], number, state))
    heapq.heapify(heap)
    number = len(heap)
    while len(heap) > 1:
        _, _, a = heapq.heappop(heap)
        _, _, b = heapq.heappop(heap)
        joined = [(x + y, p + q) for (x, p), (y, q) in zip(a, reversed(b), strict=True)]
        joined.sort(key=lambda part: -part[0])
        heapq.heappush(heap, (joined[-1][0] - joined[0][0], number, joined))
        number += 1
    return [members for _, members in heap[0][2]]


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids, or None when a slot has too few samples."""
    tokens = [int(t) for t in lengths]
    work = [24576 * t + t * t for t in tokens]
    slots = differencing(work, range(len(tokens)), dp)
    rows = max(-(-sum(tokens[i] for i in slot) // capacity) for slot in slots)
    while rows <= min(len(slot) for slot in slots):
        cells = [differencing(work, slot, rows) for slot in slots]
        if all(cell and sum(tokens[i] for i in cell) <= capacity for parts in cells for cell in parts):
            return [[cells[d][r] for d in range(dp)] for r in range(rows)]
        rows += 1
    return None
