"""Bounds on the busiest rank over all placements, and the exhaustive split they come from."""

import numpy as np
import oracles_placement as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routepack_opt.bounds.placement import counting_peaks, rank_peaks, split_layer


@st.composite
def layers(draw):
    ranks, per_rank = draw(st.sampled_from([(1, 3), (2, 1), (2, 2), (2, 3), (2, 4), (3, 2), (3, 3), (4, 2)]))
    load = st.one_of(st.integers(0, 3), st.integers(0, 40), st.integers(0, 10**9))
    size = ranks * per_rank
    return draw(st.lists(load, min_size=size, max_size=size)), ranks


@given(layers())
def test_counting_is_below_every_placement(case):
    loads, ranks = case
    assert counting_peaks(np.array([loads]), ranks)[0] <= oracle.optimum(loads, ranks)


@given(layers())
def test_the_split_finds_the_optimum_of_small_layers(case):
    loads, ranks = case
    least = oracle.optimum(loads, ranks)
    assert rank_peaks(np.array([loads]), ranks).tolist() == [least]
    if ranks > 1 and len(loads) > ranks:
        low, slots = split_layer(np.array(loads), ranks, 0)
        assert low == least
        assert sorted(slots.tolist()) == list(range(len(loads)))
        assert oracle.measure(loads, slots, ranks)[0] == least


@settings(max_examples=200)
@given(layers(), st.integers(0, 60))
def test_a_bound_is_sound_wherever_the_steps_run_out(case, steps):
    loads, ranks = case
    low, slots = split_layer(np.array(loads), ranks, 0, steps)
    least = oracle.optimum(loads, ranks)
    assert low <= least
    if slots is not None:
        assert oracle.measure(loads, slots, ranks)[0] >= least


def test_every_limit_is_decided_right():
    from routepack_opt.bounds.placement._kernels import FOUND, IMPOSSIBLE, split

    rng = np.random.default_rng(4)
    for _ in range(40):
        falling = -np.sort(-rng.integers(0, 12, 9))
        least, slot = oracle.optimum(falling.tolist(), 3), np.zeros(9, np.int64)
        for limit in range(max(0, least - 3), least + 4):
            answer, peak, _ = split(falling, np.arange(9), 3, limit, 10**6, slot)
            assert answer == (FOUND if limit >= least else IMPOSSIBLE)
            if answer == FOUND:
                assert oracle.measure(falling.tolist(), slot, 3)[0] == peak <= limit


@pytest.mark.parametrize(
    ("loads", "ranks", "counted", "bound"),
    [
        ([3, 3, 2, 2, 2, 0], 2, 6, 6),
        ([9, 1, 1, 1, 1, 0], 2, 10, 10),
        ([0] * 6, 2, 0, 0),
        ([10, 10, 9, 1, 1, 1, 0, 0], 4, 10, 10),
        ([20, 20, 5, 5, 5, 5, 0, 0, 0], 3, 23, 25),  # two hot experts apart: one of them takes a five
    ],
)
def test_bounds_of_known_layers(loads, ranks, counted, bound):
    table = np.array([loads])
    assert (counting_peaks(table, ranks).tolist(), rank_peaks(table, ranks).tolist()) == ([counted], [bound])
    assert bound == oracle.optimum(loads, ranks)


def test_without_experts_layers_or_choice():
    assert rank_peaks(np.zeros((0, 0), np.int64), 8).tolist() == []
    assert rank_peaks(np.array([[4, 7, 1]]), 3).tolist() == [7]
    assert rank_peaks(np.array([[4, 7, 1]]), 1).tolist() == [12]


def test_loads_too_large_to_search_are_counted():
    loads = np.array([2**59, 2**59, 1, 0])
    assert split_layer(loads, 2, 2**59) == (2**59, None)
    assert rank_peaks(loads[None], 2).tolist() == [2**59 + 1]
