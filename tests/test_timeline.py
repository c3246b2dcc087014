"""Eqs. 19-20, and windows that no search can improve."""

import itertools

import numpy as np
import pytest

from routepack_opt.placement import Placement
from routepack_opt.planner.timeline import Timeline
from routepack_opt.planner.worth import cannot_pay
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.scoring import score
from routepack_opt.stages import AttentionStage
from routepack_opt.window import Window

TIMES = Timeline(lpt=1.0, rows=1.0, pair=2.0, qd=3.0, sa=4.0, actor=5.0, aux=2.0, admit=0.5)


def test_the_equations_by_hand():
    assert TIMES.pack == 10.0
    assert TIMES.extension == 11.0 - 7.0
    assert TIMES.hidden is False
    assert TIMES.target == 11.0 + 0.5


def test_packing_is_hidden_behind_a_slow_state_branch():
    slow = Timeline(lpt=1.0, pair=2.0, qd=0.0, sa=1.0, actor=3.0, admit=1.0)
    assert slow.hidden is True
    assert slow.extension == 0.0
    assert slow.target == 1.0 + 3.0 + 1.0


def test_what_was_not_measured_is_unknown():
    partial = Timeline(lpt=1.0, sa=1.0)
    assert (partial.pack, partial.extension, partial.hidden, partial.target) == (1.0, None, None, None)
    assert Timeline().as_dict()["routepack/time_pack"] is None
    assert TIMES.as_dict()["routepack/time_hidden"] == 0.0


def _problem(lengths, counts, dp=2, **options):
    stages = (AttentionStage("full", 1.0, 1.0),)
    return Problem(Window.from_counts(lengths, counts), Topology(dp, 2), 12, stages, **options)


@pytest.mark.parametrize(
    ("problem", "word"),
    [
        (_problem([4] * 6, [[[3, 1]]] * 6), "equal length"),
        (_problem([4], [[[3, 1]]], dp=1), "one cell"),
        (_problem([4, 7], [[[3, 1]], [[0, 7]]]), "one item per slot"),
    ],
)
def test_a_window_without_choice_is_named_and_truly_has_none(problem, word):
    assert word in cannot_pay(problem)
    size, identity = problem.window.size, Placement.identity(1, 2, 2)
    found = set()
    for cells in itertools.product(range(problem.topology.dp), repeat=size):
        parts = [[i for i in range(size) if cells[i] == d] for d in range(problem.topology.dp)]
        if sorted(map(len, parts)) == sorted(map(len, np.array_split(range(size), problem.topology.dp))):
            found.add(score(problem, identity, [parts]).components)
    assert len(found) == 1


@pytest.mark.parametrize(
    "problem",
    [
        _problem([4] * 6, [[[3, 1]]] * 5 + [[[2, 2]]]),
        _problem([4] * 5 + [5], [[[4, 0]]] * 5 + [[[5, 0]]]),
        _problem([4, 7], [[[3, 1]], [[0, 7]]], rules=LayoutRules(), dp=1),
    ],
)
def test_a_window_with_a_choice_is_searched(problem):
    assert cannot_pay(problem) is None
