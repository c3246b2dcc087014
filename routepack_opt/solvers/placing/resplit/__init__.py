"""Large-neighbourhood search over placements: re-split the busiest rank together with a few others.

Guarantees: the peak never rises; the result depends on the loads alone, on every host.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray

_STEPS = 200_000  # per layer: two to four milliseconds
_EFFORT = 5_000  # steps of one re-split
_EXPERTS = 24  # re-split at a time: about as many as a search of that effort orders well
_SEED = 0


def resplit_layer(loads: IntArray, slots: IntArray, ranks: int, low: int) -> IntArray:
    """Lower the busiest rank of one layer.

    Parameters
    ----------
    loads : ndarray of int64, shape [experts]
        Loads of the experts.
    slots : ndarray of int64, shape [experts]
        The start.
    ranks : int
        Ranks P.
    low : int
        Lower bound on the busiest rank, at which the search ends.

    Returns
    -------
    ndarray of int64, shape [experts]
        Slots whose busiest rank is at most that of the start.
    """
    from routepack_opt.solvers.placing.resplit._kernels import resplit

    result, order = slots.copy(), np.argsort(-loads, kind="stable")
    width = min(ranks, max(3, _EXPERTS * ranks // loads.size))
    words = np.random.SeedSequence(_SEED).generate_state(4, np.uint64)
    resplit(loads, order, result, ranks, low, width, _EFFORT, _STEPS, words)
    return result
