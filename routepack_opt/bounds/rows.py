"""Lower bounds on bins, each as integer weights that anybody can check.

Guarantees: every bound is a :class:`WeightBound`: no set of items that fits a bin weighs more than K, so at
least ``ceil(sum of weights / K)`` bins are needed. Nothing here is floating point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class WeightBound:
    """A lower bound on bins.

    Attributes
    ----------
    weights : int64[m]
        In the order of the items given to the bound.
    k : int
        Most weight of a set of items that fits one bin; at least 1.
    source : str
        Name of the bound, with its parameter.
    """

    weights: IntArray
    k: int
    source: str

    @property
    def bins(self) -> int:
        """Least number of bins: the weights summed over K, rounded up."""
        return -(-int(self.weights.sum()) // self.k)


def sum_bound(tokens: IntArray, cap: int) -> WeightBound:
    """Divide the tokens by the capacity (the continuous bound L1)."""
    return WeightBound(tokens, cap, "sum of tokens")


def item_count_bound(tokens: IntArray, cap: int) -> WeightBound:
    """Divide the items by the most that fit one bin, which the smallest items tell.

    Parameters
    ----------
    tokens : int64[m]
        In decreasing order.
    cap : int
    """
    fit = int(np.searchsorted(np.cumsum(tokens[::-1]), cap, side="right"))
    return WeightBound(np.ones_like(tokens), max(1, fit), "items per cell")


def sample_count_bound(samples: IntArray, max_samples: int) -> WeightBound:
    """Divide the samples by ``max_samples_per_cell``."""
    return WeightBound(samples, max_samples, "samples per cell")


def l2_bound(tokens: IntArray, cap: int) -> WeightBound:
    """Bound L2 of Martello and Toth (1990), as the best of its weight functions.

    For a threshold a up to C/2, items over C - a count as a full bin, items under a as nothing and all others
    as their tokens; besides, items over C/2 each need a bin of their own.

    Parameters
    ----------
    tokens : int64[m]
        In decreasing order.
    cap : int
    """
    ascending = tokens[::-1]
    prefix = np.concatenate(([0], np.cumsum(ascending)))
    thresholds = np.unique(tokens[2 * tokens <= cap])
    big = 2 * tokens > cap
    best = WeightBound(big.astype(np.int64), 1, "items over half a cell (L2)")
    if not thresholds.size:
        return best
    start = np.searchsorted(ascending, thresholds, side="left")
    full = np.searchsorted(ascending, cap - thresholds, side="right")
    totals = prefix[full] - prefix[start] + cap * (tokens.size - full)
    pick = int(np.argmax(totals))
    if -(-int(totals[pick]) // cap) <= best.bins:
        return best
    a = int(thresholds[pick])
    return WeightBound(threshold_weights(tokens, cap, a), cap, f"L2 with threshold {a}")


def threshold_weights(tokens: IntArray, cap: int, a: int) -> IntArray:
    """Give the tokens, but a full bin for items over ``cap - a`` and nothing for those under ``a``."""
    return np.where(tokens > cap - a, cap, np.where(tokens < a, 0, tokens))


def cell_losses(
    tokens: IntArray, samples: IntArray, cap: int, max_samples: int | None
) -> tuple[IntArray, int]:
    """Count the samples that a cell loses by holding an item over half its capacity.

    Parameters
    ----------
    tokens, samples : int64[m]
        Tokens in decreasing order.
    cap : int
    max_samples : int or None

    Returns
    -------
    losses : int64[m]
        Zero up to half a cell; samples plus losses of the items of a cell never exceed ``most``.
    most : int
        Most samples of any cell.
    """
    # samples of the lightest items by tokens per sample bound what fits beside a given item
    order = np.lexsort((tokens, tokens / np.maximum(samples, 1)))
    room = np.cumsum(tokens[order])
    count = np.concatenate(([0], np.cumsum(samples[order])))
    single = bool((samples == 1).all())

    def fitting(left: IntArray) -> IntArray:
        where = np.searchsorted(room, left, side="right")
        # a fractional item may still add its samples when items are groups
        return count[where] if single else count[np.minimum(where + 1, tokens.size)]

    top = total = int(fitting(np.array([cap]))[0])
    if max_samples is not None:
        top = min(total, max_samples)
    held = samples + fitting(cap - tokens)
    losses = np.where(2 * tokens > cap, np.maximum(top - held, 0), 0)
    return losses, top
