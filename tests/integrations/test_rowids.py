"""The column of rows: whole rows in order, or none."""

import logging

import numpy as np
import pytest
import torch

from integrations.seams import broken, lengths, seam
from routepack_opt import Layout
from routepack_opt.integrations.dispatch import plan_dispatch, step_windows
from routepack_opt.integrations.rowids import all_agree, row_column, rows_of, slots_of, tell_own

LAYOUTS = [Layout.from_cells([[[0], [3]], [[1], [2]]]), Layout.from_cells([[[0, 1], [2, 3]]])]
WINDOWS = [[4, 5, 6, 7], [0, 1, 2, 3]]
SIZES = [1, 1, 1, 1, 9, 8, 7, 6]


def test_a_slot_finds_its_rows_in_order():
    column = row_column(LAYOUTS, WINDOWS, SIZES)
    slots = slots_of(LAYOUTS, WINDOWS)
    assert slots == [[4, 5, 0, 1], [7, 6, 2, 3]]
    for slot in slots:
        assert rows_of(column[slot], 9) == [[0], [1], [2, 3]]


@pytest.mark.parametrize(
    ("column", "capacity"),
    [
        (None, None),
        (np.zeros((0, 5)), None),
        (np.zeros((3, 5)), None),
        (np.zeros((3, 2)), None),
        ([torch.zeros(5), None], None),
        ("no column", None),
        ([[0, 0, 2, 9, 1]], None),  # row 1 has no sample here
        ([[0, 0, 1, 9, 2]], None),  # a sample of the slot is missing
        ([[0, 0, 1, 9, 1]], 8),  # another rank's cell is over this pass's cap
    ],
)
def test_what_is_not_whole_is_no_plan(column, capacity):
    assert rows_of(column, capacity) is None


def test_a_column_may_come_back_jagged():
    column = row_column(LAYOUTS, WINDOWS, SIZES)[[4, 5, 0, 1]]
    jagged = torch.nested.nested_tensor([torch.as_tensor(row) for row in column], layout=torch.jagged)
    assert rows_of(jagged) == rows_of([torch.as_tensor(row) for row in column]) == [[0], [1], [2, 3]]


def test_planned_samples_that_run_otherwise_are_reported_once(caplog, monkeypatch):
    monkeypatch.setattr("routepack_opt.integrations.rowids._told", [False])
    with caplog.at_level(logging.WARNING, "routepack_opt"):
        for column in (None, np.zeros((3, 5)), "no column"):
            tell_own(column)
        assert not caplog.records
        for _ in range(2):
            tell_own(row_column(LAYOUTS, WINDOWS, SIZES))
    assert len(caplog.records) == 1


def test_without_process_groups_a_rank_decides_alone():
    assert all_agree([[0]]) and not all_agree(None)


def test_steps_are_the_pieces_that_the_trainer_cuts():
    assert step_windows(8, 4, 2) == [[[0, 1], [4, 5]], [[2, 3], [6, 7]]]
    assert step_windows(8, 3, 1) is None and step_windows(9, 3, 2) is None and step_windows(8, 0, 2) is None


def test_every_step_keeps_its_samples_and_equal_counts():
    here, sizes = seam(2, 100), lengths(32, 100)
    steps = step_windows(32, 16, 2)
    found = plan_dispatch(here, sizes, steps)
    assert sorted(found.order) == list(range(32)) and [len(slot) for slot in found.slots] == [16, 16]
    for w, step in enumerate(steps):
        mine = [i for slot in found.slots for i in slot[w * 8 : (w + 1) * 8]]
        assert sorted(mine) == sorted(i for slot in step for i in slot)
        rows = [rows_of(found.column[slot[w * 8 : (w + 1) * 8]], 100) for slot in found.slots]
        assert len(rows[0]) == len(rows[1])


def test_one_step_without_a_plan_leaves_the_batch_alone():
    assert plan_dispatch(broken(2, 100), [1] * 8, step_windows(8, 4, 2)) is None
    assert plan_dispatch(seam(2, 100), [1] * 8, None) is None
    assert plan_dispatch(seam(2, 100), [1] * 4 + [101] * 4, [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]) is None
