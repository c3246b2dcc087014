"""Every row bound is valid: its K holds for all sets of items, and its bins never exceed the optimum."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_rows import least_bins

from routepack_opt.bounds._kernels import counted, weight, weights_of
from routepack_opt.bounds.dff import _parameters, best_dff_bound
from routepack_opt.bounds.rows import cell_losses, item_count_bound, l2_bound, sum_bound
from routepack_opt.certificates import heaviest_cell


def decreasing(values):
    return np.array(sorted(values, reverse=True), dtype=np.int64)


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 40), st.lists(st.integers(1, 40), min_size=1, max_size=9))
def test_bounds_hold(cap, lengths):
    tokens = decreasing(min(t, cap) for t in lengths)
    best = least_bins(tokens.tolist(), cap)
    ones = np.ones_like(tokens)
    for bound in (
        sum_bound(tokens, cap),
        item_count_bound(tokens, cap),
        l2_bound(tokens, cap),
        best_dff_bound(tokens, cap, 10**9),
    ):
        assert heaviest_cell(tokens, ones, bound.weights, cap, None) <= bound.k
        assert bound.bins <= best


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 60))
def test_dual_feasible_functions(cap):
    # an unbounded knapsack over all sizes: no multiset of total at most cap weighs over f(cap)
    sizes = np.arange(1, cap + 1)
    for family, parameter in zip(*_parameters(sizes, cap), strict=True):
        most = [0] * (cap + 1)
        for room in range(1, cap + 1):
            most[room] = max(most[room - t] + weight(family, parameter, cap, t) for t in range(1, room + 1))
        assert most[cap] <= weight(family, parameter, cap, cap), (family, parameter)


@settings(max_examples=200, deadline=None)
@given(st.integers(2, 40), st.lists(st.integers(0, 40), min_size=1, max_size=12), st.data())
def test_weights_are_summed_range_by_range(cap, lengths, data):
    tokens = decreasing(min(t, cap) for t in lengths)
    number = np.bincount(tokens, minlength=cap + 1)
    count = np.concatenate(([0], np.cumsum(number)))
    held = np.concatenate(([0], np.cumsum(number * np.arange(cap + 1))))
    threshold = data.draw(st.integers(0, cap // 2))
    for family, parameter in zip(*_parameters(np.unique(tokens), cap), strict=True):
        weights, k = weights_of(family, parameter, threshold, cap, tokens)
        inside = counted(family, parameter, cap, threshold, cap - threshold, count, held)
        assert k * (tokens > cap - threshold).sum() + inside == weights.sum(), (family, parameter)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(2, 20),
    st.lists(st.tuples(st.integers(1, 20), st.integers(1, 3)), min_size=1, max_size=8),
    st.sampled_from([None, 2, 3, 4]),
)
def test_cell_losses_hold(cap, pairs, limit):
    pairs = sorted(((min(t, cap), min(s, limit or s)) for t, s in pairs), reverse=True)
    tokens, samples = (np.array(column, dtype=np.int64) for column in zip(*pairs, strict=True))
    losses, most = cell_losses(tokens, samples, cap, limit)
    assert heaviest_cell(tokens, samples, samples + losses, cap, limit) <= most


@settings(max_examples=200, deadline=None)
@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 2), st.integers(0, 9)), min_size=1, max_size=8),
    st.sampled_from([None, 1, 2, 3]),
)
def test_heaviest_cell_is_exact(cap, triples, limit):
    tokens, samples, weights = (np.array(column, dtype=np.int64) for column in zip(*triples, strict=True))
    best = 0
    for mask in range(1 << tokens.size):
        pick = [i for i in range(tokens.size) if mask >> i & 1]
        if tokens[pick].sum() <= cap and (limit is None or samples[pick].sum() <= limit):
            best = max(best, int(weights[pick].sum()))
    fits = tokens <= cap
    assert heaviest_cell(tokens[fits], samples[fits], weights[fits], cap, limit, -1) == best
