"""Slow, obvious answers: the paper's formulas by nested loops over plain lists and fractions.

Guarantees: nothing of the product is imported, nothing is vectorised, nothing is rounded.
"""

from fractions import Fraction
from itertools import product
from math import sqrt


def round_up(length, multiple):
    """Smallest multiple of `multiple` that is at least `length`, by counting up."""
    while length % multiple:
        length += 1
    return length


def shares_by_largest_remainder(total, weights):
    """Share `total` units in proportion to exact weights; left-over units to the largest remainders."""
    weights = [Fraction(w) for w in weights]
    exact = [total * w / sum(weights) for w in weights]
    shares = [int(x) for x in exact]
    remainders = [x - s for x, s in zip(exact, shares, strict=True)]
    while sum(shares) < total:
        e = remainders.index(max(remainders))  # ties to the lowest index
        shares[e] += 1
        remainders[e] = Fraction(-1)
    return shares


def demand(counts, slot_of_expert, ranks):
    """q[i][l][p] of Eq. 5 from counts[i][l][e]."""
    result = []
    for sample in counts:
        layers = []
        for layer, row in enumerate(sample):
            loads = [0] * ranks
            for expert, count in enumerate(row):
                loads[int(slot_of_expert[layer][expert]) * ranks // len(row)] += int(count)
            layers.append(loads)
        result.append(layers)
    return result


def routed(q, cells, shards, layers, ranks):
    """W[r][g][l][p]: demand of the samples of all cells of a row-shard."""
    return [
        [
            [
                [sum(q[i][layer][p] for d in slots for i in row[d]) for p in range(ranks)]
                for layer in range(layers)
            ]
            for slots in shards
        ]
        for row in cells
    ]


def attention(lengths, cells, shards, capacity, stages):
    """A[r][g] of Eqs. 11-13 as fractions; `stages` are (alpha, beta) pairs of fractions."""
    result = []
    for row in cells:
        by_shard = []
        for slots in shards:
            total = Fraction(0)
            for alpha, beta in stages:
                work = []
                for d in slots:
                    linear = sum(Fraction(lengths[i], capacity) for i in row[d])
                    quadratic = sum(Fraction(lengths[i], capacity) ** 2 for i in row[d])
                    work.append(alpha * linear + beta * quadratic)
                total += max(work)
            by_shard.append(total)
        result.append(by_shard)
    return result


def experts(w, capacity):
    """E[r][g] of Eq. 14 as fractions from W."""
    return [[Fraction(sum(max(loads) for loads in layers), capacity) for layers in row] for row in w]


def joint(lengths, q, cells, shards, capacity, stages, layers, ranks):
    """J[r][g] = A + E."""
    a = attention(lengths, cells, shards, capacity, stages)
    e = experts(routed(q, cells, shards, layers, ranks), capacity)
    return [[x + y for x, y in zip(ra, re, strict=True)] for ra, re in zip(a, e, strict=True)]


def score(j):
    """Primary, total and row peak (Eq. 15) of J[r][g]."""
    by_shard = [sum(row[g] for row in j) for g in range(len(j[0]))]
    return max(by_shard), sum(by_shard), max(max(row) for row in j)


def load_metrics(j, a, w, loads, ranks):
    """Table 4 and Eqs. 21-23; `loads` are the rank loads [l][p] of the whole window."""
    peaks = means = tail = 0
    for row in w:
        for layer in range(len(loads)):
            peaks += max(max(shard[layer]) for shard in row)
            means += max(Fraction(sum(shard[layer]), ranks) for shard in row)
            tail = max(tail, *(max(shard[layer]) for shard in row))
    deviations = []
    for layer in loads:
        mean = Fraction(sum(layer), ranks)
        if mean:
            deviations.append(sqrt(sum((x - mean) ** 2 for x in layer) / ranks) / float(mean))
    return {
        "joint": float(score(j)[0]),
        "attention": float(sum(sum(row) for row in a)),
        "ep_peak_sum": float(peaks),
        "ep_tail_peak": float(tail),
        "ep_balance_efficiency": float(means / peaks) if peaks else 1.0,
        "cv_global": sum(deviations) / len(deviations) if deviations else 0.0,
    }


def every_assignment(samples, rows, dp):
    """Every way to put `samples` samples in rows x dp cells, valid or not, as ``cells[r][d]``."""
    for choice in product(range(rows * dp), repeat=samples):
        yield cells_of(choice, rows, dp)


def cells_of(cell_of_sample, rows, dp):
    """``cells[r][d]`` from the flat cell of every sample."""
    cells = [[[] for _ in range(dp)] for _ in range(rows)]
    for i, cell in enumerate(cell_of_sample):
        cells[cell // dp][cell % dp].append(i)
    return tuple(tuple(tuple(cell) for cell in row) for row in cells)


def minimum_rows(samples, dp, accepts):
    """Fewest rows of any layout that ``accepts(cells)``, or None; tries every assignment."""
    for rows in range(1, samples // dp + 1):
        if any(accepts(cells) for cells in every_assignment(samples, rows, dp)):
            return rows
    return None


def find_layout(lengths, rows, *, dp, capacity, **rules):
    """Find ``cells[r][d]`` with exactly `rows` rows under the rules, or None when there are none.

    Depth first over the cells of one item after the other, longest first; a state that failed is not tried
    again, and states that differ only by the order of rows (and of cells, where slots do not matter) are one.
    """
    t = [round_up(n, rules.get("length_multiple", 1)) for n in lengths]
    cap = capacity - capacity % rules.get("cell_multiple", 1)
    most = rules.get("max_samples_per_cell") or len(t)
    classes = rules.get("row_class") or [0] * len(t)
    equal = rules.get("equal_samples_per_slot", False)
    grouped = {i for group in rules.get("same_cell", ()) for i in group}
    items = [tuple(g) for g in rules.get("same_cell", ())] + [(i,) for i in range(len(t)) if i not in grouped]
    items.sort(key=lambda item: -sum(t[i] for i in item))
    if rows < rules.get("min_rows", 1) or rows % rules.get("row_multiple", 1) or (equal and len(t) % dp):
        return None
    failed = set()

    def state(index, grid):
        # what the remaining items can see of a cell: tokens and samples; and the class of a row
        seen = []
        for row in grid:
            cells = [(sum(t[i] for i in cell), len(cell)) for cell in row]
            held = [i for cell in row for i in cell]
            seen.append((classes[held[0]] if held else -1, tuple(cells if equal else sorted(cells))))
        return index, tuple(sorted(seen))

    def fits(item, row, d, grid):
        cell, together = row[d], sum(t[i] for i in (*row[d], *item))
        if any(classes[i] != classes[item[0]] for other in row for i in other):
            return False
        if together > cap and (cell or len(item) > 1 or rules.get("oversize", "reject") == "reject"):
            return False
        if equal and sum(len(other[d]) for other in grid) + len(item) > len(t) // dp:
            return False
        return len(cell) + len(item) <= most

    def place(index, grid):
        empty = sum(not cell for row in grid for cell in row)
        if index == len(items):
            return None if empty else grid
        if empty > len(items) - index or state(index, grid) in failed:
            return None
        item = items[index]
        for r, row in enumerate(grid):
            for d in range(dp):
                if fits(item, row, d, grid):
                    new = (*row[:d], tuple(sorted((*row[d], *item))), *row[d + 1 :])
                    found = place(index + 1, (*grid[:r], new, *grid[r + 1 :]))
                    if found:
                        return found
        failed.add(state(index, grid))
        return None

    return place(0, (((),) * dp,) * rows)


def least_rows(lengths, **rules):
    """Fewest rows under the rules by :func:`find_layout`, or None when no row count has a layout."""
    return next((r for r in range(1, len(lengths) + 1) if find_layout(lengths, r, **rules)), None)


def crossings(q, cells, shards, nodes):
    """Assignments whose token and expert are on different nodes; `nodes[p]` is the node of rank p.

    The tokens of a shard's k-th slot lie evenly on the stretch [k/n, (k+1)/n), rank p owns [p/P, (p+1)/P).
    """
    total, ranks = Fraction(0), len(nodes)
    for row in cells:
        for slots in shards:
            for k, d in enumerate(slots):
                for p in range(ranks):
                    left = max(Fraction(k, len(slots)), Fraction(p, ranks))
                    right = min(Fraction(k + 1, len(slots)), Fraction(p + 1, ranks))
                    share = max(right - left, 0) * len(slots)
                    for other in range(ranks):
                        if nodes[p] != nodes[other]:
                            total += share * sum(layer[other] for i in row[d] for layer in q[i])
    return total
