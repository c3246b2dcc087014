"""slime's schedule: first fit in arrival order, then the heaviest bins split until D divides their number.

Own implementation of the published algorithm; bin k goes to slot k mod D.
"""

from benchmarks.peers.ffd import deal, first_fit


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids, or None when too few samples are there."""
    bins = first_fit(lengths, capacity, range(len(lengths)))
    multiple = dp * (rules.row_multiple if rules is not None else 1)
    while len(bins) % multiple:
        several = [b for b in bins if len(b) > 1]
        if not several:
            return None
        heaviest = max(several, key=lambda b: sum(int(lengths[i]) for i in b))
        bins.remove(heaviest)
        bins += _halves(heaviest, lengths)
    return deal(bins, dp)


def _halves(group, lengths):
    halves, loads = ([], []), [0, 0]
    for i in sorted(group, key=lambda i: (-int(lengths[i]), i)):
        side = 0 if loads[0] <= loads[1] else 1
        halves[side].append(i)
        loads[side] += int(lengths[i])
    return list(halves)
