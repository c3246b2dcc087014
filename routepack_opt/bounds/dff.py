"""Dual feasible functions: weights for tokens that no full bin can exceed.

Guarantees: all arithmetic is on whole numbers, and every returned bound can be checked by a knapsack.

Families (t tokens, capacity C, one integer parameter; all after a threshold step that counts items over
C - a as a full bin and drops items under a):

=================  =====================================================================================
fekete-schepers-1  u(k): ``k t`` where ``(k+1) t / C`` is whole, else ``floor((k+1) t / C) C``; K = k C
                   (Fekete and Schepers 2001)
fekete-schepers-2  items from p to C/2 count 1, larger ones ``floor(C/p) - floor((C-t)/p)``; K = floor(C/p)
ccm-1              ``2 floor(t/p)`` under C/2, its mirror above; K = 2 floor(C/p)
                   (Carlier, Clautiaux and Moukrim 2007)
vanderbeck-2       ``2 max(0, ceil(k t / C) - 1)`` under C/2, its mirror above; K = 2 (k - 1)
                   (Vanderbeck 2000)
burdet-johnson     ``floor(t/p) (p - C mod p) + max(0, t mod p - C mod p)`` (Burdet and Johnson 1977)
=================  =====================================================================================
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from routepack_opt.bounds.rows import WeightBound

IntArray = NDArray[np.int64]
NAMES = ("fekete-schepers-1", "fekete-schepers-2", "ccm-1", "vanderbeck-2", "burdet-johnson")
MOST_STEPS = 100
LARGEST_CAP = 2**22  # of the tables by tokens


def best_dff_bound(tokens: IntArray, cap: int, enough: int, work: int = 10_000_000) -> WeightBound | None:
    """Scan all families for the best bound.

    Parameters
    ----------
    tokens : int64[m]
        In decreasing order, none over ``cap``.
    cap : int
    enough : int
        Stop at a bound of so many bins.
    work : int
        Ranges of tokens looked at; parameters are sampled evenly when all of them would be more.

    Returns
    -------
    WeightBound or None
        None when no function proves a bin, and for capacities of more than ``LARGEST_CAP`` tokens.
    """
    from routepack_opt.bounds._kernels import FS_ROUNDING, VANDERBECK, scan, weights_of

    if cap > LARGEST_CAP:
        return None
    number = np.bincount(tokens, minlength=cap + 1)
    count = np.concatenate(([0], np.cumsum(number)))
    held = np.concatenate(([0], np.cumsum(number * np.arange(cap + 1))))
    sizes = np.flatnonzero(number)
    small = sizes[2 * sizes <= cap]
    spread = np.linspace(0, small.size - 1, min(10, small.size)).astype(np.int64)
    thresholds = np.unique(np.concatenate(([0], small[spread])))
    families, parameters = _parameters(sizes, cap)
    counted = np.isin(families, (FS_ROUNDING, VANDERBECK))
    ranges = int((np.where(counted, parameters, cap // parameters) + 2).sum()) * thresholds.size
    pick = np.arange(families.size) % -(-ranges // work) == 0
    bins, family, parameter, threshold = scan(
        count, held, cap, thresholds, families[pick], parameters[pick], enough
    )
    if bins <= 0:
        return None
    weights, k = weights_of(family, parameter, threshold, cap, tokens)
    return WeightBound(weights, int(k), f"{NAMES[family]}({parameter}) with threshold {threshold}")


def _parameters(sizes: IntArray, cap: int) -> tuple[IntArray, IntArray]:
    """Every family's parameters that can matter: item sizes, their complements, and parts of the capacity."""
    steps = np.arange(1, MOST_STEPS + 1)
    lengths = np.unique(np.concatenate([sizes, cap - sizes + 1, cap // steps, cap // steps + 1]))
    half = lengths[(lengths >= 1) & (2 * lengths <= cap)]
    lengths = lengths[(lengths >= 1) & (lengths <= cap)]
    lists = (steps, half, half, steps[1:], lengths)
    families = np.concatenate([np.full(values.size, f) for f, values in enumerate(lists)])
    return families.astype(np.int64), np.concatenate(lists).astype(np.int64)
