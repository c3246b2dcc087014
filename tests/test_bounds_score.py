"""Score bounds: never above an enumerated optimum, and tight where the argument is tight."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_exact import (
    RULES,
    all_placements,
    least_components,
    random_placement,
    random_problem,
)

from routepack_opt.bounds.placement import rank_peaks
from routepack_opt.bounds.score import any_placement_bound, placement_bound
from routepack_opt.bounds.terms import fullest_bin, largest_share, sum_of_maxima, total_straggler
from routepack_opt.errors import InputError
from routepack_opt.problem import AttentionStage, Problem, Topology
from routepack_opt.window import Window

shapes = st.sampled_from([(5, 1, 2), (5, 2, 1), (5, 2, 2), (6, 1, 3), (5, 3, 1), (4, 4, 1), (4, 2, 2)])


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shape=shapes,
    ep=st.integers(1, 3),
    layers=st.integers(0, 2),
    stages=st.integers(0, 4),
    rule=st.sampled_from(RULES),
)
def test_no_layout_goes_below_the_bound(seed, shape, ep, layers, stages, rule):
    samples, dp, rows = shape
    problem = random_problem(seed, samples=samples, dp=dp, ep=ep, layers=layers, stages=stages, rule=rule)
    placement = random_placement(problem, seed)
    if problem.items.size < rows * dp:
        return
    least = least_components(problem, placement, rows)
    if least is None:
        return
    under = placement_bound(problem, rows, placement.demand(problem.item_counts))
    anywhere = any_placement_bound(problem, rows)
    for value, low, lowest in zip(least, under.components, anywhere.components, strict=True):
        assert lowest <= low <= value


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), rule=st.sampled_from(RULES))
def test_no_placement_goes_below_the_bound_over_all(seed, rule):
    problem = random_problem(seed, samples=4, dp=2, ep=2, layers=1, stages=3, rule=rule)
    bound = any_placement_bound(problem, 1)
    for placement in all_placements(problem):
        least = least_components(problem, placement, 1)
        if least is not None:
            assert all(b <= v for b, v in zip(bound.components, least, strict=True))


@given(st.lists(st.integers(0, 30), min_size=8, max_size=8), st.sampled_from([1, 2, 4]))
@settings(max_examples=60, deadline=None)
def test_rank_peak_is_below_every_placement(loads, ranks):
    from itertools import permutations

    held = 8 // ranks
    best = min(
        max(sum(order[p * held : (p + 1) * held]) for p in range(ranks))
        for order in (permutations(loads) if ranks == 1 else _splits(loads, ranks))
    )
    assert int(rank_peaks(np.array([loads]), ranks)[0]) <= best


def _splits(loads, ranks):
    """Every way to cut eight loads into equal groups, as flat tuples."""
    from itertools import combinations

    if ranks == 1:
        yield tuple(loads)
        return
    held = len(loads) // ranks
    for chosen in combinations(range(len(loads)), held):
        if 0 not in chosen:
            continue
        rest = [v for k, v in enumerate(loads) if k not in chosen]
        for tail in _splits(rest, ranks - 1):
            yield tuple(loads[k] for k in chosen) + tail


def test_terms_by_hand():
    values = np.array([5, 1, 4, 2, 3])
    assert sum_of_maxima(values, [1, 1]) == 1 + 5
    assert sum_of_maxima(values, [2, 3]) == 2 + 5
    assert sum_of_maxima(values, [1] * 5) == 15
    assert fullest_bin(values, 2) == 8  # average 7.5
    assert fullest_bin(np.array([9, 8, 8, 0, 0]), 2) == 16  # two of the three largest meet
    assert fullest_bin(np.zeros(0, np.int64), 3) == 0
    assert largest_share(10, 0, [1, 4]) == 2
    assert largest_share(0, 10, [1, 4]) == 5
    # one oversize item of 100 beside three cells of at most 10 each: the row cannot be shorter than 100
    work, alone = np.array([100, 10, 10, 10]), np.array([True, False, False, False])
    assert total_straggler(work, alone, 10, [4]) == 100
    assert total_straggler(work, alone, 10, [2, 2]) == 100 + 10


def test_bound_is_the_optimum_when_items_are_alike():
    counts = np.tile(np.array([[[2, 2]]]), (8, 3, 1))
    problem = Problem(
        Window.from_counts([4] * 8, counts), Topology(dp=2, ep=2), 16, [AttentionStage("a", 6.0, 2.0)]
    )
    placement = random_placement(problem)
    bound = placement_bound(problem, 2, placement.demand(problem.item_counts))
    # every cell holds two items: attention 2 * 4 * 6 * 16 + 2 * 16 * 2, experts 4 items * 3 layers * 2 * 16
    row = (2 * 4 * 6 * 16 + 2 * 16 * 2) + 4 * 3 * 2 * 16
    assert bound.components == (2 * row, 2 * row, row)
    assert any_placement_bound(problem, 2) == bound


def test_too_few_items_are_refused():
    problem = random_problem(0, samples=4, dp=2, ep=1, layers=1, stages=1)
    with pytest.raises(InputError, match="at least one item per cell"):
        any_placement_bound(problem, 3)


def test_demand_of_another_problem_is_refused():
    problem = random_problem(0, samples=4, dp=2, ep=1, layers=1, stages=1)
    with pytest.raises(InputError, match="demand"):
        placement_bound(problem, 1, np.zeros((5, 1, 1), np.int64))
