"""Which range of which expert tensor goes from which lane to which lane, in plain integers.

Guarantees: everything here is a pure function of the placements and of what the lanes hold, so every rank
computes the same table without communication; a table that passes :func:`check_pieces` writes every
destination range exactly once, from ranges that the sender holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import CheckError, InputError

Int = NDArray[np.int64]

ALIGNMENT: Final = 16
"""Bytes to which a piece starts in a transfer buffer: any dtype can be viewed there."""

TENSOR, SOURCE_SLOT, TARGET_SLOT, SOURCE_LANE, TARGET_LANE, START, END = range(7)
"""Columns of a piece table (int64 [pieces, 7]); START and END count elements inside one expert."""


@dataclass(frozen=True)
class Mesh:
    """The ranks that share the experts of a layer.

    Parameters
    ----------
    ranks : int
        Expert-parallel ranks P; slot v lives on rank v // slots_per_rank.
    lanes : int
        Expert-data-parallel lanes: the ranks that hold the same slots.
    slots_per_rank : int
        Expert slots H of one rank.
    """

    ranks: int
    lanes: int
    slots_per_rank: int

    @property
    def slots(self) -> int:
        """Slots of a layer (= experts)."""
        return self.ranks * self.slots_per_rank


@dataclass(frozen=True)
class TensorSpec:
    """One kind of expert state of one layer: a parameter, its master copy, a moment, a scale.

    Parameters
    ----------
    name : str
        Says which tensor it is in error messages.
    itemsize : int
        Bytes of an element.
    size : int
        Elements of one expert (of this tensor-parallel shard).
    held : int64 [lanes, slots_per_rank, 2]
        Range of each local slot's elements that each lane holds, the same on every expert-parallel rank.
        Replicated state has (0, size) everywhere; a distributed optimizer gives each lane a part.
    """

    name: str
    itemsize: int
    size: int
    held: Int

    @cached_property
    def key(self) -> bytes:
        """Bytes that two ranks' specs must share."""
        head = f"{self.name}|{self.itemsize}|{self.size}|{self.held.shape}".encode()
        return head + np.ascontiguousarray(self.held, dtype="<i8").tobytes()


def check_specs(specs: Sequence[TensorSpec], mesh: Mesh) -> None:
    """Refuse specs whose ranges are malformed or do not cover an expert between the lanes.

    Raises
    ------
    InputError
        Naming the tensor, the slot and the range.
    """
    for spec in specs:
        shape = (mesh.lanes, mesh.slots_per_rank, 2)
        if spec.held.shape != shape:
            raise InputError(f"ranges of shape {shape}", f"{spec.held.shape}", spec.name)
        start, end = spec.held[..., 0], spec.held[..., 1]
        if (start < 0).any() or (end < start).any() or (end > spec.size).any():
            raise InputError(f"ranges inside 0..{spec.size}", f"{spec.held.tolist()}", spec.name)
        for slot in range(mesh.slots_per_rank):
            reach = 0
            for a, b in sorted(map(tuple, spec.held[:, slot].tolist())):
                reach = max(reach, b) if a <= reach else reach
            if reach < spec.size:
                raise InputError(
                    f"the lanes to hold all {spec.size} elements of local slot {slot}",
                    f"element {reach} on no lane",
                    spec.name,
                    "every part of an expert's state must live on some lane of its rank",
                )


@lru_cache(maxsize=4096)  # masters and moments are cut alike
def _cover(
    need: tuple[int, int], own: int, have: tuple[tuple[int, int], ...]
) -> tuple[tuple[int, int, int], ...]:
    """Cut `need` into (lane, start, end): the own lane first, then the lowest lane that has the element."""
    order = [own, *(lane for lane in range(len(have)) if lane != own)]
    missing, parts = [need], []
    for lane in order:
        left = []
        for start, end in missing:
            a, b = max(start, have[lane][0]), min(end, have[lane][1])
            if a >= b:
                left.append((start, end))
                continue
            parts.append((lane, a, b))
            left += [part for part in ((start, a), (b, end)) if part[0] < part[1]]
        missing = left
    return tuple(parts)


def _template(specs: Sequence[TensorSpec], mesh: Mesh, source: int, target: int) -> Int:
    """Rows (tensor, source lane, target lane, start, end) of a move between two local slots."""
    rows = []
    for index, spec in enumerate(specs):
        have = tuple((a, b) for a, b in spec.held[:, source].tolist())
        for lane, (start, end) in enumerate(spec.held[:, target].tolist()):
            if start < end:
                rows += [(index, part[0], lane, *part[1:]) for part in _cover((start, end), lane, have)]
    return np.array(rows, dtype=np.int64).reshape(-1, 5)


def build_pieces(
    specs: Sequence[TensorSpec], mesh: Mesh, moves: Int, templates: dict[tuple[int, int], Int] | None = None
) -> Int:
    """Return the piece table of a set of moves.

    Parameters
    ----------
    specs : sequence of TensorSpec
        All expert state of the layer.
    mesh : Mesh
        Ranks, lanes and slots.
    moves : int64 [moves, 2]
        Source and target slot of each expert that moves.
    templates : dict, optional
        What earlier calls for the same specs and mesh have worked out; filled here.

    Returns
    -------
    int64 [pieces, 7]
        Columns as named by the module. A piece travels source rank -> target rank on its source lane
        (stage one) and then source lane -> target lane on the target rank (stage two).
    """
    templates = {} if templates is None else templates
    parts = []
    for source, target in moves.tolist():
        local = (source % mesh.slots_per_rank, target % mesh.slots_per_rank)
        if local not in templates:
            templates[local] = _template(specs, mesh, *local)
        rows = templates[local]
        part = np.empty((len(rows), 7), dtype=np.int64)
        part[:, [TENSOR, SOURCE_LANE, TARGET_LANE, START, END]] = rows
        part[:, SOURCE_SLOT], part[:, TARGET_SLOT] = source, target
        parts.append(part)
    return np.concatenate(parts) if parts else np.empty((0, 7), dtype=np.int64)


def piece_bytes(pieces: Int, specs: Sequence[TensorSpec]) -> Int:
    """Payload bytes of each piece."""
    itemsize = np.array([spec.itemsize for spec in specs], dtype=np.int64)
    sizes: Int = (pieces[:, END] - pieces[:, START]) * itemsize[pieces[:, TENSOR]]
    return sizes


def buffer_bytes(pieces: Int, specs: Sequence[TensorSpec]) -> Int:
    """Bytes of each piece in a transfer buffer, alignment included."""
    return -(-piece_bytes(pieces, specs) // ALIGNMENT) * ALIGNMENT


def check_pieces(pieces: Int, specs: Sequence[TensorSpec], mesh: Mesh, moves: Int) -> None:
    """Check a piece table whole, by other means than those that built it.

    Raises
    ------
    CheckError
        When a source range is not held by its sender, or a destination range is not written exactly once.
    """
    if pieces.ndim != 2 or pieces.shape[1] != 7:
        raise CheckError(f"expected a piece table [pieces, 7], found shape {pieces.shape}")
    limits = np.array([len(specs), mesh.slots, mesh.slots, mesh.lanes, mesh.lanes])
    if (pieces < 0).any() or (pieces[:, :5] >= limits).any() or (pieces[:, START] >= pieces[:, END]).any():
        raise CheckError("a piece names a tensor, slot, lane or range that does not exist")
    if sorted(moves[:, 0].tolist()) != sorted(set(moves[:, 1].tolist())):
        raise CheckError("the slots that are left and the slots that are filled differ")
    target_of = np.full(mesh.slots, -1, dtype=np.int64)
    target_of[moves[:, 0]] = moves[:, 1]
    held = np.stack([spec.held for spec in specs])
    low, high = held[
        pieces[:, TENSOR], pieces[:, SOURCE_LANE], pieces[:, SOURCE_SLOT] % mesh.slots_per_rank
    ].T
    stray = target_of[pieces[:, SOURCE_SLOT]] != pieces[:, TARGET_SLOT]
    _refuse(stray, pieces, specs, "is no move of this plan")
    _refuse((pieces[:, START] < low) | (pieces[:, END] > high), pieces, specs, "is not held by its sender")
    _check_written_once(pieces, specs, mesh, moves, held)


def _check_written_once(pieces: Int, specs: Sequence[TensorSpec], mesh: Mesh, moves: Int, held: Int) -> None:
    """Sorted by destination, the pieces of each destination range must join without gap or overlap."""
    columns = (START, TARGET_LANE, TARGET_SLOT, TENSOR)
    rows = pieces[np.lexsort([pieces[:, column] for column in columns])]
    group = rows[:, [TENSOR, TARGET_SLOT, TARGET_LANE]]
    low, high = held[rows[:, TENSOR], rows[:, TARGET_LANE], rows[:, TARGET_SLOT] % mesh.slots_per_rank].T
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (group[1:] != group[:-1]).any(axis=1)
    last = np.ones(len(rows), dtype=bool)
    last[:-1] = first[1:]
    before = np.where(first, low, np.roll(rows[:, END], 1))
    _refuse(rows[:, START] != before, rows, specs, "does not join the piece before it")
    _refuse(last & (rows[:, END] != high), rows, specs, "ends before its destination range does")
    wanted = held[:, :, moves[:, 1] % mesh.slots_per_rank]
    expected = int((wanted[..., 1] > wanted[..., 0]).sum())
    if int(first.sum()) != expected:
        raise CheckError(
            f"{expected} destination ranges are to be written, the plan writes {int(first.sum())}"
        )


def _refuse(bad: NDArray[np.bool_], pieces: Int, specs: Sequence[TensorSpec], why: str) -> None:
    """Raise for the first bad piece, by name."""
    if bad.any():
        tensor, source, target, lane, to, start, end = pieces[int(np.argmax(bad))].tolist()
        raise CheckError(
            f"{specs[tensor].name}: [{start}, {end}) of slot {source}, lane {lane}, "
            f"to slot {target}, lane {to}, {why}"
        )


def digest(*parts: bytes) -> bytes:
    """sha256 of length-prefixed parts."""
    state = hashlib.sha256()
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
