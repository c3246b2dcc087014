"""NeMo RL's modified first fit decreasing (Johnson and Garey 1985), leftovers to the emptiest bin.

Own implementation of the published algorithm; bin k goes to slot k mod D, and single samples open further
bins until D divides their number.
"""

from benchmarks.peers.ffd import deal, fill_up


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids, or None when too few samples are there."""
    order = sorted(range(len(lengths)), key=lambda i: (-int(lengths[i]), i))
    size = {i: int(lengths[i]) for i in order}
    large = [i for i in order if 2 * size[i] > capacity]
    medium = [i for i in order if capacity < 3 * size[i] and 2 * size[i] <= capacity]
    rest = [i for i in order if 3 * size[i] <= capacity]
    bins = [[i] for i in large]
    room = [capacity - size[i] for i in large]
    for b in range(len(bins) - 1, -1, -1):  # most room first
        fitting = next((i for i in medium if size[i] <= room[b]), None)
        if fitting is not None:
            medium.remove(fitting)
            bins[b].append(fitting)
            room[b] -= size[fitting]
    small = [i for i in rest if 6 * size[i] > capacity]
    tiny = [i for i in rest if 6 * size[i] <= capacity]
    for b in range(len(bins)):  # a pair of small ones where no medium one went
        if len(bins[b]) == 1 and len(small) >= 2 and size[small[-1]] + size[small[-2]] <= room[b]:
            first = small.pop()
            second = next(i for i in small if size[i] <= room[b] - size[first])
            small.remove(second)
            bins[b] += [first, second]
            room[b] -= size[first] + size[second]
    for i in medium + small + tiny:
        b = max(range(len(bins)), key=lambda b: (room[b], -b), default=None)
        if b is None or room[b] < size[i]:
            bins.append([])
            room.append(capacity)
            b = len(bins) - 1
        bins[b].append(i)
        room[b] -= size[i]
    return deal(bins, dp) if fill_up(bins, dp) else None
