"""Row certification against exhaustive search, under every rule."""

import pytest
from hypothesis import given, settings
from oracles_rows import least_rows
from rows_cases import row_problem, small_problems

from routepack_opt.solvers.rows import certify_rows, verify


@settings(max_examples=300, deadline=None)
@given(small_problems())
def test_never_contradicts_exhaustive_search(problem):
    truth = least_rows(problem)
    for stages in ("cheap", "all"):
        found = certify_rows(problem, stages=stages)
        assert verify(found, problem).status == found.status
        if found.status == "infeasible":
            assert truth is None
            assert found.rule
            assert found.message
        elif found.rows is not None:
            assert truth is not None
            assert found.lower_bound <= truth <= found.rows
            if found.status == "certified":
                assert found.rows == truth
        if stages == "all":
            assert found.status == ("infeasible" if truth is None else "certified")


def test_equal_samples_cost_a_row():
    found = certify_rows(row_problem([1, 10, 1, 1], dp=2, equal_samples_per_slot=True))
    assert (found.rows, found.status) == (2, "certified")
    assert certify_rows(row_problem([1, 10, 1, 1], dp=2)).rows == 1


@pytest.mark.parametrize(
    ("lengths", "dp", "rules", "rule", "dummies"),
    [
        ([5, 4, 3], 8, {}, "samples", 5),  # fewer samples than slots: no count of tokens is to blame
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
