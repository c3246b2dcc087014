"""Complete search: equal to enumeration under every rule, never worse, within its nodes and its time."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles_exact import RULES, all_layouts, best_score, random_placement, random_problem
from validity import broken_by

from routepack_opt.layout import Layout
from routepack_opt.scoring import score
from routepack_opt.solvers.annealing.complete import covers, finish_completely, nodes_of
from routepack_opt.solvers.annealing.complete.search import search_all
from routepack_opt.solvers.annealing.instance import build_instance, from_kernel, to_kernel
from routepack_opt.solvers.annealing.parameters import PAPER, AnnealingParameters
from routepack_opt.solvers.annealing.population import AnnealingResult, Limits, anneal
from routepack_opt.solvers.oracle import solve_by_subsets

SHAPES = [(6, 1, 2), (7, 2, 1), (6, 2, 2), (6, 3, 1), (6, 4, 1)]  # samples, slots, rows
WORST = (2**61, 2**61, 2**61)
FEW = AnnealingParameters(population=2, levels=3, hottest=1e-2, coldest=1e-4)


class Started:
    """A small problem under a placement, as kernels see it, and its first layout by enumeration."""

    def __init__(self, seed, shape, ep, layers, stages, rule):
        samples, dp, self.rows = shape
        self.problem = random_problem(
            seed, samples=samples, dp=dp, ep=ep, layers=layers, stages=stages, rule=rule
        )
        self.placement = random_placement(self.problem, seed)
        self.demand = self.placement.demand(self.problem.item_counts)
        self.instance = build_instance(self.problem, self.demand)
        first = next(all_layouts(self.problem, self.rows), None)
        self.first = None if first is None else Layout.from_cells(first, size=samples)

    def score(self, layout):
        return score(self.problem, self.placement, layout).components

    def search(self, nodes=10**7):
        """Search from the first layout: layout and score found, nodes, whether it is complete."""
        cells = to_kernel(self.problem, self.first.cell_of_item(self.problem))
        found = search_all(self.instance, cells, self.rows, self.score(self.first), nodes)
        layout = Layout.from_items(self.problem, from_kernel(self.problem, found[0]), self.rows)
        return layout, *found[1:]


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    shape=st.sampled_from(SHAPES),
    ep=st.integers(1, 3),
    layers=st.integers(0, 2),
    stages=st.integers(0, 4),
    rule=st.sampled_from(RULES),
)
def test_equals_enumeration(seed, shape, ep, layers, stages, rule):
    case = Started(seed, shape, ep, layers, stages, rule)
    assume(case.first is not None and covers(case.instance, case.rows))
    layout, found, nodes, complete = case.search()
    assert complete
    assert nodes > 0
    assert broken_by(case.problem, layout.cells) == []
    assert found == case.score(layout) == best_score(case.problem, case.placement, case.rows)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(SHAPES), st.integers(0, 200))
def test_a_search_cut_short_is_never_worse_and_claims_nothing_wrong(seed, shape, nodes):
    case = Started(seed, shape, 2, 1, 3, "none")
    assume(case.first is not None and covers(case.instance, case.rows))
    layout, found, made, complete = case.search(nodes)
    assert made <= nodes
    assert found == case.score(layout) <= case.score(case.first)
    assert not complete or found == best_score(case.problem, case.placement, case.rows)


@pytest.mark.parametrize("shape", [(12, 2, 2), (13, 1, 2), (12, 2, 1)])
@pytest.mark.parametrize("rule", ["none", "items", "aligned"])
def test_equals_the_subset_oracle_on_more_samples(shape, rule):
    samples, dp, rows = shape
    seen = 0
    for seed in range(20):
        problem = random_problem(seed, samples=samples, dp=dp, ep=2, layers=3, stages=3, rule=rule)
        placement = random_placement(problem, seed)
        best = solve_by_subsets(problem, placement, rows).score
        instance = build_instance(problem, placement.demand(problem.item_counts))
        if best is None or not covers(instance, rows):
            continue
        cells, found, _, complete = search_all(instance, np.zeros(samples, np.int64), rows, WORST, 10**7)
        layout = Layout.from_items(problem, from_kernel(problem, cells), rows)
        assert complete
        assert found == best.components == score(problem, placement, layout).components
        seen += 1
    assert seen >= 3


def test_only_the_smallest_windows_are_covered():
    assert covers(Started(1, (6, 2, 2), 2, 1, 1, "none").instance, 1)
    assert not covers(Started(1, (6, 2, 2), 2, 1, 1, "none").instance, 3)
    assert not covers(Started(1, (6, 3, 1), 2, 1, 1, "none").instance, 3)
    assert not covers(build(31), 1)
    assert covers(build(30), 1)


def build(samples):
    problem = random_problem(1, samples=samples, dp=2, ep=1, layers=1, stages=1)
    return build_instance(problem, random_placement(problem).demand(problem.item_counts))


def feasible():
    """The first problem of seven samples in two cells that has a layout which is not the best."""
    cases = (Started(seed, (7, 2, 1), 2, 2, 3, "none") for seed in range(99))
    return next(
        case for case in cases if case.first is not None and case.search()[1] < case.score(case.first)
    )


def solved(parameters=FEW, **limits):
    case = feasible()
    start = case.first.cell_of_item(case.problem)
    return case, anneal(case.problem, case.demand, [start], case.rows, parameters=parameters, **limits)


def test_annealing_ends_with_it_and_reports_its_level():
    case, result = solved(proposals=60)
    assert result.score == best_score(case.problem, case.placement, case.rows)
    assert result.proposals == 60
    assert [level.phase for level in result.trace] == ["cells"] * 3 + ["complete"]
    assert result.trace[-1].incumbent == result.score
    assert 0 < result.trace[-1].proposals <= nodes_of(case.instance, 60)
    assert solved(parameters=PAPER, proposals=60)[1].trace[-1].phase == "cells"


def test_no_proposals_no_nodes():
    case, result = solved(proposals=0)
    assert result.score == case.score(case.first)
    assert result.trace[-1].proposals == 0


class Clock:
    """Every look costs a millisecond."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1e-3
        return self.now


@pytest.mark.parametrize("deadline", [0.0, 0.004, 0.02, 1.0])
def test_it_stops_before_the_deadline(deadline):
    clock, case = Clock(), feasible()
    cells, known = to_kernel(case.problem, case.first.cell_of_item(case.problem)), case.score(case.first)
    begun = AnnealingResult(cells, known, "finished", True, 0)
    result = finish_completely(case.instance, begun, 1, Limits(deadline=deadline, clock=clock))
    assert result.score <= known
    if deadline == 1.0:
        assert result.score == best_score(case.problem, case.placement, 1)
        assert result.stopped == "finished"
        assert clock.now < 0.02  # it ends when it is complete, and leaves the rest of the time
    if deadline == 0.0:
        assert np.array_equal(result.cell_of_item, cells)
        assert result.stopped == "deadline"
