"""Crossings are counted as by hand, seating finds the fewest, and nothing else of a plan changes."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import placements_of, problems_with_layouts

import routepack_opt as rp
from routepack_opt import crossings
from routepack_opt.crossings import Crossings, count_crossings, held, staying
from routepack_opt.layout import Layout
from routepack_opt.solvers.seating import seat_cells
from routepack_opt.suite.evaluation.exchange import traffic_of


def on_nodes(problem, per_node):
    """The problem with nodes."""
    return replace(problem, topology=replace(problem.topology, ranks_per_node=per_node))


@st.composite
def cases(draw):
    """A problem with nodes, a layout, and the demand under any placement."""
    problem, layout = draw(problems_with_layouts())
    problem = on_nodes(problem, draw(st.integers(1, 4)))
    return problem, layout, draw(placements_of(problem))


def by_hand(problem, demand, layout):
    """Crossings of a layout in assignments, a fraction."""
    nodes = [p // problem.topology.ranks_per_node for p in range(problem.topology.ep)]
    items = problem.items
    members = [items.members[a:b] for a, b in zip(items.offsets[:-1], items.offsets[1:], strict=True)]
    cell = [layout.cell_of_sample[group[0]] for group in members]
    cells = oracles.cells_of(cell, layout.rows, layout.dp)
    return oracles.crossings(demand.tolist(), cells, problem.topology.shards, nodes)


@given(cases())
def test_crossings_are_those_of_single_assignments(case):
    problem, layout, placement = case
    demand = placement.demand(problem.item_counts)
    found = count_crossings(problem, demand, layout)
    assert Fraction(found, problem.topology.ep) == by_hand(problem, demand, layout)


@given(cases())
def test_the_simulator_sends_what_crosses(case):
    problem, layout, placement = case
    demand = placement.demand(problem.item_counts)
    sent = traffic_of(problem, demand, layout, problem.topology.ranks_per_node).sent[1]
    assert sent.sum() * problem.topology.ep == pytest.approx(count_crossings(problem, demand, layout))


@given(st.integers(1, 9), st.integers(1, 9))
def test_every_token_of_a_slot_and_of_a_rank_is_held_once(slots, ranks):
    found = held(slots, ranks)
    assert (found.sum(axis=1) == ranks).all() and (found.sum(axis=0) == slots).all()


def exchanges(problem, layout):
    """Every layout that differs by the slots of cells inside row and shard, and keeps the rules."""
    shards, columns = problem.topology.shards, problem.rules.equal_samples_per_slot
    rows = [0] if columns else list(range(layout.rows))
    todo = [(r, slots) for r in rows for slots in shards]
    grid = np.arange(layout.rows * layout.dp).reshape(layout.rows, layout.dp)

    def extend(k, seats):
        if k == len(todo):
            yield Layout(seats.ravel()[layout.cell_of_sample], layout.rows, layout.dp)
            return
        r, slots = todo[k]
        for order in permutations(slots):
            new = seats.copy()
            where = slice(None) if columns else slice(r, r + 1)
            new[where, list(slots)] = grid[where][:, list(order)]
            yield from extend(k + 1, new)

    return extend(0, grid)


@given(cases())
def test_seated_cells_have_the_fewest_crossings_and_the_same_score(case):
    problem, layout, placement = case
    demand = placement.demand(problem.item_counts)
    seated = seat_cells(problem, demand, layout)
    assert rp.score(problem, placement, seated) == rp.score(problem, placement, layout)
    found = count_crossings(problem, demand, seated)
    assert np.array_equal(seat_cells(problem, demand, seated).cell_of_sample, seated.cell_of_sample)
    if layout.rows * layout.dp <= 6:
        assert found == min(count_crossings(problem, demand, one) for one in exchanges(problem, layout))
    assert found <= count_crossings(problem, demand, layout)


def test_equal_counts_keep_whole_columns_together():
    counts = np.zeros((6, 1, 2), np.int64)
    counts[:, 0] = [[9, 0], [0, 9], [9, 0], [0, 9], [0, 1], [1, 0]]
    window = rp.Window.from_counts([9, 9, 9, 9, 1, 1], counts)
    cells = [[[1], [0, 4]], [[3, 5], [2]]]  # swapping the cells of one row alone would break the rule
    for equal, fewest in ((False, 2), (True, 2)):
        rules = rp.LayoutRules(equal_samples_per_slot=equal)
        problem = rp.Problem(window, rp.Topology(2, 2, 1, 1), 20, rules=rules)
        demand = rp.Placement.identity(1, 2, 2).demand(problem.item_counts)
        layout = Layout.from_cells(cells)
        seated = seat_cells(problem, demand, layout).validate(problem)
        assert count_crossings(problem, demand, layout) == 2 * 36
        assert count_crossings(problem, demand, seated) == 2 * fewest


def test_cells_stay_when_moving_gains_nothing():
    window = rp.Window.from_counts(
        [4] * 4, np.tile([0, 0, 4, 4], (4, 2, 1))
    )  # all experts on the second node
    problem = rp.Problem(window, rp.Topology(4, 4, 1, 2), 4)
    layout = Layout([2, 0, 3, 1], 1, 4)
    demand = rp.Placement.identity(2, 4, 4).demand(problem.item_counts)
    assert seat_cells(problem, demand, layout).cell_of_sample.tolist() == [2, 0, 3, 1]


def test_one_node_has_no_crossings():
    window = rp.Window.from_counts([4] * 4, np.full((4, 2, 4), 2))
    for per_node in (None, 4, 9):
        problem = rp.Problem(window, rp.Topology(4, 4, 1, per_node), 4)
        demand = rp.Placement.identity(2, 4, 4).demand(problem.item_counts)
        assert count_crossings(problem, demand, Layout([2, 0, 3, 1], 1, 4)) == 0


def test_counts_too_large_to_compare_are_refused(monkeypatch):
    monkeypatch.setattr(crossings, "_EXACT", 10)
    window = rp.Window.from_counts([4] * 4, np.full((4, 2, 4), 2))
    problem = rp.Problem(window, rp.Topology(4, 4, 1, 2), 4)
    demand = rp.Placement.identity(2, 4, 4).demand(problem.item_counts)
    with pytest.raises(rp.InputError, match="ranks_per_node"):
        staying(problem, demand, Layout([2, 0, 3, 1], 1, 4))


# Plans.


def problem_of(per_node, **rules):
    rng = np.random.default_rng(3)
    lengths = rng.integers(5, 40, 32)
    counts = np.stack([rng.multinomial(n, rng.dirichlet(np.full(8, 0.5)), 2) for n in lengths])
    topology = rp.Topology(4, 4, [[0, 2, 3], [1]], per_node)
    stages = (rp.AttentionStage("mla", 2.0, 2.0),)
    return rp.Problem(rp.Window.from_counts(lengths, counts), topology, 120, stages, rp.LayoutRules(**rules))


@pytest.fixture(scope="module")
def plans():
    """A plan with and without nodes, and their problems."""
    problems = problem_of(None), problem_of(2)
    return *problems, *(rp.plan(one, budget=rp.Budget(2_000)) for one in problems)


def test_a_plan_with_nodes_differs_by_the_seats_of_cells_alone(plans):
    without, problem, plain, seated = plans
    assert plain.crossings is None
    assert seated.score == plain.score and seated.placement == plain.placement
    assert seated.layout.signature(problem) == plain.layout.signature(without)
    demand = plain.placement.demand(problem.item_counts)
    found = seated.validate(problem).crossings
    assert found.before == count_crossings(problem, demand, plain.layout)
    assert found.after == count_crossings(problem, demand, seated.layout) < found.before
    assert found.total == 4 * problem.item_counts.sum()
    assert found.share < found.share_before and found.saved == 1 - found.after / found.before
    tokens = np.zeros(seated.snapshot.cell_tokens.size, np.int64)
    np.add.at(tokens, seated.layout.cell_of_sample, problem.aligned)
    assert seated.snapshot.cell_tokens.ravel().tolist() == tokens.tolist()


def test_nodes_are_part_of_the_problem(plans):
    without, problem, _, seated = plans
    assert without.digest != problem.digest != problem_of(4).digest
    assert without.rows_digest == problem.rows_digest
    with pytest.raises(rp.CheckError, match="made for problem"):
        seated.validate(without)


def test_a_plan_file_keeps_the_crossings(plans, tmp_path):
    _, problem, plain, seated = plans
    for plan in (plain, seated):
        plan.save(tmp_path / "plan.npz")
        assert rp.Plan.load(tmp_path / "plan.npz").crossings == plan.crossings
    wrong = replace(seated, crossings=replace(seated.crossings, after=1))
    with pytest.raises(rp.CheckError, match="crossings"):
        wrong.validate(problem)


@pytest.mark.parametrize("rules", [{"equal_samples_per_slot": True}, {"row_order": "largest_first"}])
def test_rules_hold_after_seating(rules):
    problem = problem_of(2, **rules)
    found = rp.plan(problem, budget=rp.Budget(500)).validate(problem)
    assert found.crossings.after <= found.crossings.before


def test_crossings_of_nothing_are_no_share():
    found = Crossings(0, 0, 0, 4, 2)
    assert (found.share, found.share_before, found.saved) == (0, 0, 0)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", True])
def test_nodes_without_ranks_are_refused(value):
    with pytest.raises(rp.InputError, match="ranks_per_node"):
        rp.Topology(4, 4, 1, value)


def test_a_configuration_takes_nodes():
    config = rp.PlannerConfig.from_dict({"topology": {"dp": 4, "ep": 4, "ranks_per_node": 2}, "capacity": 9})
    assert config.topology.ranks_per_node == 2
