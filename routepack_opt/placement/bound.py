"""Lower bound on the busiest rank of a layer, over all placements.

Guarantees: no placement with the same number of experts on every rank goes below it; exact integers.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray


def placement_bound(loads: IntArray, ranks: int) -> IntArray:
    """Return a lower bound on max_p G[l, p] (Eq. 10) for every layer, whatever the placement.

    Parameters
    ----------
    loads : ndarray of int64, shape [layers, experts]
        Aggregate expert loads, not negative.
    ranks : int
        Expert-parallel ranks P, which divide the experts; H = experts / P.

    Returns
    -------
    ndarray of int64, shape [layers]
        The larger of ceil(total / P) and the largest load plus the sum of the H - 1 smallest: some rank holds
        at least the mean, and the rank of the largest expert holds H - 1 others.
    """
    layers, experts = loads.shape
    if experts == 0:
        return np.zeros(layers, dtype=np.int64)
    ordered = np.sort(loads, axis=1)
    mean = -(-ordered.sum(axis=1, dtype=np.int64) // ranks)
    largest = ordered[:, -1] + ordered[:, : experts // ranks - 1].sum(axis=1, dtype=np.int64)
    bound: IntArray = np.maximum(mean, largest)
    return bound
