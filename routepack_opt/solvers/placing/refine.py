"""Place all layers as well as a fixed amount of work allows.

Guarantees: no layer is worse than Algorithm 1 leaves it, and none is worked on after its bound is met; the
result depends on the loads alone.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.bounds.placement import counting_peaks, split_layer
from routepack_opt.solvers.placing.budget import falling_order, step_limit
from routepack_opt.solvers.placing.resplit import resplit_layer


def refine_layers(loads: IntArray, ranks: int) -> tuple[IntArray, IntArray]:
    """Place every layer, and bound what any placement can reach.

    Parameters
    ----------
    loads : ndarray of int64, shape [layers, experts]
        Loads of the experts.
    ranks : int
        Ranks P.

    Returns
    -------
    slots : ndarray of int64, shape [layers, experts]
        The placement: swap descents, then the exhaustive split, then re-splits of a few ranks at a time.
    bound : ndarray of int64, shape [layers]
        Lower bound on the busiest rank, as :func:`routepack_opt.bounds.placement.rank_peaks` has it.
    """
    from routepack_opt.solvers.placing._kernels import measure, refined_layers

    order, limit = falling_order(loads), step_limit(loads.shape[1])
    bound = counting_peaks(loads, ranks)
    slots = refined_layers(loads, order, bound, ranks, limit)
    for layer, row in enumerate(loads):
        if measure(row, slots[layer], ranks)[0] > bound[layer]:
            slots[layer], bound[layer] = search_layer(
                row, order[layer], slots[layer], ranks, int(bound[layer])
            )
    return slots, bound


def search_layer(
    loads: IntArray, order: IntArray, slots: IntArray, ranks: int, low: int
) -> tuple[IntArray, int]:
    """Search one layer beyond the descents; returns its slots and its bound, from those of the descents."""
    from routepack_opt.solvers.placing._kernels import descend, measure

    low, found = split_layer(loads, ranks, low)
    if found is not None and measure(loads, found, ranks) < measure(loads, slots, ranks):
        slots = found
    slots = resplit_layer(loads, slots, ranks, low)
    # Both look at the peak alone; what is left to gain in the squares takes only swaps.
    limit = step_limit(loads.size)
    descend(loads, order, slots, ranks, np.empty((limit, 2), np.int64), np.empty(limit, np.int64))
    return slots, low
