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


def hottest_bound(loads: IntArray, ranks: int) -> IntArray:
    """Return a lower bound that also sees several hot experts competing for the cold ones.

    Parameters
    ----------
    loads : ndarray of int64, shape [layers, experts]
        Aggregate expert loads, not negative.
    ranks : int
        Expert-parallel ranks P, which divide the experts; H = experts / P.

    Returns
    -------
    ndarray of int64, shape [layers]
        At least :func:`placement_bound`. For every k up to P, either two of the k hottest experts share a
        rank, with H - 2 others; or they are on k ranks, which hold them and k (H - 1) others, and one of
        these ranks has at least the mean of that.
    """
    layers, experts = loads.shape
    bound = placement_bound(loads, ranks)
    if experts <= ranks:
        return bound
    rising = np.sort(loads, axis=1)
    hot = rising[:, ::-1]
    cold = np.concatenate([np.zeros((layers, 1), np.int64), np.cumsum(rising, axis=1)], axis=1)
    others = experts // ranks - 1
    k = np.arange(2, ranks + 1)
    apart = -(-(np.cumsum(hot, axis=1)[:, k - 1] + cold[:, k * others]) // k)
    together = hot[:, k - 1] + hot[:, k - 2] + cold[:, others - 1 : others]
    strongest: IntArray = np.maximum(bound, np.minimum(apart, together).max(axis=1, initial=0))
    return strongest
