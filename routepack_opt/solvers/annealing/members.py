"""One member of the population and the step that an executor runs on it.

Guarantees: a step touches its own member only, so members may run on any number of threads, processes or
hosts, in any order, with the same result; with a clock it stops within one slice of proposals after the
deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.solvers.annealing._kernels.chain import run_chain
from routepack_opt.solvers.annealing._kernels.state import Instance, State

_SLICE = (4096, 32768)  # proposals between two looks at the clock, at least and at most
_SLICE_LOADS = 2**21  # and the loads that they touch, in between


def slice_of(instance: Instance) -> int:
    """Return the proposals between two looks at the clock: a few milliseconds, whatever one costs."""
    low, high = _SLICE
    return min(max(low, _SLICE_LOADS // max(int(instance.demand[0].size), 1)), high)


@dataclass
class Member:
    """A state, the best state it has seen, and what it did on the last level."""

    state: State
    best_cell: IntArray
    best_score: IntArray
    counts: IntArray = field(default_factory=lambda: np.zeros(2, np.int64))  # evaluated, accepted
    proposals: int = 0


@dataclass(frozen=True)
class Step:
    """What every member does on one level.

    Parameters
    ----------
    instance : Instance
        Shared, read-only.
    mix : numpy.ndarray of int64
        Thresholds of the move kinds.
    temperature : float
        Of the level.
    proposals : int
        Steps per member.
    late : callable, optional
        Says whether the deadline has passed; None for reproducible runs.
    """

    instance: Instance
    mix: IntArray
    temperature: float
    proposals: int
    late: Callable[[], bool] | None = None

    def __call__(self, member: Member) -> Member:
        """Run the chain of one member, in place, and return it."""
        member.counts[:] = 0
        member.proposals = 0
        slice_ = max(self.proposals, 1) if self.late is None else slice_of(self.instance)
        with np.errstate(over="ignore"):  # the generator wraps around; only visible with the JIT off
            while member.proposals < self.proposals and not (self.late is not None and self.late()):
                step = min(slice_, self.proposals - member.proposals)
                self._run(member, step)
                member.proposals += step
        return member

    def _run(self, member: Member, proposals: int) -> None:
        run_chain(
            self.instance,
            member.state,
            member.best_cell,
            member.best_score,
            self.temperature,
            proposals,
            self.mix,
            member.counts,
        )
