"""What a chain works on: the read-only instance and one member's state, as named tuples of arrays.

Guarantees: :func:`rebuild` makes every derived number of a state from the cell of each item alone; a state
whose moves were applied by these kernels equals a rebuilt one, bit for bit.

Slots are numbered so that the slots of a shard are neighbours; a *block* is a row-shard, ``row * G + shard``.
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from routepack_opt.solvers.annealing._kernels.compile import inlined, kernel


class Instance(NamedTuple):
    """Read-only arrays of a problem under a placement; see `instance.build_instance`."""

    demand: Any  # uint16 or int32 [M, blocks of layers, P, LANES]
    tokens: Any  # int64 [M], and likewise the next three
    squares: Any
    samples: Any
    row_class: Any
    alone: Any  # bool [M]
    by_length: Any  # int64 [M]: items by (tokens, index)
    rank_of: Any  # int64 [M]: place of every item in by_length
    linear: Any  # int64 [S]
    quadratic: Any  # int64 [S]
    shard_start: Any  # int64 [G + 1]: slots of shard g are shard_start[g]:shard_start[g + 1]
    shard_of_slot: Any  # int64 [D]
    unit: int  # scaled work of one assignment on the busiest rank
    denominator: int
    cap: int
    max_samples: int
    equal_samples: int  # 1 when every slot must keep its number of samples
    total_weight: float  # of the sum over shards in the energy, beside the busiest shard's 1


class State(NamedTuple):
    """One member of the population."""

    cell: Any  # int64 [M]: flat cell of every item
    members: Any  # int32 [K, most]: items of every cell, unordered
    position: Any  # int64 [M]: place of every item in members[cell]
    size: Any  # int64 [K]
    tokens: Any  # int64 [K], and likewise the next two
    squares: Any
    samples: Any
    routed: Any  # int32 [R G, blocks of layers, P, LANES]
    attention: Any  # int64 [R G]
    peaks: Any  # int64 [R G]: sum over layers of the busiest rank
    joint: Any  # int64 [R G]
    by_shard: Any  # int64 [G]
    score: Any  # int64 [3]
    top: Any  # int64 [3]: the blocks of largest joint, -1 where there are fewer
    rng: Any  # uint64 [4]
    picked: Any  # int64 [2, most]: items that a move takes from cell a and from cell b
    moved: Any  # int32 [2, blocks of layers, P, LANES]: their summed demand
    trial: Any  # int64 [8]: see `moves.evaluate`


@inlined
def block_of(inst: Instance, cell: int) -> Any:
    """Return the row-shard of a cell."""
    slots = inst.shard_of_slot.size
    return cell // slots * (inst.shard_start.size - 1) + inst.shard_of_slot[cell % slots]


@kernel
def rebuild(inst: Instance, state: State) -> None:
    """Recompute everything from `state.cell`."""
    for array in (state.size, state.tokens, state.squares, state.samples, state.by_shard):
        array[:] = 0
    state.routed[:] = 0
    slots, shards = inst.shard_of_slot.size, inst.shard_start.size - 1
    for m in range(state.cell.size):
        c = state.cell[m]
        state.members[c, state.size[c]] = m
        state.position[m] = state.size[c]
        state.size[c] += 1
        state.tokens[c] += inst.tokens[m]
        state.squares[c] += inst.squares[m]
        state.samples[c] += inst.samples[m]
        add_demand(state.routed[c // slots * shards + inst.shard_of_slot[c % slots]], inst.demand[m])
    for block in range(state.joint.size):
        state.attention[block] = attention_after(inst, state, block, -1, 0, 0, -1, 0, 0)
        state.peaks[block] = peak_sum(state.routed[block])
        state.joint[block] = state.attention[block] + inst.unit * state.peaks[block]
        state.by_shard[block % shards] += state.joint[block]
    find_top(state)
    state.score[0], state.score[1], state.score[2] = 0, 0, state.joint[state.top[0]]
    for total in state.by_shard:
        state.score[0] = max(state.score[0], total)
        state.score[1] += total


@inlined
def add_demand(loads: Any, demand: Any) -> None:
    """Add the demand of one item to the loads of one block."""
    for b in range(loads.shape[0]):
        for p in range(loads.shape[1]):
            for k in range(loads.shape[2]):
                loads[b, p, k] += demand[b, p, k]


@kernel
def peak_sum(loads: Any) -> Any:
    """Sum over layers of the busiest rank of one block."""
    total = np.int64(0)
    for b in range(loads.shape[0]):
        for k in range(loads.shape[2]):
            worst = loads[b, 0, k]
            for p in range(1, loads.shape[1]):
                worst = max(worst, loads[b, p, k])
            total += worst
    return total


@inlined
def attention_after(
    inst: Instance,
    state: State,
    block: int,
    a: int,
    tokens_a: int,
    squares_a: int,
    b: int,
    tokens_b: int,
    squares_b: int,
) -> Any:
    """Attention work of a block when cells a and b held other token sums (-1: no such cell)."""
    shards = inst.shard_start.size - 1
    shard, base = block % shards, block // shards * inst.shard_of_slot.size
    total = np.int64(0)
    for s in range(inst.linear.size):
        worst = np.int64(0)
        for slot in range(inst.shard_start[shard], inst.shard_start[shard + 1]):
            c = base + slot
            tokens, squares = state.tokens[c], state.squares[c]
            if c == a:
                tokens, squares = tokens_a, squares_a
            elif c == b:
                tokens, squares = tokens_b, squares_b
            worst = max(worst, inst.linear[s] * tokens + inst.quadratic[s] * squares)
        total += worst
    return total


@inlined
def find_top(state: State) -> None:
    """Find the three blocks of largest joint work, ties by lowest index."""
    state.top[:] = -1
    for block in range(state.joint.size):
        value = state.joint[block]
        for k in range(3):
            if state.top[k] < 0 or value > state.joint[state.top[k]]:
                for back in range(2, k, -1):
                    state.top[back] = state.top[back - 1]
                state.top[k] = block
                break


@njit(cache=True, nogil=True)
def copy_state(source: State, target: State) -> None:
    """Copy everything that a chain carries, but the random stream."""
    target.cell[:] = source.cell
    target.position[:] = source.position
    target.size[:] = source.size
    for c in range(source.size.size):
        for k in range(source.size[c]):
            target.members[c, k] = source.members[c, k]
    target.tokens[:] = source.tokens
    target.squares[:] = source.squares
    target.samples[:] = source.samples
    target.routed[:] = source.routed
    target.attention[:] = source.attention
    target.peaks[:] = source.peaks
    target.joint[:] = source.joint
    target.by_shard[:] = source.by_shard
    target.score[:] = source.score
    target.top[:] = source.top
