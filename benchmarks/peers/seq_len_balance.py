"""seq-len-balance's best fit decreasing, cells dealt row-major.

Own implementation of the textbook method; the package builds from Rust source only. It offers Karmarkar-Karp
and first fit decreasing besides, which other peers cover.
"""

from benchmarks.peers.ffd import deal, fill_up


def best_fit(lengths, capacity, order):
    """Return bins of sample ids, each sample in the fullest bin with room."""
    bins, room = [], []
    for i in order:
        t = int(lengths[i])
        fitting = [b for b in range(len(bins)) if room[b] >= t]
        if not fitting:
            bins.append([])
            room.append(capacity)
            fitting = [len(bins) - 1]
        b = min(fitting, key=lambda b: (room[b], b))
        bins[b].append(i)
        room[b] -= t
    return bins


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids, or None when too few samples are there."""
    order = sorted(range(len(lengths)), key=lambda i: (-int(lengths[i]), i))
    bins = best_fit(lengths, capacity, order)
    return deal(bins, dp) if fill_up(bins, dp) else None
