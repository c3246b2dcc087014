"""Slow, obvious versions of everything about placements, in plain Python integers."""

from itertools import combinations


def rank_loads(loads, slots, ranks):
    """Load of every rank of one layer."""
    per_rank = len(loads) // ranks
    total = [0] * ranks
    for load, slot in zip(loads, slots, strict=True):
        total[int(slot) // per_rank] += int(load)
    return total


def demand(counts, slots, ranks):
    """Eq. 5, entry by entry: counts[i][l][e] and slots[l][e] to q[i][l][p]."""
    return [
        [rank_loads(layer, slot, ranks) for layer, slot in zip(sample, slots, strict=True)]
        for sample in counts
    ]


def lpt(loads, ranks):
    """Algorithm 1 for one layer, line by line: slot of each expert."""
    per_rank = len(loads) // ranks
    total, used, slots = [0] * ranks, [0] * ranks, [None] * len(loads)
    for e in sorted(range(len(loads)), key=lambda e: (-loads[e], e)):
        p = min((p for p in range(ranks) if used[p] < per_rank), key=lambda p: (total[p], p))
        slots[e] = p * per_rank + used[p]
        total[p] += loads[e]
        used[p] += 1
    return slots


def swaps(loads, slots, ranks):
    """All (max, sum of squares) that one exchange of two experts of different ranks reaches."""
    per_rank = len(loads) // ranks
    for a, b in combinations(range(len(loads)), 2):
        if slots[a] // per_rank != slots[b] // per_rank:
            changed = list(slots)
            changed[a], changed[b] = changed[b], changed[a]
            yield measure(loads, changed, ranks), changed


def measure(loads, slots, ranks):
    """(max, sum of squares) of the rank loads."""
    total = rank_loads(loads, slots, ranks)
    return max(total), sum(load**2 for load in total)


def optimum(loads, ranks):
    """Least possible maximum of a layer, by trying every split into sets of equal size."""
    per_rank = len(loads) // ranks

    def best(left, limit):
        if not left:
            return 0
        first, rest = left[0], left[1:]
        least = limit
        for others in combinations(rest, per_rank - 1):
            load = loads[first] + sum(loads[e] for e in others)
            if load < least:
                remaining = [e for e in rest if e not in others]
                least = min(least, max(load, best(remaining, least)))
        return least

    return best(list(range(len(loads))), sum(loads) + 1)


def fewest_moves(ranks_of, home, ranks):
    """Fewest experts that move under any renaming of ranks (all permutations)."""
    from itertools import permutations

    return min(
        sum(name[p] != h for p, h in zip(ranks_of, home, strict=True)) for name in permutations(range(ranks))
    )


def row_work(rows_load, slots, ranks, shard, base, unit):
    """Work of every shard: base + unit * sum over its rows and all layers of the busiest rank."""
    work = list(base)
    for g, row in zip(shard, rows_load, strict=True):
        work[g] += unit * sum(
            max(rank_loads(layer, slot, ranks)) for layer, slot in zip(row, slots, strict=True)
        )
    return work


def best_exchange_of_two(loads, slots, ranks):
    """Least maximum of the busiest rank and one other, over all exchanges of two experts for two."""
    per_rank = len(loads) // ranks
    total = rank_loads(loads, slots, ranks)
    top = total.index(max(total))
    held = [[loads[e] for e in range(len(loads)) if slots[e] // per_rank == p] for p in range(ranks)]
    best = total[top]
    for q in range(ranks):
        if q != top:
            for out in combinations(held[top], 2):
                for back in combinations(held[q], 2):
                    d = sum(out) - sum(back)
                    best = min(best, max(total[top] - d, total[q] + d))
    return best


def differencing(loads, ranks):
    """Sorted rank loads of balanced largest differencing, with lists of sums."""
    falling = sorted(loads, reverse=True)
    groups = [falling[k : k + ranks] for k in range(0, len(falling), ranks)]
    while len(groups) > 1:
        widths = [max(group) - min(group) for group in groups]
        a = widths.index(max(widths))
        b = max((k for k in range(len(groups)) if k != a), key=lambda k: (widths[k], -k))
        low = sorted(groups[b])
        merged = [x + y for x, y in zip(sorted(groups[a], reverse=True), low, strict=True)]
        groups[a] = merged
        del groups[b]
    return sorted(groups[0])
