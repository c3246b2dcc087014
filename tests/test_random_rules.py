"""Random rule sets on tiny windows: rows and plans against exhaustive search and the independent checker."""

import oracles
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, problems_with_layouts
from validity import broken_by, broken_rules, plain_rules

from routepack_opt.layout import Layout
from routepack_opt.planner import plan
from routepack_opt.solvers.rows import certify_rows


def searched(problem):
    """Arguments of the exhaustive search."""
    rules = {"dp": problem.topology.dp, "capacity": problem.capacity, **plain_rules(problem.rules)}
    return problem.window.lengths.tolist(), rules


@settings(max_examples=40)
@given(problems(max_samples=5))
def test_the_two_exhaustive_searches_agree(problem):
    lengths, rules = searched(problem)
    rules["row_order"] = "none"

    def accepts(cells):
        return not broken_rules(cells, lengths, **rules)

    assert oracles.least_rows(lengths, **rules) == oracles.minimum_rows(len(lengths), rules["dp"], accepts)


@settings(max_examples=80)
@given(problems(max_samples=8))
def test_certified_rows_are_the_fewest_and_no_feasible_window_is_called_infeasible(problem):
    lengths, rules = searched(problem)
    fewest = oracles.least_rows(lengths, **rules)
    found = certify_rows(problem, time_limit=5.0)
    if fewest is None:
        assert found.status in ("infeasible", "unknown")
        assert found.rows is None
        return
    assert found.status in ("certified", "best_known")
    assert found.lower_bound <= fewest <= found.rows
    if found.status == "certified":
        assert found.rows == fewest
    packing = Layout.from_items(problem, found.packing, found.rows)
    assert set(broken_by(problem, packing.cells)) <= {"row_order"}


@settings(max_examples=40)
@given(problems_with_layouts(), st.integers(0, 3))
def test_plans_keep_every_rule(case, seed):
    problem, layout = case
    found = plan(problem, method="seed", seed=seed)
    assert broken_by(problem, found.cells) == []
    assert found.rows.rows <= layout.rows
    assert found.rows.rows == len(found.cells)
