"""What ``rescale`` does: whole counts of lost rows in the proportions of the valid ones.

Guarantees: afterwards every layer of a sample sums to K times its expected rows; no expert is counted more
often than there are rows; remainders go to the largest fractions, ties to the lowest expert.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def rescale(counts: NDArray[np.int32], kept: int, expected: int) -> NDArray[np.int32]:
    """Scale counts [L, E] of `kept` rows to `expected` rows by largest remainder.

    Parameters
    ----------
    counts : int array [L, E]
        Each layer sums to K times `kept`.
    kept, expected : int
        Rows counted (at least 1) and wanted.

    Returns
    -------
    int32 [L, E]
        Each layer sums to K times `expected`.
    """
    exact = counts.astype(np.int64) * expected
    whole, remainder = np.divmod(exact, kept)
    # Each layer's total is a whole multiple of expected rows, so what the floors lose is whole, too.
    short = remainder.sum(axis=1) // kept
    order = np.argsort(-remainder, axis=1, kind="stable")
    rank = np.argsort(order, axis=1, kind="stable")
    scaled: NDArray[np.int32] = (whole + (rank < short[:, None])).astype(np.int32)
    return scaled
