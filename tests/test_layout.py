"""Layouts: forms and round trips, every rule violated once, signatures, and the independent checker."""

import oracles
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import problems, problems_with_layouts
from validity import broken_by, broken_rules

from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.window import Window


def length_problem(lengths, capacity, dp=2, shards=1, **rules):
    topology = Topology(dp=dp, edp_shards=shards)
    return Problem(Window.from_lengths(lengths), topology, capacity, rules=LayoutRules(**rules))


GOOD = [[[0, 1], [2, 3]], [[4], [5]]]

# One row per rule: rules, cells that break it alone, the checker's word, what the message must say.
VIOLATIONS = [
    ({}, [[[0, 1, 2], [3]], [[4], [5]]], "capacity", r"at most 10 tokens in a cell, found 12 in row 0"),
    ({"cell_multiple": 7}, GOOD, "capacity", r"at most 7 tokens in a cell, found 8 in row 0, slot 0"),
    ({"length_multiple": 6}, GOOD, "capacity", r"at most 10 tokens in a cell, found 12 in row 0, slot 0"),
    ({}, [[[0, 1], [2, 3]], [[4, 5], []]], "empty", r"no empty cell, found row 1, slot 1 empty"),
    ({"min_rows": 3}, GOOD, "min_rows", r"at least min_rows=3 rows, found 2"),
    ({}, [[[0, 1], [2, 3]], [[4], []]], "samples", r"every sample exactly once.*sample 5 missing"),
    ({"row_multiple": 3}, GOOD, "row_multiple", r"a multiple of row_multiple=3 rows, found 2"),
    ({"equal_samples_per_slot": True}, [[[0, 1], [2]], [[3, 4], [5]]], "equal_samples_per_slot",
     r"same number of samples in every slot.*2 in slot 1 and 4 in slot 0"),
    ({"max_samples_per_cell": 1}, GOOD, "max_samples_per_cell",
     r"max_samples_per_cell=1 samples, found 2 in row 0, slot 0"),
    ({"same_cell": [(4, 5)]}, GOOD, "same_cell",
     r"samples \(4, 5\) in one cell \(same_cell\), found sample 5 apart"),
    ({"row_class": [0, 0, 0, 1, 1, 1]}, GOOD, "row_class",
     r"one row_class in a row, found classes 0 and 1 in row 0"),
]  # fmt: skip


@pytest.mark.parametrize(("rules", "cells", "word", "message"), VIOLATIONS)
def test_each_rule_violated_once(rules, cells, word, message):
    problem = length_problem([4, 4, 4, 4, 4, 4], 10, **rules)
    assert broken_by(problem, cells) == [word]
    with pytest.raises(InputError, match=message):
        Layout.from_cells(cells, size=6).validate(problem)


def test_rows_between_two_multiples_are_refused():
    problem = length_problem([1] * 6, 10, row_multiple=2)
    with pytest.raises(InputError, match="a multiple of row_multiple=2 rows, found 3"):
        Layout(range(6), 3, 2).validate(problem)


def test_an_oversize_sample_stays_alone():
    problem = length_problem([12, 4, 4], 10, oversize="alone")
    assert problem.items.alone.tolist() == [True, False, False]
    assert Layout.from_cells([[[0], [1, 2]]]).validate(problem)
    assert broken_by(problem, [[[0], [1, 2]]]) == []
    shared = [[[0, 1], [2]]]
    assert broken_by(problem, shared) == ["oversize"]
    with pytest.raises(InputError, match="cell of its own, found 2 items in row 0, slot 0"):
        Layout.from_cells(shared).validate(problem)


def test_too_few_samples_for_the_rectangle_is_said_in_numbers():
    problem = length_problem([4, 4, 4], 10)
    with pytest.raises(InputError, match=r"at least 4 samples.*found 3 for 2 rows of 2 slots"):
        Layout([0, 1, 2], 2, 2).validate(problem)
    grouped = length_problem([4, 4, 4], 10, same_cell=[(0, 1)])
    with pytest.raises(InputError, match=r"at least 4 items \(same_cell tuples count once\).*found 2"):
        Layout([0, 0, 1], 2, 2).validate(grouped)


@pytest.mark.parametrize(
    ("layout", "message"),
    [
        (Layout([0, 1, 2], 1, 3), "2 slots, found 3"),
        (Layout([0, 1, 0, 1], 1, 2), "3 samples, found 4"),
    ],
)
def test_a_layout_of_another_problem_is_refused(layout, message):
    with pytest.raises(InputError, match=message):
        layout.validate(length_problem([1, 1, 1], 10))


@given(problems_with_layouts())
def test_layouts_that_keep_every_rule_are_accepted(case):
    problem, layout = case
    assert broken_by(problem, layout.cells) == []
    assert layout.validate(problem) is layout


@settings(max_examples=300)
@given(problems(max_samples=6), st.data())
def test_product_and_checker_agree_on_any_cells(problem, data):
    size, dp = problem.window.size, problem.topology.dp
    rows = data.draw(st.integers(1, max(1, size // dp)))
    choice = data.draw(st.lists(st.integers(0, rows * dp - 1), min_size=size, max_size=size))
    broken = broken_by(problem, oracles.cells_of(choice, rows, dp))
    # The order of rows is a wish about plans; a layout in another order is still valid.
    accepted = Layout(choice, rows, dp).broken_rule(problem) is None
    assert accepted == (not set(broken) - {"row_order"})


def test_product_and_checker_agree_on_all_layouts_of_a_tiny_problem():
    problem = length_problem([3, 4, 5, 6, 2], 11, min_rows=2, same_cell=[(0, 4)], max_samples_per_cell=2)
    valid = 0
    for cells in oracles.every_assignment(5, 2, 2):
        accepted = Layout.from_cells(cells).broken_rule(problem) is None
        assert accepted == (not broken_by(problem, cells))
        valid += accepted
    assert valid == 24  # four items, one per cell


@given(problems_with_layouts())
def test_every_form_gives_the_layout_back(case):
    problem, layout = case
    assert Layout.from_cells(layout.cells).cell_of_sample.tolist() == layout.cell_of_sample.tolist()
    items = Layout.from_items(problem, layout.cell_of_item(problem), layout.rows)
    assert items.cell_of_sample.tolist() == layout.cell_of_sample.tolist()
    assert layout.cells == oracles.cells_of(layout.cell_of_sample, layout.rows, layout.dp)
    assert not layout.cell_of_sample.flags.writeable


def test_permuted_rows_puts_the_named_row_first():
    layout = Layout.from_cells([[[0], [1]], [[2], [3]], [[4], [5]]])
    assert layout.permuted_rows([2, 0, 1]).cells == (((4,), (5,)), ((0,), (1,)), ((2,), (3,)))


def test_a_signature_names_layouts_up_to_rows_and_cells_of_a_shard():
    problem = length_problem([1] * 8, 10, dp=4, shards=2)
    base = [[[0], [1], [2], [3]], [[4], [5], [6], [7]]]
    same = [[[5], [4], [7], [6]], [[0], [1], [3], [2]]]
    across = [[[2], [1], [0], [3]], [[4], [5], [6], [7]]]

    def sign(cells, of=problem):
        return Layout.from_cells(cells).signature(of)

    assert sign(base) == sign(same) != sign(across)
    # With equal counts the slots keep their identity: exchanging cells inside a row is another layout.
    fixed = length_problem([1] * 8, 10, dp=4, shards=2, equal_samples_per_slot=True)
    assert sign(base, fixed) != sign(same, fixed)
    assert sign(base, fixed) == sign(base[::-1], fixed)


def test_signatures_of_all_tiny_layouts_are_equal_exactly_under_the_symmetry():
    problem = length_problem([1] * 4, 10)
    classes = {}
    for cells in oracles.every_assignment(4, 2, 2):
        canonical = tuple(sorted(tuple(sorted(row)) for row in cells))
        classes.setdefault(Layout.from_cells(cells).signature(problem), set()).add(canonical)
    assert all(len(found) == 1 for found in classes.values())
    assert len(classes) == len({c for found in classes.values() for c in found})


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        ([], "at least one row with one cell"),
        ([[]], "at least one row with one cell"),
        ([[[0], [1]], [[2]]], "2 cells in every row, found 1 in row 1"),
        ([[[0], [1, 0]]], r"sample 0 in cells \(0, 0\) and \(0, 1\)"),
        ([[[0], [3]]], r"cells\[0\]\[1\].*from 0 to 1, found 3"),
        ([[[0], [-1]]], r"cells\[0\]\[1\].*found -1"),
        ([[[0], [1.0]]], r"cells\[0\]\[1\].*found 1\.0"),
        ([[0, 1]], r"cells\[0\].*list of sample ids, found 0 at index 0"),
        (5, r"list of sample ids, found 5"),
        ([[[], []]], "found no sample"),
    ],
)
def test_malformed_cells_are_named(cells, message):
    with pytest.raises(InputError, match=message):
        Layout.from_cells(cells)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 4], 2, 2), "from 0 to 3, found 4 at index 1"),
        (([0, -1], 2, 2), "found -1 at index 1"),
        (([0], 0, 1), "rows: .*found 0"),
        (([0], 1, True), "dp: .*found True"),
    ],
)
def test_cell_indices_are_checked(arguments, message):
    with pytest.raises(InputError, match=message):
        Layout(*arguments)


def test_the_checker_reports_every_broken_rule():
    found = broken_rules(
        [[[0, 1], []], [[2], [3]]], [9, 9, 1, 1], dp=2, capacity=10, min_rows=3, row_multiple=3,
        equal_samples_per_slot=True, max_samples_per_cell=1, same_cell=[(2, 3)], row_class=[0, 0, 0, 1],
        row_order="largest_first",
    )  # fmt: skip
    assert found == [
        "capacity", "empty", "equal_samples_per_slot", "max_samples_per_cell", "min_rows", "row_class",
        "row_multiple", "same_cell",
    ]  # fmt: skip
    assert broken_rules(
        [[[1], [0]], [[2], [3]]], [1, 1, 9, 1], dp=2, capacity=10, row_order="largest_first"
    ) == ["row_order"]
    assert broken_rules([[[0]]], [1], dp=2, capacity=1) == ["rectangle"]
    assert broken_rules([[[0], [0]]], [1, 1], dp=2, capacity=1) == ["samples"]
