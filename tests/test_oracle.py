"""The subset oracle against plain enumeration, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_exact import RULES, best_score, random_placement, random_problem

from routepack_opt.errors import InputError
from routepack_opt.scoring import score
from routepack_opt.solvers.oracle import refusal, solve_by_subsets


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from([(5, 1, 1), (5, 1, 3), (5, 2, 1), (5, 2, 2), (6, 3, 1), (5, 4, 1), (6, 2, 2)]),
    ep=st.integers(1, 3),
    layers=st.integers(0, 2),
    stages=st.integers(0, 4),
    rule=st.sampled_from(RULES),
)
def test_equals_enumeration(seed, shape, ep, layers, stages, rule):
    samples, dp, rows = shape
    problem = random_problem(seed, samples=samples, dp=dp, ep=ep, layers=layers, stages=stages, rule=rule)
    placement = random_placement(problem, seed)
    if refusal(problem) is not None:
        with pytest.raises(InputError, match="subset oracle"):
            solve_by_subsets(problem, placement, rows)
        return
    result = solve_by_subsets(problem, placement, rows)
    wanted = best_score(problem, placement, rows)
    assert (result.score.components if result.score else None) == wanted
    if result.layout is not None:
        assert score(problem, placement, result.layout) == result.score


def test_refuses_by_name():
    def reason(**kwargs):
        shape = {"seed": 1, "samples": 6, "dp": 2, "ep": 1, "layers": 1, "stages": 1} | kwargs
        return refusal(random_problem(**shape))

    assert "22 items" in reason(samples=22)
    assert "equal_samples_per_slot" in reason(rule="equal_samples")
    assert any("more than one attention stage" in (reason(dp=4, stages=3, seed=k) or "") for k in range(9))
    assert "row_class" in reason(dp=2, rule="row_class", seed=_two_shards(rule="row_class"))
    assert reason() is None


def _two_shards(rule):
    shape = {"samples": 6, "dp": 2, "ep": 1, "layers": 1, "stages": 1, "rule": rule}
    return next(k for k in range(99) if random_problem(k, **shape).topology.num_shards == 2)


def test_more_items_than_bits_of_a_guess():
    """Fourteen items: far beyond enumeration, checked by rescoring and by the bound."""
    from routepack_opt.bounds.score import placement_bound

    problem = random_problem(3, samples=14, dp=2, ep=4, layers=3, stages=3)
    placement = random_placement(problem, 3)
    result = solve_by_subsets(problem, placement, 2)
    bound = placement_bound(problem, 2, placement.demand(problem.item_counts))
    assert score(problem, placement, result.layout) == result.score
    assert all(b <= v for b, v in zip(bound.components, result.score.components, strict=True))
    assert np.bincount(result.layout.cell_of_sample).min() >= 1
