"""Slow, obvious oracles of the exact part: rational scores, rules spelt out, and plain enumeration."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import permutations, product

import numpy as np

from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.window import Window

STAGES = (
    (),
    (AttentionStage("a", 1.0, 0.0),),
    (AttentionStage("a", 0.0, 2.5),),
    (AttentionStage("a", 6.0, 0.0), AttentionStage("b", 2.0, 2.0)),
    (AttentionStage("a", 0.3, 0.7), AttentionStage("b", 0.0, 1.25)),
)
SHARDS = {1: [1], 2: [1, 2], 3: [1, 3, ((0, 2), (1,))], 4: [1, 2]}


def random_window(rng: np.random.Generator, samples: int, layers: int, experts: int, high: int = 9) -> Window:
    """Lengths from 1 to `high`, every token routed to the same number of distinct experts."""
    lengths = rng.integers(1, high + 1, samples)
    top_k = int(rng.integers(1, experts + 1))
    counts = np.zeros((samples, layers, experts), np.int64)
    for i in range(samples):
        taste = rng.gumbel(size=(layers, experts))
        for layer in range(layers):
            for _ in range(lengths[i]):
                chosen = np.argsort(taste[layer] + rng.gumbel(size=experts))[-top_k:]
                counts[i, layer, chosen] += 1
    return Window.from_counts(lengths, counts)


def random_problem(
    seed: int, *, samples: int, dp: int, ep: int, layers: int, stages: int, rule: str = "none"
) -> Problem:
    """Small problem with one rule set; everything else drawn from the seed."""
    rng = np.random.default_rng(seed)
    window = random_window(rng, samples, layers, ep * int(rng.integers(1, 3)))
    shards = SHARDS[dp][int(rng.integers(len(SHARDS[dp])))]
    capacity = int(max(window.lengths.max(), window.lengths.sum() * rng.uniform(0.3, 1.0)))
    options: dict[str, object] = {}
    if rule == "items":
        options["same_cell"] = ((0, samples - 1),)
        capacity = max(capacity, int(window.lengths[0] + window.lengths[-1]))
    elif rule == "alone":
        capacity = max(int(np.sort(window.lengths)[-2]), 2)
        options["oversize"] = "alone"
    elif rule == "max_samples":
        options["max_samples_per_cell"] = int(rng.integers(2, 4))
    elif rule == "row_class":
        options["row_class"] = tuple(int(c) for c in rng.integers(0, 2, samples))
    elif rule == "equal_samples":
        options["equal_samples_per_slot"] = True
    elif rule == "aligned":
        options.update(length_multiple=2, cell_multiple=4)
        capacity = max(capacity, 16)
    rules = LayoutRules(**options)  # type: ignore[arg-type]
    return Problem(window, Topology(dp=dp, ep=ep, edp_shards=shards), capacity, STAGES[stages], rules)


RULES = ("none", "items", "alone", "max_samples", "row_class", "equal_samples", "aligned")


def random_placement(problem: Problem, seed: int = 0) -> Placement:
    """Independent random permutation per layer."""
    rng = np.random.default_rng(seed)
    shape = (problem.window.num_layers, problem.window.num_experts)
    table = [rng.permutation(shape[1]) for _ in range(shape[0])]
    return Placement(np.array(table, np.int64).reshape(shape), problem.topology.ep)


def rational_score(problem: Problem, placement: Placement, cells: list[list[list[int]]]) -> tuple[int, ...]:
    """Eqs. 5-15 on cells[r][d] of sample ids, in fractions, times C^2 S."""
    size, aligned = problem.capacity, problem.aligned
    joint: dict[tuple[int, int], Fraction] = {}
    for r, row in enumerate(cells):
        for g, slots in enumerate(problem.topology.shards):
            cost = Fraction(0)
            for stage in problem.stages:
                alpha, beta = Fraction(Decimal(repr(stage.alpha))), Fraction(Decimal(repr(stage.beta)))
                works = []
                for d in slots:
                    tokens = sum((Fraction(int(aligned[i]), size) for i in row[d]), Fraction(0))
                    squares = sum((Fraction(int(aligned[i]), size) ** 2 for i in row[d]), Fraction(0))
                    works.append(alpha * tokens + beta * squares)
                cost += max(works)
            for layer in range(problem.window.num_layers):
                load = [0] * problem.topology.ep
                for d in slots:
                    for i in row[d]:
                        for e in range(problem.window.num_experts):
                            load[placement.rank_of_expert[layer, e]] += int(problem.counts[i, layer, e])
                cost += Fraction(max(load), size)
            joint[r, g] = cost
    by_shard = [sum(joint[r, g] for r in range(len(cells))) for g in range(problem.topology.num_shards)]
    scaled = [value * problem.denominator for value in (max(by_shard), sum(by_shard), max(joint.values()))]
    assert all(Fraction(value).denominator == 1 for value in scaled)
    return tuple(int(value) for value in scaled)


def obeys(problem: Problem, cells: list[list[list[int]]]) -> bool:
    """Every rule, spelt out."""
    rules, aligned, flat = problem.rules, problem.aligned, [cell for row in cells for cell in row]
    cap = problem.capacity - problem.capacity % rules.cell_multiple
    if len(cells) < rules.min_rows or len(cells) % rules.row_multiple:
        return False
    for cell in flat:
        tokens = sum(int(aligned[i]) for i in cell)
        exempt = rules.oversize == "alone" and len(cell) == 1
        if not cell or (tokens > cap and not exempt):
            return False
        if rules.max_samples_per_cell is not None and len(cell) > rules.max_samples_per_cell:
            return False
    for group in rules.same_cell:
        if not any(set(group) <= set(cell) for cell in flat):
            return False
    if rules.row_class is not None and any(
        len({rules.row_class[i] for cell in row for i in cell}) > 1 for row in cells
    ):
        return False
    columns = {sum(len(row[d]) for row in cells) for d in range(problem.topology.dp)}
    return not rules.equal_samples_per_slot or len(columns) == 1


def all_layouts(problem: Problem, rows: int) -> Iterator[list[list[list[int]]]]:
    """Every valid cells[r][d], by trying every assignment of samples."""
    dp = problem.topology.dp
    for where in product(range(rows * dp), repeat=problem.window.size):
        cells: list[list[list[int]]] = [[[] for _ in range(dp)] for _ in range(rows)]
        for i, k in enumerate(where):
            cells[k // dp][k % dp].append(i)
        if obeys(problem, cells):
            yield cells


def best_score(problem: Problem, placement: Placement, rows: int) -> tuple[int, ...] | None:
    """Lexicographic optimum over every layout, or None when there is none."""
    return min(
        (rational_score(problem, placement, cells) for cells in all_layouts(problem, rows)), default=None
    )


def least_components(problem: Problem, placement: Placement, rows: int) -> tuple[int, ...] | None:
    """Least value of each component by itself."""
    scores = [rational_score(problem, placement, cells) for cells in all_layouts(problem, rows)]
    return tuple(min(part) for part in zip(*scores, strict=True)) if scores else None


def all_placements(problem: Problem) -> Iterator[Placement]:
    """Every placement (all permutations in every layer)."""
    experts = problem.window.num_experts
    for table in product(permutations(range(experts)), repeat=problem.window.num_layers):
        yield Placement(np.array(table, np.int64).reshape(-1, experts), problem.topology.ep)
