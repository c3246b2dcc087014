"""Groups of one rank: complete, under the cap, as even as the trainer's, and the same each time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_rows import least_bins

from integrations.seams import lengths
from routepack_opt import InputError
from routepack_opt.integrations.grouping import balanced_groups, fewest_groups


def largest(values, groups):
    return max(sum(values[i] for i in group) for group in groups)


@settings(max_examples=40)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=8), st.integers(1, 3), st.integers(1, 3))
def test_groups_are_the_fewest_under_the_cap(values, least, multiple):
    wanted = -(-max(least_bins(values, 50), least) // multiple) * multiple
    if wanted > len(values):
        with pytest.raises(InputError):
            fewest_groups(values, 50, least=least, multiple=multiple)
        return
    groups = fewest_groups(values, 50, least=least, multiple=multiple)
    assert sorted(i for group in groups for i in group) == list(range(len(values)))
    assert all(groups) and largest(values, groups) <= 50
    assert len(groups) == wanted


def test_the_groups_are_the_fewest():
    # First fit decreasing needs three.
    assert len(fewest_groups([2, 2, 3, 2, 5, 6], 10)) == 2
    assert len(fewest_groups(np.array([7] * 8), 8)) == 8


def test_a_huge_cap_gives_as_many_groups_as_asked_for():
    values = lengths(16, 1000)
    groups = fewest_groups(values, 10**12, least=4)
    assert len(groups) == 4 and largest(values, groups) < 1.1 * sum(values) / 4


def test_balanced_groups_are_never_worse_than_the_trainers():
    values = [24576 * n + n * n for n in lengths(32, 40_000)]  # beyond 32 bits
    theirs = [list(range(k, 32, 4)) for k in range(4)]
    groups = balanced_groups(values, 4, equal=True, own=theirs)
    assert {len(group) for group in groups} == {8}
    assert sorted(i for group in groups for i in group) == list(range(32))
    assert largest(values, groups) < largest(values, theirs)
    assert balanced_groups(values, 4, equal=True, own=groups) == balanced_groups(
        values, 4, equal=True, own=groups
    )
    assert balanced_groups([3, 3, 3, 3], 3, equal=True, own=[[3, 0], [1], [2]]) == [[0, 3], [1], [2]]


def test_too_few_values_are_refused():
    with pytest.raises(InputError):
        balanced_groups([1, 2], 3)
    with pytest.raises(InputError):
        fewest_groups([11], 10)
