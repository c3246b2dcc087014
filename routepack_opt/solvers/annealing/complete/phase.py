"""Complete search as the last phase of an annealing run.

Guarantees: the work follows from the proposals of the run alone, so it is the same on every host; with a
deadline an attempt begins only when twice the time it may take is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from routepack_opt.solvers.annealing._kernels.chain import energy_of
from routepack_opt.solvers.annealing._kernels.state import Instance
from routepack_opt.solvers.annealing.complete.search import pairs_of, search_all
from routepack_opt.solvers.annealing.population import AnnealingResult, Level, Limits

_OPERATIONS = 8192  # per proposal of the run: on windows this small the phase then takes a few times as long
_OVERHEAD = 64  # operations of a node beside the pairs of ranks that its bound looks at
_FIRST, _GROWTH = 1 << 14, 4  # nodes of the first timed attempt, and how many times as many the next one has


def nodes_of(instance: Instance, proposals: int) -> int:
    """Return how many nodes may be looked at after an annealing run of so many proposals."""
    return proposals * _OPERATIONS // (_OVERHEAD + pairs_of(instance))


def finish_completely(
    instance: Instance, found: AnnealingResult, rows: int, limits: Limits
) -> AnnealingResult:
    """Look for a better layout than an annealing run found, among all of them.

    Parameters
    ----------
    instance : Instance
        Which the search covers.
    found : AnnealingResult
        Of the run, in kernel order.
    rows : int
        R.
    limits : Limits
        Of run and search together.

    Returns
    -------
    AnnealingResult
        With one more level; ``proposals`` stays that of the run.
    """
    begun, seconds = limits.clock(), found.trace[-1].seconds if found.trace else 0.0
    cells, score, nodes, complete = found.cell_of_item, found.score, 0, False
    for allowed in _attempts(instance, limits):
        cells, score, nodes, complete = search_all(instance, cells, rows, score, allowed)
        if complete:
            break
    energy = float(energy_of(instance, np.array(score, np.int64)))
    seconds += limits.clock() - begun
    better = int(score < found.score)
    level = Level("complete", seconds, 0.0, score, energy, 0.0, 1, nodes, nodes, better)
    if limits.progress is not None:
        limits.progress(level)
    late = limits.deadline is not None and limits.clock() >= limits.deadline
    return replace(
        found,
        cell_of_item=cells,
        score=score,
        stopped="deadline" if late else "finished",
        complete=found.complete or complete,
        trace=[*found.trace, level],
    )


def _attempts(instance: Instance, limits: Limits) -> Iterator[int]:
    """Yield the nodes of each attempt: one without a deadline, larger and larger ones before one."""
    if limits.proposals is not None:
        yield nodes_of(instance, limits.proposals)
        return
    assert limits.deadline is not None
    allowed, taken = _FIRST, 0.0
    while limits.clock() + 2 * _GROWTH * taken < limits.deadline:
        before = limits.clock()
        yield allowed
        taken, allowed = limits.clock() - before, allowed * _GROWTH
