"""Row certification against exhaustive search, under every rule."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_rows import least_rows
from rows_cases import row_problem

from routepack_opt.solvers.rows import certify_rows, verify


@st.composite
def small_problems(draw):
    """Windows of up to 8 samples under any mix of rules."""
    size = draw(st.integers(1, 8))
    lengths = draw(st.lists(st.integers(1, 10), min_size=size, max_size=size))
    dp = draw(st.integers(1, 3))
    rules = {}
    if draw(st.booleans()):
        rules["min_rows"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        rules["row_multiple"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        rules["max_samples_per_cell"] = draw(st.integers(2, 4))
    if draw(st.booleans()):
        rules["equal_samples_per_slot"] = True
    if draw(st.booleans()):
        rules["cell_multiple"] = 3
        lengths = [min(t, 9) for t in lengths]
    if draw(st.booleans()):
        rules["row_class"] = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    if draw(st.booleans()):
        rules["oversize"] = "alone"
        lengths = [t * draw(st.sampled_from([1, 1, 1, 2])) for t in lengths]
    elif size >= 2 and "row_class" not in rules and lengths[0] + lengths[1] <= 9:
        rules["same_cell"] = [(0, 1)]
    return row_problem(lengths, dp, 10, **rules)


@settings(max_examples=300, deadline=None)
@given(small_problems())
def test_never_contradicts_exhaustive_search(problem):
    truth = least_rows(problem)
    for stages in ("cheap", "all"):
        found = certify_rows(problem, stages=stages)
        assert verify(found, problem).status == found.status
        if found.status == "infeasible":
            assert truth is None
            assert found.rule and found.message
        elif found.rows is not None:
            assert truth is not None
            assert found.lower_bound <= truth <= found.rows
            if found.status == "certified":
                assert found.rows == truth


def test_equal_samples_cost_a_row():
    found = certify_rows(row_problem([1, 10, 1, 1], dp=2, equal_samples_per_slot=True))
    assert (found.rows, found.status) == (2, "certified")
    assert certify_rows(row_problem([1, 10, 1, 1], dp=2)).rows == 1


@pytest.mark.parametrize(
    ("lengths", "dp", "rules", "rule", "dummies"),
    [
        ([9, 9, 9], 2, {}, "capacity", 1),
        ([5] * 6, 2, {"row_multiple": 4}, "row_multiple", 2),
        ([5] * 6, 2, {"min_rows": 4}, "min_rows", 2),
        ([5] * 5, 2, {"equal_samples_per_slot": True}, "equal_samples_per_slot", 1),
        ([1] * 5, 2, {"row_class": [0, 0, 0, 0, 1]}, "row_class", 1),
    ],
)
def test_infeasible_names_the_rule(lengths, dp, rules, rule, dummies):
    problem = row_problem(lengths, dp, **rules)
    found = certify_rows(problem)
    assert (found.status, found.rule, found.dummies) == ("infeasible", rule, dummies)
    assert str(dummies) in found.message
    verify(found, problem)
