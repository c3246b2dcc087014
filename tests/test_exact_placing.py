"""Exact placements: the makespan of a layer and the joint problem, against enumeration."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_exact import all_placements, best_score, random_problem

from routepack_opt.models.placement import build_makespan_model, placement_of_owners
from routepack_opt.scoring import score
from routepack_opt.solvers.exact.placing import place_layer_exactly, solve_joint


def splits(experts, ranks):
    """Every way to deal experts to ranks, as owner lists."""
    if ranks == 1:
        yield dict.fromkeys(experts, 0)
        return
    held = len(experts) // ranks
    for others in combinations(experts[1:], held - 1):
        chosen = (experts[0], *others)
        rest = [e for e in experts if e not in chosen]
        for tail in splits(rest, ranks - 1):
            yield dict.fromkeys(chosen, ranks - 1) | tail


def least_peak(loads, ranks):
    return min(
        max(sum(loads[e] for e in owner if owner[e] == p) for p in range(ranks))
        for owner in splits(list(range(len(loads))), ranks)
    )


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=8, max_size=8),
    st.sampled_from([1, 2, 4]),
    st.sampled_from(["cpsat", "highs"]),
)
def test_makespan_equals_enumeration(loads, ranks, backend):
    result = place_layer_exactly(np.array(loads), ranks, backend=backend)
    assert result.peak == least_peak(loads, ranks)
    assert result.optimal
    assert np.bincount(result.owner, minlength=ranks).tolist() == [8 // ranks] * ranks


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=8, max_size=8), st.permutations([0, 0, 1, 1, 2, 2, 3, 3]))
def test_a_placement_hint_satisfies_every_row(loads, owner):
    model = build_makespan_model(np.array(loads), 4)
    assert model.linear.violated(model.hint(np.array(owner), np.array(loads))) is None


def test_owners_become_a_placement():
    owners = np.array([[1, 0, 1, 0], [0, 0, 1, 1]])
    assert placement_of_owners(owners, 2).rank_of_expert.tolist() == owners.tolist()


@pytest.mark.parametrize("seed", range(4))
def test_joint_equals_enumeration(seed):
    shape = {"samples": 5, "dp": 1 + seed % 2, "ep": 2, "layers": 1, "stages": 3}
    problem = random_problem(seed, **shape)
    rows = 2 if seed % 2 == 0 else 1
    scores = [best_score(problem, placement, rows) for placement in all_placements(problem)]
    found = [value for value in scores if value is not None]
    result = solve_joint(problem, rows)
    if not found:
        assert result is None
        return
    assert result.proven
    assert result.score.components == min(found)
    assert score(problem, result.placement, result.layout) == result.score
