"""Blocks first: a sound relaxation, a valid split, never worse than the starts, the same on any executor."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from validity import broken_by

from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.scoring import score
from routepack_opt.solvers.annealing import blocks
from routepack_opt.solvers.annealing.blocks import blocks_pay, split, whole_blocks
from routepack_opt.solvers.annealing.instance import build_instance, new_state, to_kernel
from routepack_opt.solvers.annealing.parameters import AnnealingParameters
from routepack_opt.solvers.annealing.population import anneal
from routepack_opt.solvers.annealing.threads import ThreadExecutor
from routepack_opt.solvers.seeding import fixed_row_ffd
from routepack_opt.window import Window

ROWS, DP, LAYERS, EXPERTS, RANKS = 2, 4, 3, 8, 4
WORDS = np.array([1, 2, 3, 4], np.uint64)
SHAPE = AnnealingParameters(population=3, levels=6, hottest=1e-3, coldest=1e-5)
PLACEMENT = Placement.identity(LAYERS, EXPERTS, RANKS)


def window_of(size=80, seed=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 100, size)
    skew = rng.dirichlet(np.full(EXPERTS, 0.5), (size, LAYERS))
    counts = np.array([[rng.multinomial(n, p) for p in row] for n, row in zip(lengths, skew, strict=True)])
    return Window.from_counts(lengths, counts)


def problem_of(window, shards=2, slack=1.15, **rules):
    capacity = int(window.lengths.sum() * slack) // (ROWS * DP)
    stages = (AttentionStage("linear", 3.0), AttentionStage("full", 1.0, 2.0))
    return Problem(window, Topology(DP, RANKS, shards), capacity, stages, LayoutRules(**rules))


def dealt(problem, shift=0):
    """A layout by falling length, back and forth, so that cells are about equally full."""
    order = np.argsort(-problem.items.tokens, kind="stable")
    cells, count = np.empty(order.size, np.int64), ROWS * DP
    for k, item in enumerate(order):
        turn, place = divmod(k, count)
        cells[item] = ((place if turn % 2 == 0 else count - 1 - place) + shift) % count
    return cells


def instance_of(problem):
    return build_instance(problem, PLACEMENT.demand(problem.item_counts))


@given(st.integers(0, 2**32), st.sampled_from([1, 2]))
def test_a_whole_block_never_costs_more_than_its_cells(seed, shards):
    problem = problem_of(window_of(seed=seed % 1000), shards)
    instance, rng = instance_of(problem), np.random.default_rng(seed)
    cells = to_kernel(problem, rng.integers(0, ROWS * DP, problem.items.size))
    width = DP // shards
    exact = new_state(instance, ROWS, cells, WORDS)
    whole = new_state(whole_blocks(instance, ROWS), ROWS, cells // width, WORDS)
    assert np.array_equal(whole.peaks, exact.peaks)
    assert (whole.joint <= width * exact.joint).all()
    assert (whole.score <= width * exact.score).all()


def test_a_whole_block_costs_what_an_even_split_costs():
    lengths = np.full(32, 10)
    counts = np.full((32, LAYERS, EXPERTS), 5)
    problem = problem_of(Window.from_counts(lengths, counts))
    instance, cells = instance_of(problem), np.arange(32) % (ROWS * DP)
    exact = new_state(instance, ROWS, cells, WORDS)
    whole = new_state(whole_blocks(instance, ROWS), ROWS, cells // 2, WORDS)
    assert (whole.score == 2 * exact.score).all()


@given(st.integers(0, 2**32), st.sampled_from([1, 2]))
def test_a_split_keeps_blocks_and_capacity(seed, shards):
    rng = np.random.default_rng(seed)
    problem = problem_of(window_of(seed=seed % 1000), shards, slack=1.02 + rng.random() / 5)
    instance, width = instance_of(problem), DP // shards
    of_item = dealt(problem) // width
    cells = split(instance, of_item, ROWS)
    if cells is not None:
        assert np.array_equal(cells // width, of_item)
        held = np.bincount(cells, instance.tokens, ROWS * DP)
        assert held.min() > 0
        assert held.max() <= problem.cell_cap


def test_a_split_searches_where_greedy_overfills():
    # longest first puts 5, 5 apart and then overfills one of the two cells of 12; 5 + 4 + 3 twice fits
    lengths = [5, 5, 4, 4, 3, 3, 6, 6, 6, 6]
    window = Window.from_counts(lengths, np.ones((10, 1, 4), int))
    problem = Problem(window, Topology(2, 4), 12)
    instance = build_instance(problem, Placement.identity(1, 4, 4).demand(problem.item_counts))
    cells = split(instance, np.array([0] * 6 + [1] * 4), 2)
    assert np.bincount(cells, lengths).tolist() == [12, 12, 12, 12]


@pytest.mark.parametrize("of_item", [[0] * 3 + [1] * 3, [0] + [1] * 5])
def test_a_split_that_cannot_be_is_none(of_item):
    window = Window.from_counts([7, 7, 7, 2, 2, 2], np.ones((6, 1, 4), int))
    problem = Problem(window, Topology(2, 4), 9)
    instance = build_instance(problem, Placement.identity(1, 4, 4).demand(problem.item_counts))
    assert split(instance, np.array(of_item), 2) is None


def test_a_split_ends_when_it_is_late():
    instance, looks = instance_of(problem_of(window_of())), iter([False, True])
    of_item = dealt(problem_of(window_of())) // 2
    assert split(instance, of_item, ROWS) is not None
    assert split(instance, of_item, ROWS, lambda: next(looks)) is None


@pytest.mark.parametrize("shards", [1, 2])
def test_the_result_is_valid_exact_and_never_worse(shards):
    problem = problem_of(window_of(), shards)
    demand = PLACEMENT.demand(problem.item_counts)
    starts = [dealt(problem, shift) for shift in range(2)]
    found = anneal(problem, demand, starts, ROWS, seed=3, parameters=SHAPE, proposals=20_000)
    layout = Layout.from_items(problem, found.cell_of_item, ROWS)
    assert not broken_by(problem, layout.cells)
    assert score(problem, PLACEMENT, layout).components == found.score
    best = min(
        score(problem, PLACEMENT, Layout.from_items(problem, cells, ROWS)).components for cells in starts
    )
    assert found.score < best
    incumbents = [level.incumbent for level in found.trace]
    assert incumbents == sorted(incumbents, reverse=True)
    assert incumbents[-1] == found.score
    assert list(dict.fromkeys(level.phase for level in found.trace)) == ["blocks", "inside", "finish"]
    assert sum(level.proposals for level in found.trace) == found.proposals <= 20_000
    assert [level.seconds for level in found.trace] == sorted(level.seconds for level in found.trace)


def test_threads_do_not_change_the_result():
    problem = problem_of(window_of())
    demand, starts = PLACEMENT.demand(problem.item_counts), [dealt(problem)]
    alone = anneal(problem, demand, starts, ROWS, seed=3, parameters=SHAPE, proposals=9_000)
    executor = ThreadExecutor(3)
    try:
        together = anneal(
            problem, demand, starts, ROWS, seed=3, parameters=SHAPE, proposals=9_000, executor=executor
        )
    finally:
        executor.close()
    assert together.cell_of_item.tolist() == alone.cell_of_item.tolist()


def test_one_long_item_does_not_leave_a_block_too_full_to_be_split():
    lengths = np.append(np.random.default_rng(3).integers(40, 60, 63), 400)
    problem = problem_of(Window.from_counts(lengths, np.ones((64, LAYERS, EXPERTS), int)), slack=1.05)
    start = fixed_row_ffd(problem, ROWS)  # its first blocks are too full
    demand = PLACEMENT.demand(problem.item_counts)
    found = anneal(problem, demand, [start], ROWS, parameters=replace(SHAPE, levels=2), proposals=600)
    assert "inside" in {level.phase for level in found.trace}


def test_where_no_split_is_found_the_starts_go_on(monkeypatch):
    monkeypatch.setattr(blocks, "split", lambda *_: None)
    problem = problem_of(window_of())
    starts = [dealt(problem)]
    demand = PLACEMENT.demand(problem.item_counts)
    found = anneal(problem, demand, starts, ROWS, parameters=replace(SHAPE, levels=2), proposals=600)
    layout = Layout.from_items(problem, found.cell_of_item, ROWS)
    assert not broken_by(problem, layout.cells)
    assert [level.phase for level in found.trace] == ["blocks", "blocks", "finish", "finish"]
    assert found.score <= score(problem, PLACEMENT, Layout.from_items(problem, starts[0], ROWS)).components


@pytest.mark.parametrize(
    ("shards", "rules"),
    [
        (4, {}),
        ([[0, 1, 2], [3]], {}),
        (1, {"equal_samples_per_slot": True}),
        (1, {"max_samples_per_cell": 16}),
        (1, {"row_class": [0, 1] * 40}),
    ],
)
def test_rules_on_cells_leave_the_blocks_alone(shards, rules):
    assert blocks_pay(instance_of(problem_of(window_of())), ROWS)
    assert not blocks_pay(instance_of(problem_of(window_of(), shards, **rules)), ROWS)


@pytest.mark.parametrize(
    ("size", "shards", "pays"), [(63, 2, False), (64, 2, True), (31, 1, False), (32, 1, True)]
)
def test_full_cells_need_more_items_to_be_split_among(size, shards, pays):
    assert blocks_pay(instance_of(problem_of(window_of(size), shards, slack=1.01)), ROWS) == pays


def test_few_items_and_large_numbers_leave_the_blocks_alone():
    assert [blocks_pay(instance_of(problem_of(window_of(size))), ROWS) for size in (31, 32)] == [False, True]
    instance = instance_of(problem_of(window_of()))
    assert not blocks_pay(instance._replace(unit=2**61 // int(instance.demand.sum())), ROWS)
