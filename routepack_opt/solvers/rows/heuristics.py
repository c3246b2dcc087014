"""Bin-packing heuristics on one class, by name.

Guarantees: each returns the bin of every shared item and the bins used, within capacity and sample limit;
the same input gives the same packing.
"""

from __future__ import annotations

from routepack_opt.solvers.rows.instance import ClassBins, IntArray

NO_LIMIT = 2**62


def first_fit_decreasing(bins: ClassBins) -> tuple[IntArray, int]:
    """First fit decreasing (Johnson 1973)."""
    from routepack_opt.solvers.rows._kernels import first_fit

    return first_fit(bins.tokens, bins.samples, bins.cap, _limit(bins))


def best_fit_decreasing(bins: ClassBins) -> tuple[IntArray, int]:
    """Best fit decreasing (Johnson 1973)."""
    from routepack_opt.solvers.rows._kernels import best_fit

    return best_fit(bins.tokens, bins.samples, bins.cap, _limit(bins))


def subset_sum_fill(bins: ClassBins, work: int = 4_000_000) -> tuple[IntArray, int]:
    """Fill one bin after the other with the best subset beside its largest item (minimum bin slack).

    Parameters
    ----------
    bins : ClassBins
    work : int
        Table steps after which first fit takes the rest; about two per nanosecond.
    """
    from routepack_opt.solvers.rows._kernels import subset_fill

    if bins.cap > 2**24:  # no table of that size
        return first_fit_decreasing(bins)
    return subset_fill(bins.tokens, bins.samples, bins.cap, _limit(bins), work)


def least_loaded_bins(bins: ClassBins, count: int) -> IntArray | None:
    """Longest item first to the least loaded of ``count`` bins; None when an item finds no room."""
    from routepack_opt.solvers.rows._kernels import least_loaded

    if count < 1:
        return None if bins.items.size else bins.items
    where, done = least_loaded(bins.tokens, bins.samples, bins.cap, _limit(bins), count)
    return where if done else None


def _limit(bins: ClassBins) -> int:
    return NO_LIMIT if bins.max_samples is None else bins.max_samples
