"""prime-rl's schedule: first fit decreasing, bins shared over the slots by differencing and swaps.

Own implementation of the published algorithm. The heaviest bins are split until D divides their number; the
bins go to the slots in equal numbers by Karmarkar-Karp, and the best swap of two bins follows until none
lowers the spread of the slots' tokens. Bin r of every slot is its row r.
"""

from benchmarks.peers.ffd import first_fit
from benchmarks.peers.slime import _halves
from benchmarks.peers.verl import _equal_differencing


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids, or None when too few samples are there."""
    order = sorted(range(len(lengths)), key=lambda i: (-int(lengths[i]), i))
    bins = first_fit(lengths, capacity, order)
    while len(bins) % dp:
        several = [b for b in bins if len(b) > 1]
        if not several:
            return None
        heaviest = max(several, key=lambda b: sum(int(lengths[i]) for i in b))
        bins.remove(heaviest)
        bins += _halves(heaviest, lengths)
    cost = [sum(int(lengths[i]) for i in b) for b in bins]
    slots = _swapped(_equal_differencing(cost, range(len(bins)), dp), cost)
    return [[bins[slots[d][r]] for d in range(dp)] for r in range(len(bins) // dp)]


def _swapped(slots, cost):
    """Swap bins between the heaviest slot and another one while the larger of the two sums falls most."""
    slots = [sorted(slot) for slot in slots]
    while True:
        sums = [sum(cost[b] for b in slot) for slot in slots]
        heavy = max(range(len(slots)), key=lambda d: (sums[d], -d))
        best = None
        for d, slot in enumerate(slots):
            for a, b in ((a, b) for a in slots[heavy] for b in slot if d != heavy):
                shift = cost[a] - cost[b]
                gain = sums[heavy] - max(sums[heavy] - shift, sums[d] + shift)
                if gain > 0 and (best is None or gain > best[0]):
                    best = (gain, d, a, b)
        if best is None:
            return slots
        _, d, a, b = best
        slots[heavy][slots[heavy].index(a)] = b
        slots[d][slots[d].index(b)] = a
