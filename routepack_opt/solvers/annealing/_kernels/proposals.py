"""Proposals: which items of which two cells a step tries to exchange (GuidedProposal of Algorithm 3).

Guarantees: only indices are drawn here; whether the exchange is allowed is decided in `moves`.
"""

from typing import Any

import numpy as np

from routepack_opt.solvers.annealing._kernels.compile import inlined, kernel
from routepack_opt.solvers.annealing._kernels.random import below, unit
from routepack_opt.solvers.annealing._kernels.state import Instance, State, block_of

# Positions in `mix`: cumulative shares of the kinds out of 1024, the reach of a near swap, the share of
# guidance, and the share of steps inside a row-shard.
NEAR, ANY, MOVE, PAIR, CELLS, REACH, GUIDED, INSIDE = range(8)


@inlined
def propose(inst: Instance, state: State, mix: Any) -> tuple[int, int, int, int]:
    """Draw a step into `state.picked`.

    Returns cells a and b and how many items each gives; the first count is -1 when nothing was found.
    """
    kind = below(state.rng, 1024)
    guided = kind < mix[MOVE] and below(state.rng, 1024) < mix[GUIDED]
    a = heavy_cell(inst, state) if guided else state.cell[below(state.rng, state.cell.size)]
    i = state.members[a, below(state.rng, state.size[a])]
    state.picked[0, 0] = i
    if kind < mix[NEAR] and not guided:
        j = neighbour(inst, state, i, mix[REACH])
        state.picked[1, 0] = max(j, 0)
        return a, state.cell[max(j, 0)], 1 if j >= 0 else -1, 1
    if guided:
        b = light_cell(inst, state)
    elif mix[INSIDE] > 0 and below(state.rng, 1024) < mix[INSIDE]:
        b = cell_of_block(inst, state, block_of(inst, a))
    else:
        b = below(state.rng, state.size.size)
    state.picked[1, 0] = state.members[b, below(state.rng, state.size[b])]
    if kind < mix[ANY]:
        return a, b, 1, 1
    if kind < mix[MOVE]:
        return a, b, 1, 0
    if kind < mix[PAIR]:
        others = state.size[a] - 1
        if others == 0:
            return a, b, -1, 0
        state.picked[0, 1] = state.members[
            a, (state.position[i] + 1 + below(state.rng, others)) % (others + 1)
        ]
        return a, b, 2, 1
    pick_cell(state, 0, a)
    pick_cell(state, 1, b)
    return a, b, state.size[a], state.size[b]


@inlined
def neighbour(inst: Instance, state: State, item: int, reach: int) -> int:
    """Draw an item at most `reach` places away in the order of lengths; -1 beyond its ends."""
    place = inst.rank_of[item] + below(state.rng, 2 * reach) - reach
    if place >= inst.rank_of[item]:
        place += 1
    return inst.by_length[place] if 0 <= place < inst.by_length.size else -1


@kernel
def heavy_cell(inst: Instance, state: State) -> int:
    """Draw a cell of the heavier of two row-shards.

    The cell that holds up the shard's attention is taken with the probability of attention's part in J[r,g].
    """
    first, second = below(state.rng, state.joint.size), below(state.rng, state.joint.size)
    block = second if state.joint[second] > state.joint[first] else first
    if unit(state.rng) * float(state.joint[block]) >= float(state.attention[block]):
        return cell_of_block(inst, state, block)
    shards = inst.shard_start.size - 1
    base, shard = block // shards * inst.shard_of_slot.size, block % shards
    straggler, most = base + inst.shard_start[shard], np.int64(-1)
    for slot in range(inst.shard_start[shard], inst.shard_start[shard + 1]):
        work = np.int64(0)
        for s in range(inst.linear.size):
            work += (
                inst.linear[s] * state.tokens[base + slot] + inst.quadratic[s] * state.squares[base + slot]
            )
        if work > most:
            straggler, most = base + slot, work
    return straggler


@kernel
def light_cell(inst: Instance, state: State) -> int:
    """Draw a cell of the lighter of two row-shards."""
    first, second = below(state.rng, state.joint.size), below(state.rng, state.joint.size)
    return cell_of_block(inst, state, second if state.joint[second] < state.joint[first] else first)


@inlined
def cell_of_block(inst: Instance, state: State, block: int) -> int:
    """Draw a cell of a row-shard."""
    shards = inst.shard_start.size - 1
    start, stop = inst.shard_start[block % shards], inst.shard_start[block % shards + 1]
    return block // shards * inst.shard_of_slot.size + start + below(state.rng, stop - start)


@inlined
def pick_cell(state: State, side: int, cell: int) -> None:
    """Pick all items of a cell."""
    for k in range(state.size[cell]):
        state.picked[side, k] = state.members[cell, k]
