"""Slow, obvious oracles of the initial population, and windows with a layout planted in them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from oracles_exact import SHARDS, STAGES, random_window

from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.solvers.seeding._kernels.rectangle import below


def planted(seed, *, equal=False, classes=False, layers=2, ep=2):
    """Draw cells first and then a problem whose rules they keep: (problem, flat cell of every item, rows)."""
    rng = np.random.default_rng(seed)
    dp, rows = int(rng.integers(1, 5)), int(rng.integers(1, 4))
    sizes = rng.integers(1, 5, (rows, dp))
    if equal:
        sizes = np.stack([rng.permutation(sizes[:, 0]) for _ in range(dp)], axis=1)
    cell = rng.permutation(np.repeat(np.arange(rows * dp), sizes.ravel()))
    window = random_window(rng, cell.size, layers, ep * int(rng.integers(1, 3)), high=12)
    multiple = int(rng.integers(1, 4))
    aligned = -(-window.lengths // multiple) * multiple
    tokens = np.bincount(cell, weights=aligned).astype(int)
    lonely = rng.random() < 0.4
    rest = tokens[sizes.ravel() > 1] if lonely and (sizes > 1).any() else tokens
    capacity = int(rest.max()) + int(rng.integers(0, 4))
    options = {"length_multiple": multiple, "oversize": "alone" if lonely else "reject"}
    if rng.random() < 0.4:
        options["max_samples_per_cell"] = int(sizes.max())
    if rng.random() < 0.4:
        options["cell_multiple"] = multiple
        capacity += -capacity % multiple
    if rng.random() < 0.4:
        options["same_cell"] = tied(rng, cell, sizes.size)
    if equal:
        options["equal_samples_per_slot"] = True
    if classes:
        options["row_class"] = tuple(int(c) for c in rng.integers(5, 7, rows)[cell // dp])
    shards = SHARDS[dp][int(rng.integers(len(SHARDS[dp])))]
    stages = STAGES[int(rng.integers(len(STAGES)))]
    problem = Problem(window, Topology(dp, ep, shards), capacity, stages, LayoutRules(**options))
    return problem, cell[problem.items.members[problem.items.offsets[:-1]]], rows


def tied(rng, cell, count):
    """Tie the first two samples of about half of the cells."""
    groups = [np.flatnonzero(cell == c) for c in range(count)]
    return tuple(tuple(int(i) for i in g[:2]) for g in groups if g.size > 2 and rng.random() < 0.5)


def takes(problem, cells, cell, item, class_of_row):
    """Tell whether `cells` (lists of items) may take one more item, from the rules as they are worded."""
    items, rules, dp = problem.items, problem.rules, problem.topology.dp
    if class_of_row[cell // dp] != items.row_class[item]:
        return False
    inside = cells[cell]
    samples = sum(int(items.samples[m]) for m in [*inside, item])
    if rules.max_samples_per_cell is not None and samples > rules.max_samples_per_cell:
        return False
    if rules.equal_samples_per_slot:
        column = [m for c in range(cell % dp, len(cells), dp) for m in cells[c]]
        if sum(int(items.samples[m]) for m in [*column, item]) > problem.window.size / dp:
            return False
    if not inside:
        return True
    alone = any(items.alone[m] for m in [*inside, item])
    return not alone and sum(int(items.tokens[m]) for m in [*inside, item]) <= problem.cell_cap


def by_length(problem):
    return sorted(range(problem.items.size), key=lambda m: (-int(problem.items.tokens[m]), m))


def flat(problem, cells):
    result = np.full(problem.items.size, -1)
    for c, inside in enumerate(cells):
        result[inside] = c
    return result


def ffd(problem, rows, class_of_row):
    """FixedRowFFD, or None."""
    if problem.rules.equal_samples_per_slot and problem.window.size % problem.topology.dp:
        return None
    cells = [[] for _ in range(rows * problem.topology.dp)]
    for item in by_length(problem):
        able = [c for c in range(len(cells)) if takes(problem, cells, c, item, class_of_row)]
        if not able:
            return None
        cells[able[0]].append(item)
    while [] in cells:
        target = cells.index([])
        donors = [c for c in range(len(cells)) if len(cells[c]) >= 2]
        able = [c for c in donors if may_lend(problem, c, target, class_of_row)]
        if not able:
            return None
        fullest = max(able, key=lambda c: (sum(int(problem.items.tokens[m]) for m in cells[c]), -c))
        cells[target].append(cells[fullest].pop())
    return flat(problem, cells)


def may_lend(problem, cell, target, class_of_row):
    dp = problem.topology.dp
    same_slot = cell % dp == target % dp or not problem.rules.equal_samples_per_slot
    return same_slot and class_of_row[cell // dp] == class_of_row[target // dp]


def least_loaded(problem, rows, class_of_row):
    """Longest item first, into the cell of fewest tokens, or None."""
    if problem.rules.equal_samples_per_slot and problem.window.size % problem.topology.dp:
        return None
    cells = [[] for _ in range(rows * problem.topology.dp)]
    for item in by_length(problem):
        able = [c for c in range(len(cells)) if takes(problem, cells, c, item, class_of_row)]
        if not able:
            return None
        cells[min(able, key=lambda c: (sum(int(problem.items.tokens[m]) for m in cells[c]), c))].append(item)
    return flat(problem, cells) if [] not in cells else None


def shuffle(order, window, words):
    left, result = list(order), []
    for word in words:
        result.append(left.pop(below(word, min(window, len(left)))))
    return result


def best_fit(problem, rows, class_of_row, order, window, words):
    """Lines 5-8 of Algorithm 2, or None."""
    cells = [[] for _ in range(rows * problem.topology.dp)]
    for item, word in zip(order, words, strict=True):
        able = [c for c in range(len(cells)) if takes(problem, cells, c, item, class_of_row)]
        empty = [c for c in able if not cells[c]]
        if not able:
            return None
        ranked = sorted(able, key=lambda c: (-problem.items.tokens[cells[c]].sum(), len(cells[c]), c))
        ranked = ranked[:window]
        cells[empty[0] if empty else ranked[below(word, len(ranked))]].append(item)
    return flat(problem, cells) if [] not in cells else None


def pair(problem, demand, cells, rows, words, width):
    """EDPAwarePair with every key recomputed from the items."""
    dp, shard, q = problem.topology.dp, problem.topology.shard_of_slot, demand.astype(np.int64)
    inside = [np.flatnonzero(cells == b) for b in range(rows * dp)]
    class_of_bin = [int(problem.items.row_class[m[0]]) for m in inside]
    class_of_row = sorted(class_of_bin)[::dp]
    order = sorted(range(len(inside)), key=lambda b: (-q[inside[b]].sum(axis=0).max(initial=0), b))
    place = {}
    for b, word in zip(order, words, strict=True):
        keys = []
        for c in set(range(rows * dp)) - set(place.values()):
            if class_of_row[c // dp] != class_of_bin[b]:
                continue
            if problem.rules.equal_samples_per_slot and c % dp != b % dp:
                continue
            near = [o for o, at in place.items() if at // dp == c // dp and shard[at % dp] == shard[c % dp]]
            mates = [m for o in near for m in inside[o]]
            before = q[mates].sum(axis=0)
            after = before + q[inside[b]].sum(axis=0)
            rise = int(after.max(axis=1, initial=0).sum() - before.max(axis=1, initial=0).sum())
            keys.append((rise, int(after.max(initial=0)), c))
        best = sorted(keys)[:width]
        place[b] = best[weighted(len(best), word)][2]
    return np.array([place[int(b)] for b in cells])


def weighted(count, word):
    """Rank k of `count` with weight count - k."""
    urn = [k for k in range(count) for _ in range(count - k)]
    return urn[below(word, len(urn))]


def distance(problem, x, y, one, sketches):
    """D of Algorithm 2, pair of items by pair of items."""
    total = int(np.abs(sketches[0] - sketches[1]).sum()) // sketches[0].size
    for a, b in ((x, y), (x // problem.topology.dp, y // problem.topology.dp)):
        pairs = list(combinations(range(len(a)), 2))
        in_a, in_b = ({(i, j) for i, j in pairs if v[i] == v[j]} for v in (a, b))
        both = len(in_a) + len(in_b)
        total += one - 2 * len(in_a & in_b) * one // both if both else 0
    return total


def select(scores, distances, population, eta, one):
    """QualityDiversitySelect on a full matrix of distances."""
    best = min(range(len(scores)), key=lambda k: scores[k])
    chosen = [best]
    while len(chosen) < min(population, len(scores)):
        value = {}
        for k in set(range(len(scores))) - set(chosen):
            gap = eta * ((scores[k][0] - scores[best][0]) * one // max(scores[best][0], 1))
            value[k] = min(distances[k][y] for y in chosen) - gap
        chosen.append(max(sorted(value), key=lambda k: value[k]))
    return chosen
