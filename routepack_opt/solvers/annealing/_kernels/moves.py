"""Moves: an exchange of some items of cell a for some items of cell b (none of them for a relocation).

Guarantees: a move that :func:`allowed` accepts keeps every rule of a valid layout; :func:`evaluate` gives the
score that :func:`apply` then makes true, equal to a full rescore.
"""

from typing import Any

import numpy as np

from routepack_opt.solvers.annealing._kernels.compile import inlined
from routepack_opt.solvers.annealing._kernels.peaks import exchanged_peaks
from routepack_opt.solvers.annealing._kernels.state import (
    Instance,
    State,
    add_demand,
    attention_after,
    block_of,
    find_top,
)

# Fields of State.trial, filled by `evaluate`.
PRIMARY, TOTAL, ROW_PEAK, ATTENTION_A, PEAKS_A, ATTENTION_B, PEAKS_B = range(7)


@inlined
def total_of(values: Any, picked: Any, count: int) -> Any:
    """Sum `values` over the first `count` picked items."""
    total = np.int64(0)
    for k in range(count):
        total += values[picked[k]]
    return total


@inlined
def allowed(inst: Instance, state: State, a: int, b: int, count_a: int, count_b: int) -> bool:
    """Say whether the exchange of the picked items keeps every rule."""
    if a == b or (count_a == 0 and count_b == 0):
        return False
    slots = inst.shard_of_slot.size
    first_a, first_b = state.members[a, 0], state.members[b, 0]
    if a // slots != b // slots and inst.row_class[first_a] != inst.row_class[first_b]:
        return False
    samples_a = total_of(inst.samples, state.picked[0], count_a)
    samples_b = total_of(inst.samples, state.picked[1], count_b)
    if inst.equal_samples and a % slots != b % slots and samples_a != samples_b:
        return False
    if count_a == state.size[a] and count_b == state.size[b]:
        return True  # whole cells trade places: no cell changes its contents
    if inst.alone[first_a] or inst.alone[first_b]:
        return False
    if count_a - count_b >= state.size[a] or count_b - count_a >= state.size[b]:
        return False
    gain = samples_b - samples_a
    if state.samples[a] + gain > inst.max_samples or state.samples[b] - gain > inst.max_samples:
        return False
    shift = total_of(inst.tokens, state.picked[1], count_b) - total_of(inst.tokens, state.picked[0], count_a)
    return state.tokens[a] + shift <= inst.cap and state.tokens[b] - shift <= inst.cap


@inlined
def evaluate(inst: Instance, state: State, a: int, b: int, count_a: int, count_b: int) -> None:
    """Fill `state.trial` with the score and the terms after the exchange."""
    tokens = total_of(inst.tokens, state.picked[1], count_b) - total_of(inst.tokens, state.picked[0], count_a)
    squares = total_of(inst.squares, state.picked[1], count_b) - total_of(
        inst.squares, state.picked[0], count_a
    )
    tokens_a, squares_a = state.tokens[a] + tokens, state.squares[a] + squares
    tokens_b, squares_b = state.tokens[b] - tokens, state.squares[b] - squares
    block_a, block_b = block_of(inst, a), block_of(inst, b)
    trial = state.trial
    if block_a == block_b:
        trial[ATTENTION_A] = attention_after(
            inst, state, block_a, a, tokens_a, squares_a, b, tokens_b, squares_b
        )
        trial[PEAKS_A] = state.peaks[block_a]
        trial[ATTENTION_B], trial[PEAKS_B] = trial[ATTENTION_A], trial[PEAKS_A]
    else:
        trial[ATTENTION_A] = attention_after(inst, state, block_a, a, tokens_a, squares_a, -1, 0, 0)
        trial[ATTENTION_B] = attention_after(inst, state, block_b, b, tokens_b, squares_b, -1, 0, 0)
        if count_a == 1 and count_b == 1:
            i, j = state.picked[0, 0], state.picked[1, 0]
            trial[PEAKS_A], trial[PEAKS_B] = exchanged_peaks(
                state.routed, block_a, block_b, inst.demand, i, inst.demand, j
            )
        else:
            gather(inst, state, 0, count_a)
            gather(inst, state, 1, count_b)
            trial[PEAKS_A], trial[PEAKS_B] = exchanged_peaks(
                state.routed, block_a, block_b, state.moved, 0, state.moved, 1
            )
    fold(inst, state, block_a, block_b)


@inlined
def gather(inst: Instance, state: State, side: int, count: int) -> None:
    """Sum the demand of the picked items of one side into `state.moved`."""
    state.moved[side] = 0
    for k in range(count):
        add_demand(state.moved[side], inst.demand[state.picked[side, k]])


@inlined
def fold(inst: Instance, state: State, block_a: int, block_b: int) -> None:
    """Compute the three score components from the trial terms of two blocks."""
    trial = state.trial
    shards = state.by_shard.size
    joint_a = trial[ATTENTION_A] + inst.unit * trial[PEAKS_A]
    joint_b = trial[ATTENTION_B] + inst.unit * trial[PEAKS_B]
    change_a = joint_a - state.joint[block_a]
    change_b = np.int64(0) if block_a == block_b else joint_b - state.joint[block_b]
    primary = np.int64(0)
    for g in range(shards):
        value = state.by_shard[g]
        if g == block_a % shards:
            value += change_a
        if g == block_b % shards:
            value += change_b
        primary = max(primary, value)
    peak = max(joint_a, joint_b)
    for k in range(3):  # of the three largest blocks at most two change
        block = state.top[k]
        if block >= 0 and block != block_a and block != block_b:
            peak = max(peak, state.joint[block])
            break
    trial[PRIMARY], trial[TOTAL], trial[ROW_PEAK] = primary, state.score[1] + change_a + change_b, peak


@inlined
def apply(inst: Instance, state: State, a: int, b: int, count_a: int, count_b: int) -> None:
    """Make the exchange that `evaluate` was called for."""
    trial = state.trial
    block_a, block_b = block_of(inst, a), block_of(inst, b)
    shards = state.by_shard.size
    if block_a != block_b:
        for k in range(count_a):
            shift_demand(state.routed, block_a, block_b, inst.demand[state.picked[0, k]])
        for k in range(count_b):
            shift_demand(state.routed, block_b, block_a, inst.demand[state.picked[1, k]])
    for k in range(count_a):
        detach(inst, state, state.picked[0, k])
    for k in range(count_b):
        detach(inst, state, state.picked[1, k])
    for k in range(count_a):
        attach(inst, state, state.picked[0, k], b)
    for k in range(count_b):
        attach(inst, state, state.picked[1, k], a)
    set_block(inst, state, block_a, trial[ATTENTION_A], trial[PEAKS_A], shards)
    set_block(inst, state, block_b, trial[ATTENTION_B], trial[PEAKS_B], shards)
    state.score[0], state.score[1], state.score[2] = trial[PRIMARY], trial[TOTAL], trial[ROW_PEAK]
    find_top(state)


@inlined
def set_block(inst: Instance, state: State, block: int, attention: int, peaks: int, shards: int) -> None:
    """Store the terms of a block and keep its shard's sum."""
    joint = attention + inst.unit * peaks
    state.by_shard[block % shards] += joint - state.joint[block]
    state.attention[block], state.peaks[block], state.joint[block] = attention, peaks, joint


@inlined
def shift_demand(routed: Any, source: int, target: int, demand: Any) -> None:
    """Move the demand of one item from one block to another."""
    for b in range(demand.shape[0]):
        for p in range(demand.shape[1]):
            for k in range(demand.shape[2]):
                routed[source, b, p, k] -= demand[b, p, k]
                routed[target, b, p, k] += demand[b, p, k]


@inlined
def detach(inst: Instance, state: State, item: int) -> None:
    """Take an item out of its cell; the cell's last item fills the hole."""
    c = state.cell[item]
    state.size[c] -= 1
    last = state.members[c, state.size[c]]
    state.members[c, state.position[item]] = last
    state.position[last] = state.position[item]
    state.tokens[c] -= inst.tokens[item]
    state.squares[c] -= inst.squares[item]
    state.samples[c] -= inst.samples[item]


@inlined
def attach(inst: Instance, state: State, item: int, c: int) -> None:
    """Put a detached item into a cell."""
    state.cell[item] = c
    state.members[c, state.size[c]] = item
    state.position[item] = state.size[c]
    state.size[c] += 1
    state.tokens[c] += inst.tokens[item]
    state.squares[c] += inst.squares[item]
    state.samples[c] += inst.samples[item]
