"""The movement plan: from an old and a new placement to transfers that each commit as a whole.

Guarantees: numpy only, no communication, the same result on every rank. A transfer is a set of whole cycles
of one layer's slot permutation, so after any number of transfers every expert is in exactly one slot; no
transfer needs more than the given staging bytes on any rank; bytes over the network are exactly those of the
experts that change rank (stage one) plus the range intersections that change lane (stage two).

Source: the state-consistent materialization of the paper, section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from routepack_opt.errors import InputError
from routepack_opt.runtime.cycles import Cycle, cycles_of, group_cycles, moves_of
from routepack_opt.runtime.exchange import staging_bytes
from routepack_opt.runtime.pieces import (
    SOURCE_LANE,
    SOURCE_SLOT,
    TARGET_LANE,
    TARGET_SLOT,
    Int,
    Mesh,
    TensorSpec,
    build_pieces,
    check_pieces,
    check_specs,
    digest,
    piece_bytes,
)

__all__ = ["LayerState", "Mesh", "Movement", "TensorSpec", "Transfer", "plan_movement"]


@dataclass(frozen=True)
class LayerState:
    """All expert state of one layer, as every rank knows it."""

    layer: int
    specs: tuple[TensorSpec, ...]


@dataclass(frozen=True)
class Transfer:
    """Experts of one layer that change slot together or not at all.

    Attributes
    ----------
    layer : int
        Row of the placement.
    slots : int64 [experts]
        The layer's slot of each expert once this transfer is committed.
    moves : int64 [moves, 2]
        Source and target slot.
    pieces : int64 [pieces, 7]
        See :mod:`routepack_opt.runtime.pieces`.
    """

    layer: int
    slots: Int
    moves: Int
    pieces: Int


@dataclass(frozen=True)
class Movement:
    """All transfers between two placements, in the order in which they are made.

    Attributes
    ----------
    mesh : Mesh
        Ranks, lanes and slots.
    states : dict of int to LayerState
        Expert state by layer.
    transfers : tuple of Transfer
        Layers ascending.
    """

    mesh: Mesh
    states: dict[int, LayerState]
    transfers: tuple[Transfer, ...]

    @property
    def digest(self) -> bytes:
        """sha256 of everything the ranks must agree on before a byte moves."""
        shape = np.array([self.mesh.ranks, self.mesh.lanes, self.mesh.slots_per_rank], dtype="<i8")
        parts = [shape.tobytes()]
        for layer, state in sorted(self.states.items()):
            parts += [str(layer).encode(), *(spec.key for spec in state.specs)]
        for transfer in self.transfers:
            parts += [transfer.slots.astype("<i8").tobytes(), transfer.pieces.astype("<i8").tobytes()]
        return digest(*parts)

    def bytes_across_ranks(self) -> int:
        """Payload bytes of stage one, summed over all ranks and lanes."""
        return self._bytes(SOURCE_SLOT, TARGET_SLOT, self.mesh.slots_per_rank)

    def bytes_across_lanes(self) -> int:
        """Payload bytes of stage two, summed over all ranks and lanes."""
        return self._bytes(SOURCE_LANE, TARGET_LANE, 1)

    def _bytes(self, source: int, target: int, divisor: int) -> int:
        total = 0
        for transfer in self.transfers:
            pieces = transfer.pieces
            crosses = pieces[:, source] // divisor != pieces[:, target] // divisor
            total += int(piece_bytes(pieces, self.states[transfer.layer].specs)[crosses].sum())
        return total

    def staging_bytes(self) -> int:
        """Staging that the fullest rank needs for the largest transfer."""
        sizes = (staging_bytes(t.pieces, self.states[t.layer].specs, self.mesh) for t in self.transfers)
        return max(sizes, default=0)

    def check(self) -> None:
        """Check every transfer whole; see :func:`routepack_opt.runtime.pieces.check_pieces`.

        Raises
        ------
        CheckError
            Naming the tensor, slot, lane and range that is wrong.
        """
        for transfer in self.transfers:
            check_pieces(transfer.pieces, self.states[transfer.layer].specs, self.mesh, transfer.moves)


def plan_movement(
    old: Int, new: Int, states: Sequence[LayerState], mesh: Mesh, budget: int | None = None
) -> Movement:
    """Plan how the expert state gets from one placement to another.

    Parameters
    ----------
    old, new : int64 [layers, experts]
        Slot of each logical expert, before and after.
    states : sequence of LayerState
        The layers that these ranks hold; other rows of the placements are not looked at.
    mesh : Mesh
        Ranks, lanes and slots.
    budget : int, optional
        Staging bytes that no rank may exceed. A layer that needs more is moved in several transfers of whole
        cycles; a cycle that needs more is closed early, at the price of one further expert move per cut.

    Raises
    ------
    InputError
        For placements that are no permutations, ranges that do not cover an expert, or a budget too small
        for two experts to change places.
    """
    by_layer = {state.layer: state for state in sorted(states, key=lambda state: state.layer)}
    transfers: list[Transfer] = []
    for layer, state in by_layer.items():
        before, after = _row(old, layer, mesh, "old"), _row(new, layer, mesh, "new")
        check_specs(state.specs, mesh)
        slots, build = before.copy(), partial(build_pieces, state.specs, mesh, templates={})
        for moves in _groups(before, after, state, mesh, budget, build):
            target_of = np.arange(mesh.slots, dtype=np.int64)
            target_of[moves[:, 0]] = moves[:, 1]
            slots = target_of[slots]
            transfers.append(Transfer(layer, slots, moves, build(moves)))
    return Movement(mesh, by_layer, tuple(transfers))


def _row(placement: Int, layer: int, mesh: Mesh, name: str) -> Int:
    """One layer's slots, checked to be a permutation."""
    row = np.asarray(placement[layer], dtype=np.int64)
    if row.shape != (mesh.slots,) or not np.array_equal(np.sort(row), np.arange(mesh.slots)):
        raise InputError(
            f"a permutation of {mesh.slots} slots", f"{row.tolist()}", f"{name} placement, layer {layer}"
        )
    return row


def _groups(
    before: Int, after: Int, state: LayerState, mesh: Mesh, budget: int | None, build: Callable[[Int], Int]
) -> list[Int]:
    """Return the moves of each transfer of a layer: as many whole cycles together as fit the budget."""

    def need(cycles: list[Cycle]) -> int:
        return staging_bytes(build(moves_of(cycles)), state.specs, mesh)

    cycles = cycles_of(before, after)
    groups = group_cycles(cycles, lambda some: budget is None or need(some) <= budget)
    if groups is None:
        smallest = max(need([cycle[:2]]) for cycle in cycles)
        raise InputError(
            f"staging for two experts to change places (layer {state.layer} needs {smallest} bytes)",
            f"{budget} bytes",
            "staging_bytes",
            "raise the staging budget",
        )
    return [moves_of(group) for group in groups]
