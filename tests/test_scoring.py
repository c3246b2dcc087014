"""The exact score and the metrics against nested loops over fractions."""

from fractions import Fraction

import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import placements_of, problems_with_layouts

from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, Problem, Topology
from routepack_opt.scoring import Score, demand_of, load_metrics, loads_of, score, score_of
from routepack_opt.window import Window


@st.composite
def cases(draw):
    problem, layout = draw(problems_with_layouts())
    return problem, layout, draw(placements_of(problem))


def terms(problem, layout, placement):
    """Compute A, W and J of the oracle from plain lists."""
    topology, window = problem.topology, problem.window
    stages = [tuple(Fraction(d) for d in stage.decimals) for stage in problem.stages]
    q = oracles.demand(problem.counts.tolist(), placement.slot_of_expert.tolist(), topology.ep)
    lengths = [oracles.round_up(n, problem.rules.length_multiple) for n in window.lengths.tolist()]
    place = (layout.cells, topology.shards, problem.capacity)
    a = oracles.attention(lengths, *place, stages)
    w = oracles.routed(q, layout.cells, topology.shards, window.num_layers, topology.ep)
    j = oracles.joint(lengths, q, *place, stages, window.num_layers, topology.ep)
    return a, w, j


@given(cases())
def test_the_score_is_the_formula_exactly(case):
    problem, layout, placement = case
    _, _, j = terms(problem, layout, placement)
    found = score(problem, placement, layout.cells)
    assert tuple(Fraction(c, found.denominator) for c in found.components) == oracles.score(j)
    assert all(isinstance(c, int) for c in found.components)


@given(cases())
def test_every_term_is_the_formula_exactly(case):
    problem, layout, placement = case
    a, w, j = terms(problem, layout, placement)
    loads, unit = loads_of(problem, demand_of(problem, placement), layout), problem.denominator
    assert loads.routed.tolist() == w
    assert [[Fraction(x, unit) for x in row] for row in loads.attention.sum(axis=0).tolist()] == a
    assert [[Fraction(x, unit) for x in row] for row in loads.joint.tolist()] == j
    assert loads.tokens.tolist() == [
        [sum(problem.aligned[list(cell)].tolist()) for cell in row] for row in layout.cells
    ]


@given(cases())
def test_metrics_follow_equations_21_to_23(case):
    problem, layout, placement = case
    a, w, j = terms(problem, layout, placement)
    ranks = problem.topology.ep
    rank_loads = oracles.demand(
        [problem.counts.sum(axis=0).tolist()], placement.slot_of_expert.tolist(), ranks
    )[0]
    expected = oracles.load_metrics(j, a, w, rank_loads, ranks)
    found = load_metrics(problem, placement, loads_of(problem, demand_of(problem, placement), layout))
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(cases(), st.randoms(use_true_random=False))
def test_the_score_ignores_row_order_and_order_inside_a_shard(case, random):
    problem, layout, placement = case
    expected = score(problem, placement, layout)
    demand = demand_of(problem, placement)
    rows = list(range(layout.rows))
    random.shuffle(rows)
    assert score_of(problem, loads_of(problem, demand, layout.permuted_rows(rows))) == expected
    moved = [list(row) for row in layout.cells]
    for row in moved:
        for slots in problem.topology.shards:
            held = [row[d] for d in slots]
            random.shuffle(held)
            for d, cell in zip(slots, held, strict=True):
                row[d] = cell
    assert score_of(problem, loads_of(problem, demand, Layout.from_cells(moved))) == expected


@given(cases())
def test_no_layout_beats_the_aggregate_bound_of_its_placement(case):
    problem, layout, placement = case  # Eqs. 3-4
    routed = loads_of(problem, demand_of(problem, placement), layout).routed
    for layer, ranks in enumerate(placement.loads(problem.loads)):
        assert routed[:, :, layer, :].max(axis=2, initial=0).sum() >= ranks.max()


def test_a_score_by_hand():
    window = Window.from_counts([2, 4], [[[2, 0]], [[1, 3]]])
    problem = Problem(window, Topology(dp=2, ep=2), 4, stages=[AttentionStage("a", 1.5, 0.5)])
    found = score(problem, Placement.identity(1, 2, 2), [[[0], [1]]])
    # attention: 1.5 * 4/4 + 0.5 * (4/4)^2 = 2 in the slower slot; experts: max(2 + 1, 0 + 3) / 4 = 0.75
    assert found == Score(440, 440, 440, 160)
    assert found.as_float() == (2.75, 2.75, 2.75)


def test_without_layers_and_stages_a_layout_costs_nothing():
    problem = Problem(Window.from_lengths([3, 4]), Topology(dp=2), 4)
    placement = Placement.identity(0, 0, 1)
    assert score(problem, placement, [[[0], [1]]]).components == (0, 0, 0)
    loads = loads_of(problem, demand_of(problem, placement), Layout([0, 1], 1, 2))
    assert load_metrics(problem, placement, loads) == {
        "joint": 0.0, "attention": 0.0, "ep_peak_sum": 0.0, "ep_tail_peak": 0.0,
        "ep_balance_efficiency": 1.0, "cv_global": 0.0,
    }  # fmt: skip


def test_a_layer_without_assignments_does_not_count_in_the_variation():
    window = Window.from_counts([4, 4], [[[0, 0], [0, 0]]] * 2)
    busy = Window.from_counts([4, 4], [[[4, 0], [4, 0]]] * 2)
    placement, topology = Placement.identity(2, 2, 2), Topology(dp=2, ep=2)
    for source, variation, efficiency in ((window, 0.0, 1.0), (busy, 1.0, 0.5)):
        problem = Problem(source, topology, 4)
        loads = loads_of(problem, demand_of(problem, placement), Layout([0, 1], 1, 2))
        metrics = load_metrics(problem, placement, loads)
        assert (metrics["cv_global"], metrics["ep_balance_efficiency"]) == (variation, efficiency)


def test_large_lengths_do_not_wrap():
    window = Window.from_lengths([131072, 40000])
    problem = Problem(window, Topology(dp=1), 2**18, stages=[AttentionStage("a", 24576, 2**18)])
    found = score(problem, Placement.identity(0, 0, 1), [[[0, 1]]])
    tokens, squares = 131072 + 40000, 131072**2 + 40000**2
    assert found.primary == 24576 * 2**18 * tokens + 2**18 * squares > 2**50


def test_equal_tokens_can_be_unequal_attention():
    stage, placement = [AttentionStage("mla", 0, 1)], Placement.identity(0, 0, 1)
    lengths = ([8192], [1024] * 8)
    work = [
        score(Problem(Window.from_lengths(n), Topology(1), 8192, stage), placement, [[range(len(n))]]).primary
        for n in lengths
    ]
    assert work[0] == 8 * work[1]


def test_scores_compare_lexicographically_and_only_in_one_unit():
    low, high = Score(1, 9, 9, 4), Score(2, 0, 0, 4)
    assert low < high
    assert not low < low
    assert not low > low
    assert low <= high
    assert high > low
    assert high >= Score(2, 0, 0, 4)
    assert Score(1, 2, 3, 4) < Score(1, 2, 4, 4) < Score(1, 3, 0, 4)
    assert Score(1, 2, 3, 4) != Score(1, 2, 3, 8)
    for compare in ("__lt__", "__le__", "__gt__", "__ge__"):
        with pytest.raises(InputError, match="one denominator, found 4 and 8"):
            getattr(low, compare)(Score(1, 9, 9, 8))
        with pytest.raises(TypeError, match="tuple"):
            getattr(low, compare)((1, 9, 9))


@pytest.mark.parametrize("cells", [[[[0, 1], [2]]], Layout([0, 0, 1], 1, 2)])
def test_only_valid_layouts_are_scored(cells):
    problem = Problem(Window.from_lengths([3, 4, 5]), Topology(dp=2), 6)
    with pytest.raises(InputError, match="at most 6 tokens in a cell, found 7 in row 0, slot 0"):
        score(problem, Placement.identity(0, 0, 1), cells)


def test_a_placement_of_another_shape_is_refused():
    window = Window.from_counts([2, 4], [[[2, 0]], [[1, 3]]])
    problem, cells = Problem(window, Topology(dp=2, ep=2), 4), [[[0], [1]]]
    with pytest.raises(InputError, match=r"2 ranks, as topology\.ep, found 1"):
        score(problem, Placement.identity(1, 2, 1), cells)
    with pytest.raises(InputError, match=r"\[samples, 2, 2\], found shape \[2, 1, 2\]"):
        score(problem, Placement.identity(2, 2, 2), cells)
