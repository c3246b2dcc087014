"""`PlacementResult`: a placement with what is known about it.

Guarantees: the peaks are those of the placement under the loads that were placed, and no placement of any
method has a layer below its bound.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.placement import Placement


@dataclass(frozen=True, eq=False)
class PlacementResult:
    """What :func:`place` returns.

    Parameters
    ----------
    placement : Placement
        The placement.
    rank_loads : ndarray of int64, shape [layers, ranks]
        Aggregate load G[l, p] of every rank (Eq. 10).
    bound : ndarray of int64, shape [layers]
        Lower bound on the busiest rank over all placements; see
        :func:`~routepack_opt.bounds.placement.rank_peaks`.
    method : str
        ``"refined"`` or ``"lpt"``.
    moves : int
        Experts, over all layers, whose rank differs from the previous placement's; from the identity's when
        none was given.
    """

    placement: Placement
    rank_loads: IntArray
    bound: IntArray
    method: str
    moves: int

    @property
    def peak(self) -> IntArray:
        """Load of the busiest rank per layer, int64 [layers]."""
        peak: IntArray = self.rank_loads.max(axis=1, initial=0)
        return peak

    @property
    def bound_met(self) -> npt.NDArray[np.bool_]:
        """Whether a layer's peak equals its bound, which proves it the least possible; bool [layers]."""
        met: npt.NDArray[np.bool_] = self.peak == self.bound
        return met
