"""The search of the row-aware refinement in one layer: descent, annealing, descent.

Guarantees: a layer ends with the best placement seen, never worse than it began, also when it is cut short.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.solvers.annealing.parameters import AnnealingParameters

# Temperatures are shares of a mean rank's load over all rows; `should_stop` is asked at each.
_SCHEDULE = AnnealingParameters(levels=40, hottest=1e-2, coldest=1e-5).temperatures()


@dataclass(frozen=True, eq=False)
class LayerSearch:
    """What all layers share.

    Parameters
    ----------
    shard : ndarray of int64, shape [B]
        Shard of each row.
    work : ndarray of int64, shape [shards]
        Work of each shard; updated by every layer.
    unit, ranks, moves, max_sweeps
        As in :func:`refine_for_rows`.
    should_stop : callable
        Whether to end early.
    """

    shard: IntArray
    work: IntArray
    unit: int
    ranks: int
    moves: int
    max_sweeps: int
    should_stop: Callable[[], bool]

    def run(self, loads: IntArray, slot: IntArray, seed: np.random.SeedSequence) -> bool:
        """Improve `slot` [experts] for `loads` [experts, B] in place; return whether it came to its end."""
        if self.should_stop():
            return False
        self.descend(loads, slot)
        finished = self.moves == 0 or self.anneal(loads, slot, seed)
        if finished and self.moves:
            self.descend(loads, slot)
        return finished

    def descend(self, loads: IntArray, slot: IntArray) -> None:
        """Take improving exchanges until there are none."""
        from routepack_opt.solvers.placing.rowaware._kernels import descend_rows

        descend_rows(loads, self.shard, self.work, self.unit, slot, self.ranks, self.max_sweeps)

    def anneal(self, loads: IntArray, slot: IntArray, seed: np.random.SeedSequence) -> bool:
        """Anneal from `slot`, leave the best there, and return whether all levels were done."""
        from routepack_opt.solvers.placing.rowaware.annealing._kernels import anneal_rows

        words = seed.generate_state(4, np.uint64)
        order = np.argsort(-loads.sum(axis=1), kind="stable")
        work, now = self.work.copy(), slot.copy()
        mean = float(loads.sum()) / self.ranks
        for level, temperature in enumerate(_SCHEDULE):
            if self.should_stop():
                return False
            share = (self.moves + level) // len(_SCHEDULE)
            state = (work, self.unit, now, self.work, slot)
            anneal_rows(loads, order, self.shard, *state, self.ranks, temperature * mean, share, words)
        return True
