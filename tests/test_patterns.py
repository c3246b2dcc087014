"""Row patterns: a bound that no layout goes below, and optima that are those of the subset oracle."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_exact import all_layouts, random_placement, random_problem

from routepack_opt.bounds.score import placement_bound
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.scoring import loads_of, score_of
from routepack_opt.solvers.oracle import solve_by_subsets
from routepack_opt.solvers.patterns import closing
from routepack_opt.solvers.patterns.bounding import pattern_bound
from routepack_opt.solvers.patterns.closing import solve_by_patterns
from routepack_opt.solvers.patterns.table import PatternTable, refusal
from routepack_opt.suite.instances import Suite

cases = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "samples": st.integers(5, 8),
        "dp": st.sampled_from([1, 2, 4]),
        "ep": st.integers(1, 3),
        "layers": st.integers(0, 3),
        "stages": st.integers(0, 4),
        "rule": st.sampled_from(["none", "items", "max_samples", "row_class", "aligned"]),
    }
)


def build(case, rows):
    problem = random_problem(**case)
    return problem, random_placement(problem, case["seed"]), rows


def worst(problem, placement, rows, wanted):
    """The worst layout found among some, to start from."""
    demand, seen = placement.demand(problem.item_counts), [wanted]
    for _, cells in zip(range(50), all_layouts(problem, rows), strict=False):
        seen.append(Layout.from_cells(cells))
    return max(seen, key=lambda layout: score_of(problem, loads_of(problem, demand, layout)).components)


@settings(max_examples=50, deadline=None)
@given(cases, st.integers(1, 3))
def test_the_bound_holds_and_the_search_finds_the_optimum(case, rows):
    problem, placement, rows = build(case, rows)
    if refusal(problem) is not None or problem.items.size < rows * problem.topology.dp:
        return
    try:
        wanted = solve_by_subsets(problem, placement, rows)
    except InputError:
        return
    if wanted.layout is None:
        return
    best = wanted.score.components
    for start in (None, wanted.layout):
        bound = pattern_bound(problem, placement, rows, start=start)
        assert bound.converged
        assert all(low <= value for low, value in zip(bound.components(rows), best, strict=True))
    if closing.refusal(problem) is None:
        hint = worst(problem, placement, rows, wanted.layout)
        result = solve_by_patterns(problem, placement, rows, hint)
        assert result.optimal
        assert result.score.components == result.bound == best
        assert result.score == score_of(
            problem, loads_of(problem, placement.demand(problem.item_counts), result.layout)
        )


def medium(samples=13, rows=2, seed=11, dp=2):
    problem = random_problem(seed, samples=samples, dp=dp, ep=4, layers=3, stages=3)
    return problem, random_placement(problem, seed), rows


def test_it_bounds_more_than_counting_does():
    suite = Suite(Path(__file__).parent.parent / "instances" / "exact-medium")
    for name in ("n16-r4-d2-g2-l24-p8-lognormal-none-1", "n16-r4-d2-g2-l8-p4-lognormal-none-3"):
        asked, record = suite.load(name), suite.records[name]
        counted = placement_bound(
            asked.problem, asked.rows, asked.placement.demand(asked.problem.item_counts)
        )
        found = pattern_bound(asked.problem, asked.placement, asked.rows).total
        assert 1.02 * counted.total < found <= record.best[1] < 1.005 * found


def test_the_duals_prove_the_bound_without_the_program():
    """Recompute the bound from the duals, by looking at every set."""
    problem, placement, rows = medium(samples=10)
    found = pattern_bound(problem, placement, rows)
    table = PatternTable(problem, placement.demand(problem.item_counts), rows)
    worth = [sum(int(found.duals[m]) for m in range(10) if mask >> m & 1) for mask in range(1 << 10)]
    least = min(
        found.scale * table.column(mask) - worth[mask]
        for mask in range(1, 1 << 10)
        if table.cost[mask] < 2**62
    )
    assert least == found.least
    proven = int(found.duals.sum()) + table.blocks * least
    assert -(-proven // found.scale) == found.total


@pytest.mark.parametrize("dp", [1, 2])
def test_every_cost_is_that_of_the_best_row_shard(dp):
    """Against all splits of a set into the cells of its row-shard."""
    problem, placement, _ = medium(samples=7, rows=2, dp=dp)
    demand = placement.demand(problem.item_counts).astype(np.int64)
    table = PatternTable(problem, demand, 2)
    width = table.width
    work, tokens = table.work, problem.items.tokens
    rng, checked = np.random.default_rng(0), 0
    for mask in rng.integers(1, 1 << 7, 100).tolist():
        relaxed = int(table.cost[mask])
        cost = table.column(mask)
        if relaxed == 2**62:
            continue
        members = [m for m in range(7) if mask >> m & 1]
        splits = []
        for code in range(width ** len(members)):
            cell = np.array([code // width**k % width for k in range(len(members))])
            load = [[int(work[s, members][cell == d].sum()) for d in range(width)] for s in range(len(work))]
            fits = all(tokens[members][cell == d].sum() <= problem.cell_cap for d in range(width))
            if fits and len(set(cell.tolist())) == width:
                splits.append(sum(max(stage) for stage in load))
        peaks = int(demand[members].sum(axis=0).max(axis=1).sum()) * problem.expert_unit
        wanted = min(splits) + peaks if splits else 2**62
        assert relaxed <= wanted
        assert cost == wanted
        checked += 1
    assert checked > 5


def test_no_time_keeps_the_hint_and_a_bound():
    problem, placement, rows = medium()
    wanted = solve_by_subsets(problem, placement, rows)
    times = iter([0.0] * 2 + [9.0] * 1000)
    result = solve_by_patterns(
        problem, placement, rows, wanted.layout, seconds=1.0, clock=lambda: next(times)
    )
    assert not result.optimal
    assert result.score == wanted.score
    assert all(low <= value for low, value in zip(result.bound, wanted.score.components, strict=True))


def test_ctrl_c_keeps_the_hint_and_a_bound(monkeypatch):
    problem, placement, rows = medium()
    wanted = solve_by_subsets(problem, placement, rows)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(closing._Search, "_take", interrupted)
    result = solve_by_patterns(problem, placement, rows, wanted.layout)
    assert (result.interrupted, result.optimal) == (True, False)
    assert result.score == wanted.score
    assert 0 < result.bound[1] <= wanted.score.total


def test_what_is_not_covered_is_named():
    problem, placement, rows = medium()
    hint = solve_by_subsets(problem, placement, rows).layout
    large = random_problem(0, samples=25, dp=1, ep=1, layers=1, stages=1)
    with pytest.raises(InputError, match="25 items"):
        pattern_bound(large, random_placement(large), 2)
    for rule, words in (("row_class", "row_class"), ("max_samples", "max_samples_per_cell")):
        ruled = random_problem(3, samples=8, dp=2, ep=2, layers=1, stages=1, rule=rule)
        with pytest.raises(InputError, match=words):
            solve_by_patterns(ruled, random_placement(ruled), 1, hint)
