"""Kernels of the annealer against plain Python: random numbers, peaks, moves, and scripted chains."""

import math

import numpy as np
import pytest
from annealing_cases import WORDS, Case, assert_consistent, case_of, cases
from hypothesis import given, settings
from hypothesis import strategies as st
from validity import broken_by

from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, Problem, Topology
from routepack_opt.solvers.annealing._kernels import chain
from routepack_opt.solvers.annealing._kernels.chain import run_chain
from routepack_opt.solvers.annealing._kernels.moves import allowed, apply, evaluate
from routepack_opt.solvers.annealing._kernels.peaks import LANES, exchanged_peaks, exchanged_peaks_plain
from routepack_opt.solvers.annealing._kernels.proposals import neighbour
from routepack_opt.solvers.annealing._kernels.random import below, exponential, next_word, unit
from routepack_opt.solvers.annealing.instance import blocked, from_kernel, new_state
from routepack_opt.solvers.annealing.parameters import Mix
from routepack_opt.window import Window

MASK = 2**64 - 1
ALL_MOVES = Mix(near=200, any=200, move=200, pair=200, reach=3, guided=512)


@pytest.fixture(autouse=True)
def _wrap_around():
    with np.errstate(over="ignore"):  # the generator wraps around; only visible with the JIT off
        yield


def rotated(x, k):
    return (x << k | x >> 64 - k) & MASK


def xoshiro(words):
    """Xoshiro256** in whole numbers (Blackman and Vigna 2018)."""
    s = list(words)
    while True:
        yield rotated(s[1] * 5 & MASK, 7) * 9 & MASK
        shifted = s[1] << 17 & MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = rotated(s[3], 45)


def state_before(word):
    """Return a generator state whose next word is `word`."""
    second = rotated(word * pow(9, -1, 2**64) & MASK, 57) * pow(5, -1, 2**64) & MASK
    return np.array([7, second, 5, 3], np.uint64)


words = st.lists(st.integers(0, MASK), min_size=4, max_size=4)


@given(words)
def test_the_random_stream_is_xoshiro256(seed):
    rng, stream = np.array(seed, np.uint64), xoshiro(seed)
    assert [int(next_word(rng)) for _ in range(20)] == [next(stream) for _ in range(20)]


@given(words, st.integers(1, 2**31 - 1))
def test_whole_numbers_below_a_limit_are_the_scaled_upper_half(seed, limit):
    word = next(xoshiro(seed))
    assert below(np.array(seed, np.uint64), limit) == (word >> 32) * limit >> 32 < limit


@given(st.one_of(st.integers(0, MASK), st.sampled_from([0, 1, MASK, MASK - 1, 2**63, 2**63 - 1])))
def test_uniform_draws_lie_strictly_between_0_and_1_and_their_logarithm_is_right(word):
    u = unit(state_before(word))
    assert u == (2 * (word >> 12) + 1) / 2**53
    assert 0.0 < u < 1.0
    assert exponential(state_before(word)) == pytest.approx(-math.log(u), rel=1e-12)


@pytest.mark.parametrize(
    "kinds", [("uint16", "uint16"), ("int32", "int32"), ("uint16", "int32"), ("int32", "uint16")]
)
@settings(max_examples=30)
@given(layers=st.integers(0, 2 * LANES + 3), ranks=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_compiled_peaks_are_the_plain_ones(kinds, layers, ranks, seed):
    rng = np.random.default_rng(seed)
    loads = blocked(rng.integers(0, 2**28, (3, layers, ranks))).astype(np.int32)
    left, right = (
        blocked(rng.integers(0, 2**16 if kind == "uint16" else 2**20, (4, layers, ranks))).astype(kind)
        for kind in kinds
    )
    found = exchanged_peaks(loads, 2, 0, left, 1, right, 3)
    assert found == exchanged_peaks_plain(loads, 2, 0, left, 1, right, 3)
    for block, gone, come, peak in ((2, left[1], right[3], found[0]), (0, right[3], left[1], found[1])):
        after = loads[block].astype(np.int64) - gone + come
        assert peak == after.max(axis=1).sum()


def pick(state, random, kind):
    """Draw any move of a kind into `state.picked`; returns cells and counts, or None when there is none."""
    cells = len(state.size)
    a, b = random.randrange(cells), random.randrange(cells)
    size_a, size_b = int(state.size[a]), int(state.size[b])
    count_a, count_b = {
        "swap": (1, 1),
        "move": (1, 0),
        "pair": (2, 1),
        "cells": (size_a, size_b),
        "some": (random.randint(0, size_a), random.randint(1, size_b)),
    }[kind]
    if a == b or count_a > size_a:
        return None
    for side, cell, count in ((0, a, count_a), (1, b, count_b)):
        held = state.members[cell, : state.size[cell]].tolist()
        state.picked[side, :count] = random.sample(held, count)
    return a, b, count_a, count_b


def after_move(case, move):
    """Layout after a picked move, made by hand."""
    a, b, count_a, count_b = move
    cell = case.state.cell.copy()
    cell[case.state.picked[0, :count_a]] = b
    cell[case.state.picked[1, :count_b]] = a
    return Layout.from_items(case.problem, from_kernel(case.problem, cell), case.rows)


def of_one_class(case, move):
    first_a, first_b = (case.state.members[cell, 0] for cell in move[:2])
    classes, dp = case.instance.row_class, case.problem.topology.dp
    return move[0] // dp == move[1] // dp or classes[first_a] == classes[first_b]


@settings(max_examples=120)
@given(cases(), st.randoms(use_true_random=False))
def test_allowed_moves_are_those_that_break_no_rule_and_their_scores_come_true(case, random):
    for kind in random.choices(("swap", "move", "pair", "cells", "some"), k=12):
        move = pick(case.state, random, kind)
        if move is None:
            continue
        after = after_move(case, move)
        keeps = not broken_by(case.problem, after.cells) and of_one_class(case, move)
        assert allowed(case.instance, case.state, *move) == keeps, (kind, move)
        if keeps:
            evaluate(case.instance, case.state, *move)
            promised = case.state.trial[:3].copy()
            apply(case.instance, case.state, *move)
            assert case.layout.cells == after.cells
            fresh = new_state(case.instance, case.rows, case.state.cell, WORDS)
            assert promised.tolist() == case.state.score.tolist() == fresh.score.tolist()
    assert_consistent(case)


def test_the_third_heaviest_row_is_the_peak_when_both_heavier_ones_get_lighter():
    counts = np.array([[[5, 0]], [[5, 0]], [[0, 5]], [[0, 5]], [[8, 0]]])
    problem = Problem(Window.from_counts([5, 5, 5, 5, 8], counts), Topology(dp=1, ep=2), 10)
    case = case_of(problem, Placement.identity(1, 2, 2), Layout([0, 0, 1, 1, 2], 3, 1))
    unit_ = case.instance.unit
    assert case.state.score.tolist() == [28 * unit_, 28 * unit_, 10 * unit_]
    case.state.picked[0, 0], case.state.picked[1, 0] = 1, 2
    evaluate(case.instance, case.state, 0, 1, 1, 1)
    assert case.state.trial[:3].tolist() == [18 * unit_, 18 * unit_, 8 * unit_]
    apply(case.instance, case.state, 0, 1, 1, 1)
    assert_consistent(case)


def test_neighbours_are_drawn_alike_on_both_sides_and_not_beyond_the_ends():
    problem = Problem(Window.from_lengths([6, 5, 4, 3, 2, 1]), Topology(dp=1), 30)
    placement = Placement.identity(0, problem.window.num_experts, 1)
    case = case_of(problem, placement, Layout([0] * 6, 1, 1))
    for item, wanted in ((2, {0, 1, 3, 4}), (0, {-1, 1, 2}), (5, {3, 4, -1})):
        drawn = [int(neighbour(case.instance, case.state, item, 2)) for _ in range(400)]
        assert set(drawn) == wanted
        assert all(60 <= drawn.count(j) <= 140 for j in wanted if j >= 0)


@settings(max_examples=80)
@given(cases(), st.sampled_from([1e-6, 1e-2, 10.0]))
def test_a_chain_keeps_every_rule_and_its_best_state(case, temperature):
    start = tuple(case.state.score.tolist())
    best_cell, best_score = case.state.cell.copy(), case.state.score.copy()
    counts = np.zeros(2, np.int64)
    run_chain(
        case.instance, case.state, best_cell, best_score, temperature, 60, ALL_MOVES.thresholds(), counts
    )
    assert 60 >= counts[0] >= counts[1] >= 0
    assert broken_by(case.problem, case.layout.cells) == []
    assert_consistent(case)
    assert tuple(best_score.tolist()) <= min(start, tuple(case.state.score.tolist()))
    case.state.cell[:] = best_cell
    assert broken_by(case.problem, case.layout.cells) == []
    best = case_of(case.problem, case.placement, case.layout)
    assert best.state.score.tolist() == best_score.tolist()


def four_in_two_rows():
    """Samples of 4, 1, 3 and 2 tokens, one in each of 2 x 2 cells; the score is the sum of row maxima."""
    problem = Problem(Window.from_lengths([4, 1, 3, 2]), Topology(dp=2), 10, (AttentionStage("a", 1.0),))
    return case_of(problem, Placement.identity(0, problem.window.num_experts, 1), Layout([0, 1, 2, 3], 2, 2))


# Swapped items, threshold -ln u (None where none may be drawn), and what must be so after the step: accepted,
# cells of the items, primary score times 100, incumbent.
SCRIPT = [
    ((1, 2), None, True, [0, 2, 1, 3], 60, 60),  # better: no draw
    ((0, 3), 0.05, False, [0, 2, 1, 3], 60, 60),  # +0.1 at T = 1 against 0.05
    ((0, 3), 0.2, True, [3, 2, 1, 0], 70, 60),  # uphill; the incumbent stays
    ((0, 0), None, False, [3, 2, 1, 0], 70, 60),  # a cell with itself is no move
    ((0, 1), 1e-9, True, [2, 3, 1, 0], 70, 60),  # equal: any threshold above 0
    ((0, 3), None, True, [0, 3, 1, 2], 60, 60),  # back down, not below the incumbent
    ((0, 2), 0.0, False, [0, 3, 1, 2], 60, 60),  # equal again, but nothing is below a threshold of 0
]


class Script:
    """Feeds the chain with moves and thresholds instead of random ones."""

    def __init__(self, steps, case: Case, monkeypatch):
        self.steps, self.case = iter(steps), case
        monkeypatch.setattr(chain, "propose", self.propose)
        monkeypatch.setattr(chain, "exponential", self.exponential)

    def propose(self, inst, state, mix):
        (i, j), self.threshold, *_ = next(self.steps)
        state.picked[0, 0], state.picked[1, 0] = i, j
        return int(state.cell[i]), int(state.cell[j]), 1, 1

    def exponential(self, rng):
        assert self.threshold is not None, "a threshold was drawn for a move that needs none"
        return self.threshold

    def run(self, proposals, best_cell, best_score, counts):
        plain = getattr(run_chain, "py_func", run_chain)
        state = self.case.state
        plain(self.case.instance, state, best_cell, best_score, 1.0, proposals, None, counts)


def test_a_scripted_chain_accepts_and_rejects_as_metropolis_says(monkeypatch):
    case = four_in_two_rows()
    script = Script(SCRIPT, case, monkeypatch)
    best_cell, best_score = case.state.cell.copy(), case.state.score.copy()
    for (i, j), _, accepted, cells, primary, incumbent in SCRIPT:
        counts = np.zeros(2, np.int64)
        script.run(1, best_cell, best_score, counts)
        assert counts.tolist() == [int(i != j), int(accepted)]
        assert case.state.cell.tolist() == cells
        assert (case.state.score[0], best_score[0]) == (primary, incumbent)
    assert best_cell.tolist() == [0, 2, 1, 3]


def test_a_scripted_chain_in_one_go_ends_the_same(monkeypatch):
    case = four_in_two_rows()
    best_cell, best_score = case.state.cell.copy(), case.state.score.copy()
    counts = np.zeros(2, np.int64)
    Script(SCRIPT, case, monkeypatch).run(len(SCRIPT), best_cell, best_score, counts)
    assert case.state.cell.tolist() == SCRIPT[-1][3]
    assert (best_cell.tolist(), int(best_score[0])) == ([0, 2, 1, 3], 60)
    assert counts.tolist() == [6, 4]
    assert WORDS.tolist() == case.state.rng.tolist()


def test_no_draw_reaches_the_bound_that_spares_the_logarithm():
    from routepack_opt.solvers.annealing._kernels.random import LARGEST

    assert -math.log(2.0**-53) < LARGEST  # the least that `unit` returns
