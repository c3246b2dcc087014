"""verl's balanced partitions: Karmarkar-Karp over the slots, then inside each slot.

Own implementation of the published algorithm, or the partition function of an installed verl. The work of a
sample is ``24576 t + t^2``. Slots get equally many samples; the count of microbatches is that of the slot
with most tokens over the capacity. `pack` is the form before the cap became strict: nothing holds a cell
under the cap. `pack_strict` is the form since: the count rises, alike for all slots, until every cell
is. Ranks that agree on a count are emulated.
"""

import heapq

from benchmarks.peers.installed import functions
from benchmarks.peers.kk import differencing


def _package():
    names = ("karmarkar_karp", "greedy_partition", "get_seqlen_balanced_partitions")
    return functions("verl", "verl/utils/seqlen_balancing.py", names)


def origin():
    """Say what runs."""
    found = _package()
    return "own implementation" if found is None else f"real package verl {found[1]}"


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] as balanced, over the cap or not; None when the slots cannot share alike."""
    return _pack(lengths, capacity, dp, strict=False)


def pack_strict(lengths, capacity, dp, rules=None):
    """Return cells[r][d] under the cap; None when a slot has too few samples."""
    return _pack(lengths, capacity, dp, strict=True)


def _pack(lengths, capacity, dp, strict):
    tokens = [int(t) for t in lengths]
    work = [24576 * t + t * t for t in tokens]
    if len(tokens) % dp:
        return None
    found = _package()
    split = _split_own if found is None else _split_with(found[0]["get_seqlen_balanced_partitions"])
    slots = split(work, list(range(len(tokens))), dp, True)
    rows = max(-(-sum(tokens[i] for i in slot) // capacity) for slot in slots)
    while rows <= min(len(slot) for slot in slots):
        columns = [_order(split(work, slot, rows, False), work) for slot in slots]
        fits = all(sum(tokens[i] for i in cell) <= capacity for cells in columns for cell in cells)
        if fits or not strict:
            return [[columns[d][r] for d in range(dp)] for r in range(rows)]
        rows += 1
    return None


def _order(cells, work):
    """Heaviest in the middle, as each rank runs them."""
    falling = sorted(cells, key=lambda cell: (-sum(work[i] for i in cell), -cell[0]))
    return falling[::2][::-1] + falling[1::2]


def _split_with(partition):
    def split(work, ids, parts, equal):
        chosen = partition([work[i] for i in ids], parts, equal_size=equal)
        return [sorted(ids[k] for k in part) for part in chosen]

    return split


def _split_own(work, ids, parts, equal):
    chosen = _equal_differencing(work, ids, parts) if equal else differencing(work, ids, parts)
    return [sorted(part) for part in chosen]


def _equal_differencing(work, ids, parts):
    """Largest differencing whose states hold equally many samples in every part."""
    ordered = sorted(ids, key=lambda i: (work[i], i))
    heap = []
    for number, start in enumerate(range(0, len(ordered), parts)):
        state = sorted(((work[i], [i]) for i in ordered[start : start + parts]), key=lambda part: -part[0])
        heap.append((state[-1][0] - state[0][0], number, state))
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
