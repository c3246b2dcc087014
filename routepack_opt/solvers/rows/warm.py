"""Compile, or load from the cache, what certification needs, before a deadline starts to count."""

from __future__ import annotations

import numpy as np


def warm_up_rows() -> None:
    """Call every kernel of row certification once."""
    from routepack_opt.bounds.dff import best_dff_bound
    from routepack_opt.solvers.rows import heuristics
    from routepack_opt.solvers.rows._kernels import fill_slots
    from routepack_opt.solvers.rows.anneal import anneal_bins
    from routepack_opt.solvers.rows.columns._kernels import enumerate_patterns, knapsack, suffix_values
    from routepack_opt.solvers.rows.instance import ClassBins
    from routepack_opt.solvers.rows.reduction import core_of, filled

    one = np.ones(3, dtype=np.int64)
    tokens = np.array([5, 4, 3], dtype=np.int64)
    bins = ClassBins(0, np.arange(3), tokens, one, np.empty(0, dtype=np.int64), 10, 1, None)
    core_of(bins)
    filled(bins, 1, 0)
    heuristics.first_fit_decreasing(bins)
    heuristics.best_fit_decreasing(bins)
    heuristics.subset_sum_fill(bins)
    heuristics.least_loaded_bins(bins, 2)
    anneal_bins(bins, 2, 10)
    best_dff_bound(tokens, 10, 100)
    zeros = np.zeros(2, dtype=np.int64)
    fill_slots(tokens, one, 10, 3, zeros, np.zeros(3, dtype=np.int64), 1, zeros[:1] + 3, zeros.astype(bool))
    knapsack(tokens, one, tokens, 10, 2)
    table = suffix_values(tokens, one, tokens, 10)
    enumerate_patterns(tokens, one, tokens, 10, 1, table, np.empty((8, 3), dtype=np.int16), -1)
