"""One fixed-temperature chain (the inner loop of Algorithm 3).

Guarantees: the best state seen is kept in `best_cell` and `best_score`, apart from the walk; equal inputs
give equal states, whatever else runs.
"""

from typing import Any

from routepack_opt.solvers.annealing._kernels.compile import inlined, kernel
from routepack_opt.solvers.annealing._kernels.moves import PRIMARY, ROW_PEAK, TOTAL, allowed, apply, evaluate
from routepack_opt.solvers.annealing._kernels.proposals import propose
from routepack_opt.solvers.annealing._kernels.random import LARGEST, exponential
from routepack_opt.solvers.annealing._kernels.state import Instance, State

# What `run_chain` counts.
EVALUATED, ACCEPTED = 0, 1


@inlined
def energy_of(inst: Instance, score: Any) -> float:
    """Eq. 16: s0 + 1e-6 s1 + 1e-9 s2 in unscaled units, of the first three numbers of `score`.

    The weight of s1 is the instance's: a larger one lets the shards that are not the busiest improve too.
    """
    weighted = float(score[PRIMARY]) + inst.total_weight * float(score[TOTAL]) + 1e-9 * float(score[ROW_PEAK])
    return weighted / float(inst.denominator)


@inlined
def lower(a: Any, b: Any) -> bool:
    """Say whether score a is lexicographically below score b."""
    for k in range(3):
        if a[k] != b[k]:
            return a[k] < b[k]
    return False


@kernel
def copy_into(target: Any, source: Any) -> None:
    """Copy a vector element by element: a slice assignment would allocate a temporary."""
    for k in range(source.size):
        target[k] = source[k]


@kernel
def run_chain(
    inst: Instance,
    state: State,
    best_cell: Any,
    best_score: Any,
    temperature: float,
    proposals: int,
    mix: Any,
    counts: Any,
) -> None:
    """Make `proposals` steps at one temperature.

    Parameters
    ----------
    inst, state : Instance, State
        The member; changed in place.
    best_cell, best_score : int64 arrays [M] and [3]
        Best state seen; overwritten when a lower score is met.
    temperature : float
        Of the level, relative to max(|E|, 1).
    proposals : int
        Steps, invalid proposals included.
    mix : int64 array
        See `proposals`.
    counts : int64 array [2]
        Evaluated and accepted proposals are added to it.
    """
    energy = energy_of(inst, state.score)
    by_score = inst.total_weight < 1e-3  # the energy and the score agree, but for ties below its precision
    unsaved = False  # whether the current state is the best and `best_cell` not yet says so
    for _ in range(proposals):
        a, b, count_a, count_b = propose(inst, state, mix)
        if count_a < 0 or not allowed(inst, state, a, b, count_a, count_b):
            continue
        evaluate(inst, state, a, b, count_a, count_b)
        counts[EVALUATED] += 1
        after = energy_of(inst, state.trial)
        if not (by_score and lower(state.trial, state.score)):
            change = (after - energy) / max(abs(energy), 1.0)
            if change >= temperature * LARGEST or not max(change, 0.0) < temperature * exponential(state.rng):
                continue  # the first test spares the logarithm where no draw could accept
            if unsaved:
                copy_into(best_cell, state.cell)
                unsaved = False
        counts[ACCEPTED] += 1
        apply(inst, state, a, b, count_a, count_b)
        energy = after
        if lower(state.score, best_score):
            copy_into(best_score, state.score)
            unsaved = True
    if unsaved:
        copy_into(best_cell, state.cell)
