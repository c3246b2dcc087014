"""Proposals: which items of which two cells a step tries to exchange.

Guarantees: only indices are drawn here; whether the exchange is allowed is decided in `moves`.

`mix` holds cumulative thresholds out of 1024 for the kinds below, then the reach of a near swap.
"""

from typing import Any

import numpy as np
from routepack_opt.solvers.annealing._kernels.compile import kernel

from routepack_opt.solvers.annealing._kernels.random import below
from routepack_opt.solvers.annealing._kernels.state import Instance, State

# Positions in `mix`.
NEAR, ANY, MOVE, PAIR, CELLS, REACH = range(6)


@kernel
def propose(inst: Instance, state: State, mix: Any) -> tuple[int, int, int, int]:
    """Draw a step; returns cells a and b and how many items each gives, or a count of -1 when nothing was found."""
    kind = below(state.rng, 1024)
    items, cells = state.cell.size, state.size.size
    i = below(state.rng, items)
    a = state.cell[i]
    state.picked[0, 0] = i
    if kind < mix[NEAR]:
        place = inst.rank_of[i] + 1 + below(state.rng, 2 * mix[REACH]) - mix[REACH]
        if place <= inst.rank_of[i]:
            place -= 1
        if place < 0 or place >= items:
            return a, a, -1, 0
        j = inst.by_length[place]
        state.picked[1, 0] = j
        return a, state.cell[j], 1, 1
    if kind < mix[ANY]:
        j = below(state.rng, items)
        state.picked[1, 0] = j
        return a, state.cell[j], 1, 1
    b = below(state.rng, cells)
    if kind < mix[MOVE]:
        return a, b, 1, 0
    if kind < mix[PAIR]:
        if state.size[a] < 2:
            return a, b, -1, 0
        state.picked[0, 1] = state.members[a, (state.position[i] + 1 + below(state.rng, state.size[a] - 1)) % state.size[a]]
        state.picked[1, 0] = state.members[b, below(state.rng, state.size[b])]
        return a, b, 2, 1
    pick_cell(state, 0, a)
    pick_cell(state, 1, b)
    return a, b, state.size[a], state.size[b]


@kernel
def pick_cell(state: State, side: int, cell: int) -> None:
    """Pick all items of a cell."""
    for k in range(state.size[cell]):
        state.picked[side, k] = state.members[cell, k]
