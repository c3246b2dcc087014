"""Slow, obvious answers about rows: exhaustive search over all layouts of small windows."""

from __future__ import annotations

from functools import cache


def least_bins(tokens, cap):
    """Fewest bins, by trying for each item every bin that is open and one new bin."""
    tokens = sorted(tokens, reverse=True)
    best = len(tokens)

    def place(index, loads):
        nonlocal best
        if len(loads) >= best:
            return
        if index == len(tokens):
            best = len(loads)
            return
        seen = set()
        for b, load in enumerate(loads):
            if load + tokens[index] <= cap and load not in seen:
                seen.add(load)
                place(index + 1, [*loads[:b], load + tokens[index], *loads[b + 1 :]])
        place(index + 1, [*loads, tokens[index]])

    place(0, [])
    return best


def fits_rows(problem, rows):
    """Whether some layout with exactly ``rows`` rows obeys every rule, by search over cells item by item."""
    items, rules, dp = problem.items, problem.rules, problem.topology.dp
    if rows < max(1, rules.min_rows) or rows % rules.row_multiple or rows * dp > items.size:
        return False
    total = int(items.samples.sum())
    if rules.equal_samples_per_slot and total % dp:
        return False
    share = total // dp if rules.equal_samples_per_slot else None
    tokens, samples = items.tokens.tolist(), items.samples.tolist()
    classes, alone = items.row_class.tolist(), items.alone.tolist()
    limit = rules.max_samples_per_cell or total

    @cache
    def place(index, cells):
        # a cell is (tokens or -1 when an oversize sample is in it, samples); a row is (class, cells)
        if index == len(tokens):
            full = all(count for _, row in cells for _, count in row)
            even = share is None or all(sum(row[d][1] for _, row in cells) == share for d in range(dp))
            return full and even
        for r, (kind, row) in enumerate(cells):
            if kind not in (None, classes[index]) or (kind is None and r and cells[r - 1][0] is None):
                continue
            for d, (load, count) in enumerate(row):
                if alone[index]:
                    if count:
                        continue
                    cell = (-1, samples[index])
                else:
                    if load < 0 or load + tokens[index] > problem.cell_cap or count + samples[index] > limit:
                        continue
                    cell = (load + tokens[index], count + samples[index])
                if share is not None and sum(x[d][1] for _, x in cells) + samples[index] > share:
                    continue
                new = (classes[index], (*row[:d], cell, *row[d + 1 :]))
                if place(index + 1, (*cells[:r], new, *cells[r + 1 :])):
                    return True
        return False

    return place(0, ((None, ((0, 0),) * dp),) * rows)


def least_rows(problem):
    """Smallest feasible row count, or None."""
    return next((r for r in range(1, problem.items.size + 1) if fits_rows(problem, r)), None)
