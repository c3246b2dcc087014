"""Placing: Algorithm 1, refinement, bounded movement, row-aware refinement."""

import json
from pathlib import Path

import numpy as np
import oracles_placement as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routepack_opt.errors import InputError
from routepack_opt.placement import Placement
from routepack_opt.solvers.placing import place, place_loads, refine_for_rows
from routepack_opt.solvers.placing.budget import Option, choose_options

OLMOE = Path(__file__).parents[1] / "instances" / "olmoe-loads" / "olmoe-loads.json"


@st.composite
def layers(draw, max_experts=12, max_layers=3, largest=50):
    ranks = draw(st.integers(1, 4))
    per_rank = draw(st.integers(1, max(1, max_experts // ranks)))
    load = st.one_of(st.integers(0, 3), st.integers(0, largest), st.integers(0, 10**9))
    row = st.lists(load, min_size=ranks * per_rank, max_size=ranks * per_rank)
    return draw(st.lists(row, min_size=1, max_size=max_layers)), ranks


# Algorithm 1


@given(layers())
def test_lpt_is_algorithm_1(case):
    loads, ranks = case
    result = place_loads(loads, ranks, method="lpt")
    assert result.placement.slot_of_expert.tolist() == [oracle.lpt(row, ranks) for row in loads]


@pytest.mark.parametrize(
    ("loads", "ranks", "slots"),
    [
        ([0] * 8, 2, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ([5] * 8, 2, [[0, 2, 4, 6], [1, 3, 5, 7]]),
        ([3, 3, 2, 2, 2, 0], 2, [[0, 2, 4], [1, 3, 5]]),
        ([1, 2, 3], 3, [[2], [1], [0]]),
        ([1, 2, 3], 1, [[2, 1, 0]]),
    ],
)
def test_known_placements_of_algorithm_1(loads, ranks, slots):
    result = place_loads([loads], ranks, method="lpt")
    assert result.placement.expert_of_slot.reshape(ranks, -1).tolist() == slots


def test_loads_are_added_in_int64():
    # In float32 the two largest are equal and the sum loses its last digits.
    result = place_loads([[33554434, 33554432, 3, 1]], 2, method="lpt")
    assert result.peak.tolist() == [33554435]


# Refinement


@given(layers(max_experts=8))
def test_no_placement_is_below_its_bound_and_a_met_bound_is_the_optimum(case):
    loads, ranks = case
    result = place_loads(loads, ranks)
    for row, peak, bound, met in zip(loads, result.peak, result.bound, result.bound_met, strict=True):
        least = oracle.optimum(row, ranks)
        assert bound <= least <= peak
        assert met == (peak == bound)


@given(layers())
def test_refinement_is_never_worse_and_leaves_no_improving_swap(case):
    loads, ranks = case
    lpt, refined = place_loads(loads, ranks, method="lpt"), place_loads(loads, ranks)
    for layer, row in enumerate(loads):
        before = oracle.measure(row, lpt.placement.slot_of_expert[layer], ranks)
        slots = refined.placement.slot_of_expert[layer].tolist()
        after = oracle.measure(row, slots, ranks)
        assert after <= before
        assert all(found >= after for found, _ in oracle.swaps(row, slots, ranks))


def test_one_swap_fixes_the_smallest_counterexample_to_lpt():
    loads = [[3, 3, 2, 2, 2, 0]]
    assert place_loads(loads, 2, method="lpt").peak.tolist() == [7]
    assert place_loads(loads, 2).peak.tolist() == [6] == [oracle.optimum(loads[0], 2)]


def test_refinement_takes_the_better_of_two_starts():
    rng = np.random.default_rng(0)
    mild = np.stack([rng.multinomial(10**6, np.full(60, 1 / 60)) for _ in range(30)])
    refined = place_loads(mild, 6)
    assert (refined.peak - refined.bound).max() <= 20


@pytest.mark.parametrize(("ranks", "per_rank"), [(2, 5), (3, 3), (8, 2), (8, 3)])
def test_each_swap_of_a_descent_is_the_best_there_is(ranks, per_rank):
    from routepack_opt.solvers.placing._kernels import descend

    rng = np.random.default_rng(ranks)
    for largest in (3, 40, 200, 1000, 10**6):
        row = rng.integers(0, largest, ranks * per_rank)
        now = rng.permutation(row.size).tolist()
        swaps, peaks = np.zeros((200, 2), np.int64), np.zeros(200, np.int64)
        order = np.argsort(-row, kind="stable")
        steps = descend(row, order, np.array(now), ranks, swaps, peaks)
        for (a, b), peak in zip(swaps[:steps].tolist(), peaks[:steps].tolist(), strict=True):
            best = min(found for found, _ in oracle.swaps(row, now, ranks))
            now[a], now[b] = now[b], now[a]
            assert oracle.measure(row, now, ranks) == best
            assert peak == best[0]
        assert all(found >= oracle.measure(row, now, ranks) for found, _ in oracle.swaps(row, now, ranks))


def test_shipped_loads_reproduce_the_known_quality():
    table = json.loads(OLMOE.read_text())["loads"]
    rows = [row for name, layer in table.items() if name.startswith("olmoe") for row in layer]
    for ranks, worst in ((4, 1.0002), (8, 1.0012), (16, 1.0217), (32, 1.0079)):
        refined, lpt = place_loads(rows, ranks), place_loads(rows, ranks, method="lpt")
        assert (refined.peak / refined.bound).max() <= worst
        assert (refined.peak <= lpt.peak).all()


# Movement


@settings(max_examples=60)
@given(layers(), st.integers(0, 2**32))
def test_renaming_keeps_the_partition_and_moves_the_fewest(case, seed):
    loads, ranks = case
    rng = np.random.default_rng(seed)
    previous = Placement(np.stack([rng.permutation(len(row)) for row in loads]), ranks)
    fresh = place_loads(loads, ranks, method="lpt")
    result = place_loads(loads, ranks, method="lpt", previous=previous)
    assert sorted(map(sorted, result.rank_loads.tolist())) == sorted(map(sorted, fresh.rank_loads.tolist()))
    assert result.moves == result.placement.moves_from(previous)
    least = sum(
        oracle.fewest_moves(fresh.placement.rank_of_expert[k], previous.rank_of_expert[k], ranks)
        for k in range(len(loads))
    )
    assert result.moves <= least  # exchanges of equal loads may save more
    if all(len(set(row)) == len(row) for row in loads):
        assert result.moves == least
    stays = result.placement.rank_of_expert == previous.rank_of_expert
    assert (result.placement.slot_of_expert == previous.slot_of_expert)[stays].all()


def test_a_placement_that_is_still_best_does_not_move():
    loads = np.random.default_rng(1).integers(0, 1000, (4, 32))
    first = place_loads(loads, 8)
    again = place_loads(loads, 8, previous=first.placement)
    assert again.moves == 0
    assert again.placement == first.placement


@settings(max_examples=60)
@given(layers(max_layers=4), st.integers(0, 2**32), st.integers(0, 20))
def test_max_moves_bounds_the_moves_and_never_raises_a_peak(case, seed, budget):
    loads, ranks = case
    rng = np.random.default_rng(seed)
    previous = Placement(np.stack([rng.permutation(len(row)) for row in loads]), ranks)
    before = previous.loads(np.array(loads)).max(axis=1)
    free = place_loads(loads, ranks, previous=previous)
    bounded = place_loads(loads, ranks, previous=previous, max_moves=budget)
    more = place_loads(loads, ranks, previous=previous, max_moves=budget + 1)
    assert bounded.moves <= budget
    assert bounded.moves == bounded.placement.moves_from(previous)
    assert (bounded.peak <= before).all()
    assert more.peak.sum() <= bounded.peak.sum()
    assert free.peak.sum() <= bounded.peak.sum()
    assert (free.peak <= place_loads(loads, ranks).peak).all()
    if budget >= free.moves:
        assert bounded.peak.sum() == free.peak.sum()


@settings(max_examples=60)
@given(st.data())
def test_the_budget_is_spent_best(data):
    table = []
    for _ in range(data.draw(st.integers(1, 3))):
        moves = sorted(data.draw(st.sets(st.integers(1, 6), max_size=3)))
        peaks = sorted(
            data.draw(st.sets(st.integers(0, 30), min_size=len(moves) + 1, max_size=len(moves) + 1))
        )
        table.append([Option(np.zeros(1), m, p) for m, p in zip([0, *moves], peaks[::-1], strict=True)])
    budget = data.draw(st.integers(0, 15))
    every = [[]]
    for options in table:
        every = [[*chosen, option] for chosen in every for option in options]
    value = [(sum(o.peak for o in c), sum(o.moves for o in c)) for c in every]
    best = min(v for v in value if v[1] <= budget)
    picked = choose_options(table, budget)
    assert (sum(o.peak for o in picked), sum(o.moves for o in picked)) == best


def test_a_tie_between_layers_goes_to_the_one_that_moves_less():
    def option(moves, peak):
        return Option(np.zeros(1), moves, peak)

    picked = choose_options([[option(0, 10), option(4, 5)], [option(0, 10), option(2, 5)]], 4)
    assert [(o.moves, o.peak) for o in picked] == [(0, 10), (2, 5)]


def test_experts_of_equal_load_are_exchanged_rather_than_moved():
    previous = Placement([[3, 0, 2, 1, 5, 4]], 3)
    assert place_loads([[7] * 6], 3, method="lpt", previous=previous).placement == previous


def test_of_equal_peaks_the_one_with_fewest_moves_is_taken():
    # Every rank has 18 already, though Algorithm 1 would pair the experts otherwise.
    previous = Placement([[0, 1, 4, 5, 6, 7, 2, 3]], 2)
    assert place_loads([[1, 2, 3, 4, 5, 6, 7, 8]], 2).placement.moves_from(previous) > 0
    result = place_loads([[1, 2, 3, 4, 5, 6, 7, 8]], 2, previous=previous)
    assert (result.moves, result.peak.tolist()) == (0, [18])


def test_moves_without_a_previous_placement_are_counted_from_the_identity():
    result = place_loads([[5] * 8], 2)
    assert result.moves == result.placement.moves_from(Placement.identity(1, 8, 2)) == 4


# Edges


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (([[1, 2, 3]], 2), {}, ["3 experts over 2 ranks"]),
        (([[1, -2]], 2), {}, ["-2", "(0, 1)"]),
        (([[1, float("nan")]], 2), {}, ["nan"]),
        (([[1, 0.5]], 2), {}, ["0.5"]),
        (([1, 2], 2), {}, ["shape"]),
        (([[2**61, 2**61]], 2), {}, ["2**62"]),
        (([[1, 2]], 0), {}, ["ranks", "0"]),
        (([[1, 2]], 2), {"method": "best"}, ["refined", "best"]),
        (([[1, 2]], 2), {"max_moves": 1}, ["max_moves", "identity"]),
        (([[1, 2]], 2), {"previous": Placement.identity(1, 2, 2), "max_moves": -1}, ["max_moves", "-1"]),
        (([[1, 2]], 2), {"previous": Placement.identity(2, 2, 2)}, ["previous"]),
        (([[1, 2]], 2), {"previous": [[0, 1]]}, ["previous", "list"]),
    ],
)
def test_bad_requests_are_refused_by_name(arguments, options, words):
    with pytest.raises(InputError) as error:
        place_loads(*arguments, **options)
    for word in words:
        assert word in str(error.value)


def test_no_layers_and_one_expert_per_rank():
    empty = place_loads(np.zeros((0, 0), np.int64), 8)
    assert (empty.placement, empty.moves) == (Placement.identity(0, 0, 8), 0)
    assert empty.peak.shape == empty.bound_met.shape == (0,)
    single = place_loads([[4, 7, 1]], 3)
    assert single.bound_met.all()


def test_place_takes_the_loads_of_a_problem():
    from routepack_opt.problem import Problem, Topology
    from routepack_opt.window import Window

    rng = np.random.default_rng(5)
    counts = np.stack([[rng.multinomial(20, np.full(8, 1 / 8)) for _ in range(3)] for _ in range(16)])
    problem = Problem(Window.from_counts(np.full(16, 20), counts), Topology(dp=2, ep=4), capacity=64)
    result = place(problem)
    assert result.placement == place_loads(counts.sum(axis=0), 4).placement
    assert (result.rank_loads == result.placement.demand(counts).astype(np.int64).sum(axis=0)).all()
    lengths_only = place(Problem(Window.from_lengths([5, 6, 7]), Topology(dp=1), capacity=64))
    assert lengths_only.placement.num_layers == 0


def test_the_same_loads_give_the_same_placement():
    loads = np.random.default_rng(9).integers(0, 40, (6, 64))
    assert place_loads(loads, 8).placement.digest == place_loads(loads.tolist(), 8).placement.digest


# Row-aware refinement


@settings(max_examples=60)
@given(st.data())
def test_row_refinement_never_raises_the_score_and_accounts_exactly(data):
    ranks, per_rank = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    rows, depth, shards = (
        data.draw(st.integers(1, 5)),
        data.draw(st.integers(1, 3)),
        data.draw(st.integers(1, 3)),
    )
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    loads = rng.integers(0, 30, (rows, depth, ranks * per_rank))
    shard = rng.integers(0, shards, rows)
    base, unit = rng.integers(0, 100, shards), int(rng.integers(1, 5))
    start = Placement(np.stack([rng.permutation(ranks * per_rank) for _ in range(depth)]), ranks)
    result = refine_for_rows(loads, start, shard_of_row=shard, base=base, unit=unit, moves=500, max_sweeps=50)
    arguments = (ranks, shard, base.tolist(), unit)
    assert result.before.tolist() == oracle.row_work(loads, start.slot_of_expert, *arguments)
    assert result.after.tolist() == oracle.row_work(loads, result.placement.slot_of_expert, *arguments)
    assert (result.after.max(), result.after.sum()) <= (result.before.max(), result.before.sum())
    assert result.moves == result.placement.moves_from(start)
    assert result.layers_done == depth


def test_row_refinement_ends_where_no_swap_of_a_single_layer_helps():
    rng = np.random.default_rng(2)
    loads = rng.integers(0, 50, (4, 1, 12))
    start = place_loads(loads.sum(axis=0), 4).placement
    slots = refine_for_rows(loads, start, max_sweeps=100).placement.slot_of_expert[0].tolist()

    def work(candidate):
        return oracle.row_work(loads, [candidate], 4, [0] * 4, [0], 1)[0]

    for a in range(12):
        for b in range(a):
            swapped = list(slots)
            swapped[a], swapped[b] = swapped[b], swapped[a]
            assert work(swapped) >= work(slots)


def test_row_refinement_spares_the_busiest_shard():
    # Every exchange costs shard 0 at least 1; exchanging experts 0 and 2 saves shard 1 eight.
    loads = np.array([[[6, 2, 5, 3]], [[9, 9, 1, 1]]])
    start = Placement.identity(1, 4, 2)
    assert refine_for_rows(loads, start).after.sum() < 26
    spared = refine_for_rows(loads, start, shard_of_row=[0, 1], base=[100, 0])
    assert spared.after.tolist() == [108, 18]


def test_row_refinement_sees_what_the_aggregate_hides():
    # Two experts are hot in different rows: together on a rank they balance the sum, apart they balance rows.
    loads = np.array([[[10, 10, 0, 0]], [[0, 0, 10, 10]]])
    start = Placement([[0, 1, 2, 3]], 2)
    result = refine_for_rows(loads, start)
    assert (result.before.tolist(), result.after.tolist()) == ([40], [20])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shard_of_row": [0]}, ["shard_of_row"]),
        ({"shard_of_row": [0, -1]}, ["shard_of_row", "-1"]),
        ({"shard_of_row": [0, 2], "base": [1, 1]}, ["base", "3 shards"]),
        ({"unit": -1}, ["unit"]),
        ({"max_sweeps": 1.5}, ["max_sweeps"]),
        ({"moves": -1}, ["moves", "-1"]),
    ],
)
def test_row_refinement_refuses_bad_arguments(options, words):
    with pytest.raises(InputError) as error:
        refine_for_rows(np.ones((2, 1, 4), np.int64), Placement.identity(1, 4, 2), **options)
    for word in words:
        assert word in str(error.value)
