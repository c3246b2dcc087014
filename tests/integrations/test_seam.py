"""What all adapters share: rules joined, faults answered with the trainer's own layout, windows counted."""

import logging
from dataclasses import replace

import numpy as np
import pytest

from integrations.seams import broken, check_grid, config, counts, lengths, seam
from routepack_opt import InputError, LayoutRules, MoEModel, Planner
from routepack_opt.integrations.own import Once, swap, two_stages
from routepack_opt.integrations.seam import Seam, join_rules

DP, CAPACITY = 2, 100


def test_a_window_is_planned_and_counted():
    here, sizes = seam(DP, CAPACITY), lengths(20, CAPACITY)
    found = here.plan(sizes, dp=DP, capacity=CAPACITY)
    check_grid(found.cells, sizes, CAPACITY, DP)
    assert here.outcomes == {"planned": 1} and here.plans == [found]
    assert here.metrics()["routepack/windows_planned"] == 1.0


def test_the_plan_is_not_worse_than_the_trainers_own_layout():
    here, sizes = seam(1, 10), [4, 2, 5, 7]
    own = [[[0, 1]], [[2]], [[3]]]
    assert here.plan(sizes, dp=1, own=lambda: own).layout.rows == 2
    assert here.plan(sizes, dp=1, own=lambda: [[[0, 2]], [[3, 1]]]).layout.rows == 2


@pytest.mark.parametrize(
    "own", [lambda: [[[0], [1]], [[2]]], lambda: 1 / 0, lambda: [[[0, 9]]], lambda: None]
)
def test_an_own_layout_that_is_none_costs_nothing(own):
    assert seam(1, 10).plan([1, 2, 3], dp=1, own=own) is not None


def test_counts_and_replay_are_read():
    sizes = [5, 6, 7, 8]
    by_counts = seam(DP, CAPACITY, ep=2).plan(sizes, dp=DP, counts=counts(sizes))
    assert by_counts.placement.num_experts == 4
    model = MoEModel(layers=2, experts=4, top_k=1, dense_layers=())
    ids = [np.random.default_rng(n).integers(0, 4, (n, 2, 1)) for n in sizes]
    by_replay = seam(DP, CAPACITY, model=model, ep=2, mask=True).plan(
        sizes, dp=DP, routing=ids, form="arrays"
    )
    assert by_replay.placement.num_layers == 2
    assert seam(DP, CAPACITY, ep=2).plan(sizes, dp=DP, routing=ids).placement.num_layers == 0  # no model
    both = seam(DP, CAPACITY, model=model, ep=2).plan(sizes, dp=DP, counts=counts(sizes), routing=ids)
    assert both.placement.num_layers == 2
    forecast = seam(DP, CAPACITY, ep=2, routing="predicted")
    forecast.plan(sizes, dp=DP, counts=lambda: counts(sizes))
    assert forecast.metrics()["routepack/predicted"] == 1.0


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        ({"dp": 3}, "3"),
        ({"dp": DP, "capacity": 99}, "99"),
        ({"dp": DP, "counts": np.zeros((1, 1, 1))}, "counts"),
        ({"dp": DP, "no_such_rule": 1}, "no_such_rule"),
        ({"dp": DP, "counts": lambda: 1 / 0}, "ZeroDivisionError"),
    ],
)
def test_what_a_step_gets_wrong_runs_the_trainers_own_layout(asked, reason):
    here = seam(DP, CAPACITY)
    assert here.plan([5, 6, 7], **asked) is None
    assert reason in here.reason and here.outcomes == {"own": 1}


def test_a_failing_planner_is_logged_once(caplog):
    here = broken(DP, CAPACITY)
    with caplog.at_level(logging.WARNING, "routepack_opt"):
        assert here.plan([1, 2], dp=DP) is None
        assert here.plan([1, 2], dp=DP) is None
    assert len(caplog.records) == 1 and "the solver died" in caplog.text
    assert here.metrics() == {"routepack/windows_planned": 0.0, "routepack/windows_own": 2.0}


def test_a_late_plan_runs_the_trainers_own_layout():
    settings = config(DP, CAPACITY)
    late = Planner(
        replace(settings, search=replace(settings.search, proposals=None, deadline=1e-6)), warm_up=False
    )
    here = Seam(late)
    assert here.plan([5, 6, 7, 8], dp=DP, own=lambda: [[[0, 1], [2, 3]]]) is None
    assert "deadline" in here.reason and here.plans[0].rung == "own"


def test_strict_planners_raise():
    with pytest.raises(RuntimeError, match="the solver died"):
        broken(DP, CAPACITY, on_error="raise").plan([1, 2], dp=DP)


def test_a_window_that_cannot_be_planned_is_refused():
    here = seam(DP, CAPACITY)
    assert here.plan([5], dp=DP) is None
    assert here.reason


def test_rules_are_joined():
    mine = LayoutRules(row_multiple=2, min_rows=3, max_samples_per_cell=8, equal_samples_per_slot=True)
    joined = join_rules(
        mine, {"row_multiple": 3, "min_rows": 2, "max_samples_per_cell": 4, "oversize": "alone"}
    )
    assert joined == LayoutRules(
        row_multiple=6, min_rows=3, max_samples_per_cell=4, equal_samples_per_slot=True, oversize="alone"
    )
    assert join_rules(mine, {"equal_samples_per_slot": False, "max_samples_per_cell": None}) == mine
    with pytest.raises((InputError, TypeError)):
        join_rules(mine, {"unknown": 1})


def test_a_call_is_made_once_and_keeps_its_error():
    calls = []
    once = Once(lambda: calls.append(1) or 7)
    assert (once(), once(), calls) == (7, 7, [1])
    failing = Once(lambda: calls[9])
    for _ in range(2):
        with pytest.raises(IndexError):
            failing()


def test_a_function_is_swapped_once():
    class Module:
        pack = staticmethod(lambda: "own")

    def make(own):
        return lambda: f"planned over {own()}"

    swap(Module, "pack", make)
    assert swap(Module, "pack", make)() == "planned over own"


def test_two_stages_agree_on_the_rows():
    def pack(slot, rows):
        return [[i] for i in range(len(slot))][: max(rows, slot[0])] if slot[0] < 9 else []

    assert two_stages([[1, 5], [2, 6]], pack) == [[[1], [2]], [[5], [6]]]
    assert two_stages([[1], [2, 6]], pack) is None


def test_seams_take_any_planner_with_a_configuration():
    assert isinstance(broken(1, 1), Seam)
