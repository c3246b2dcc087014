"""Fewer items to pack: bins that some best packing has, and bins that are filled to the last token.

Guarantees: :func:`core_of` loses nothing (a packing of the core into k bins exists exactly when the class
packs into k more than the bins it fixed); :func:`filled` may lose, and wastes no more than it is allowed.
Under a limit on samples nothing is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from routepack_opt.solvers.rows.instance import ClassBins, IntArray


@dataclass(frozen=True)
class Core:
    """What is left of a class when some bins are fixed.

    Attributes
    ----------
    bins : ClassBins
        The items left.
    fixed : int64[m]
        Bin of every item that is packed, -1 for those left.
    used : int
        Bins fixed.
    """

    bins: ClassBins
    fixed: IntArray
    used: int

    @classmethod
    def of(cls, bins: ClassBins, fixed: IntArray, used: int) -> Core:
        """Leave the items of a class that are not fixed."""
        left = fixed < 0
        rest = replace(bins, items=bins.items[left], tokens=bins.tokens[left], samples=bins.samples[left])
        return cls(rest, fixed, used)

    @classmethod
    def none(cls, bins: ClassBins) -> Core:
        """Leave all items."""
        return cls.of(bins, np.full(bins.items.size, -1, dtype=np.int64), 0)

    def whole(self, where: IntArray) -> IntArray:
        """Give the bin of every item of the class, from the bins of the items left."""
        full = self.fixed.copy()
        full[self.fixed < 0] = where + self.used
        return full


def core_of(bins: ClassBins) -> Core:
    """Fix the bins of large items whose best company is known.

    An item goes with the largest one beside it when nothing else fits, when the two fill the bin, when no
    two others fit together, or when no two that do are longer (dominance, Martello and Toth 1990).
    """
    from routepack_opt.solvers.rows.reduction._kernels import fix_large

    if bins.max_samples is not None or not bins.items.size:
        return Core.none(bins)
    return Core.of(bins, *fix_large(bins.tokens, bins.cap))


def filled(bins: ClassBins, keep: int, waste: int) -> Core:
    """Fill bin after bin to the last token, largest item first, until few items are left.

    Small companions are the last to be used, so that what is left packs easily (after Djang and Finch 1998).

    Parameters
    ----------
    bins : ClassBins
    keep : int
        Items to leave at least.
    waste : int
        Tokens that the filled bins may leave empty, in all.
    """
    from routepack_opt.solvers.rows.reduction._kernels import fill_exactly

    if bins.max_samples is not None:
        return Core.none(bins)
    return Core.of(bins, *fill_exactly(bins.tokens, bins.cap, keep, waste))
