"""Means and tests over steps: what Table 3 reports, and how sure its differences are.

Guarantees: standard deviations are those of a sample (n - 1); tests are two-sided and corrected for all
comparisons of one scenario together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np


@dataclass(frozen=True)
class Spread:
    """Mean, sample standard deviation (None for one value) and 10th percentile of values."""

    mean: float
    deviation: float | None
    tenth: float
    count: int


@dataclass(frozen=True)
class Comparison:
    """A two-sided Mann-Whitney U test of two layouts.

    Parameters
    ----------
    first, second : str
        Layouts.
    ratio : float
        Mean of the second over mean of the first.
    p, bonferroni, holm : float
        Plain and corrected p-values.
    """

    first: str
    second: str
    ratio: float
    p: float
    bonferroni: float
    holm: float


def spread(values: Sequence[float]) -> Spread:
    """Summarise at least one value; percentiles are interpolated linearly."""
    array = np.asarray(values, np.float64)
    deviation = float(array.std(ddof=1)) if array.size > 1 else None
    return Spread(float(array.mean()), deviation, float(np.percentile(array, 10)), array.size)


def compare_all(samples: Mapping[str, Sequence[float]]) -> list[Comparison]:
    """Test every pair of samples, correcting for the number of pairs.

    Parameters
    ----------
    samples : mapping of str to sequence of float
        Values by layout.

    Notes
    -----
    Steps are taken as independent, as in the paper, whose layouts were separate runs. Here they run the same
    windows, which makes the test too careful rather than too bold.
    """
    from scipy.stats import mannwhitneyu

    pairs = list(combinations(samples, 2))
    plain = [float(mannwhitneyu(samples[a], samples[b], alternative="two-sided").pvalue) for a, b in pairs]
    single, stepped = bonferroni(plain), holm(plain)
    return [
        Comparison(a, b, float(np.mean(samples[b]) / np.mean(samples[a])), *ps)
        for (a, b), *ps in zip(pairs, plain, single, stepped, strict=True)
    ]


def bonferroni(values: Sequence[float]) -> list[float]:
    """Multiply p-values by their number, at most 1."""
    return [min(1.0, p * len(values)) for p in values]


def holm(values: Sequence[float]) -> list[float]:
    """Step down: the k-th smallest of m p-values times m - k + 1, never below one before it, at most 1."""
    result, floor = [0.0] * len(values), 0.0
    for rank, k in enumerate(sorted(range(len(values)), key=lambda k: values[k])):
        floor = max(floor, min(1.0, values[k] * (len(values) - rank)))
        result[k] = floor
    return result
