"""Make a placement real: stage, vote, commit.

Guarantees: all ranks agree on the whole plan before a byte moves; a transfer is staged beside the live state
and copied over it only after every rank has voted that it holds its part; the map of the layer flips together
with its state; staging never exceeds its budget; parameters, storage, shapes, gradient views and process
groups stay what they were. After any failure the committed placement is :attr:`Materializer.placement`.

Source: the paper, section 3.3 and Figure 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from routepack_opt.errors import InputError
from routepack_opt.placement import Placement
from routepack_opt.runtime.control import Control, MaterializeError
from routepack_opt.runtime.dispatch import LayerMap
from routepack_opt.runtime.exchange import Batch, Exchange, exchange_of
from routepack_opt.runtime.movement import LayerState, Mesh, Movement, Transfer, plan_movement
from routepack_opt.runtime.pieces import END, SOURCE_SLOT, START, TARGET_LANE, TARGET_SLOT, TENSOR, digest
from routepack_opt.runtime.state import ExpertTensor

__all__ = ["Adapter", "Groups", "Materializer", "Report"]


class Adapter(Protocol):
    """What a training system tells the runtime. All methods but `synchronize` are free of communication."""

    @property
    def layers(self) -> Sequence[int]:
        """Rows of the placement whose experts these ranks hold."""

    def check(self) -> None:
        """Raise unless the trainer stands at a step boundary: no gradient waits to be used."""

    def synchronize(self) -> None:
        """Bring parameters up to date on all lanes; may communicate."""

    def tensors(self, layer: int) -> list[ExpertTensor]:
        """All expert state of a layer, in the same order on every rank."""

    def shared(self) -> bytes:
        """Digest of what the experts share and every rank must have alike."""


@dataclass(frozen=True)
class Groups:
    """The existing communicators that carry the state.

    Parameters
    ----------
    ranks : ProcessGroup or None
        Expert-parallel group of this lane; None for one rank.
    lanes : ProcessGroup or None
        Expert-data-parallel group of this rank; None for one lane.
    """

    ranks: Any = None
    lanes: Any = None

    def place(self) -> tuple[int, int, int, int]:
        """Return (ranks, lanes, own rank, own lane)."""
        pairs = [(1, 0) if g is None else (g.size(), g.rank()) for g in (self.ranks, self.lanes)]
        return pairs[0][0], pairs[1][0], pairs[0][1], pairs[1][1]


@dataclass(frozen=True)
class Report:
    """What a materialization did.

    Attributes
    ----------
    experts : int
        Moves between slots.
    bytes_across_ranks, bytes_across_lanes : int
        Payload of both stages, summed over all ranks.
    staging_peak : int
        Staging bytes used on this rank.
    transfers : int
        Commits.
    """

    experts: int
    bytes_across_ranks: int
    bytes_across_lanes: int
    staging_peak: int
    transfers: int


class Materializer:
    """Moves the experts of one group of ranks from placement to placement.

    Parameters
    ----------
    adapter : Adapter
        The training system.
    maps : dict of int to LayerMap
        Dispatch map of each layer; they hold the current placement.
    groups : Groups
        Communicators of the data.
    control : Control
        Communicator of the votes: every rank, lane and tensor-parallel shard of these layers.
    staging_bytes : int
        Budget of the staging area, allocated here, once: no move can run out of memory later.
    device : torch.device
        Where the experts live.
    """

    def __init__(
        self,
        adapter: Adapter,
        maps: dict[int, LayerMap],
        groups: Groups,
        control: Control,
        *,
        staging_bytes: int = 256 << 20,
        device: torch.device | str = "cpu",
    ) -> None:
        self._adapter, self._maps, self._groups, self._control = adapter, maps, groups, control
        self._arena = torch.empty(staging_bytes, dtype=torch.uint8, device=device)
        self._peak = 0
        self._broken: str | None = None

    @property
    def placement(self) -> dict[int, NDArray[np.int64]]:
        """Committed slots of each expert, by layer."""
        return {layer: m.slot_of_expert.cpu().numpy().copy() for layer, m in self._maps.items()}

    def materialize(self, placement: Placement | NDArray[np.int64]) -> Report:
        """Move the experts to a placement; collective over the control group.

        Parameters
        ----------
        placement : Placement or int64 [layers, experts]
            A plan's placement, or the slot of every expert.

        Raises
        ------
        MaterializeError
            On every rank that is alive, when any of them cannot take part. Layers committed before stay
            committed, with their maps: training can go on from there unless a rank is gone.
        """
        if self._broken:
            raise MaterializeError(f"an earlier failure left the process groups unusable: {self._broken}")
        tensors: dict[int, list[ExpertTensor]] = {}
        movement, failure, agreed = None, None, b""
        try:
            self._adapter.check()
            tensors = {layer: self._adapter.tensors(layer) for layer in self._adapter.layers}
            movement = self._plan(placement, tensors)
            agreed = digest(movement.digest, self._adapter.shared())
        except Exception as error:  # whatever went wrong here, the others must hear of it
            failure = f"{type(error).__name__}: {error}"
        self._vote("plan", agreed, failure, moving=False)
        assert movement is not None
        self._adapter.synchronize()
        self._peak = 0
        for index, transfer in enumerate(movement.transfers):
            self._transfer(index, transfer, movement, tensors[transfer.layer])
        return Report(
            sum(len(transfer.moves) for transfer in movement.transfers),
            movement.bytes_across_ranks(),
            movement.bytes_across_lanes(),
            self._peak,
            len(movement.transfers),
        )

    def _plan(
        self, placement: Placement | NDArray[np.int64], tensors: dict[int, list[ExpertTensor]]
    ) -> Movement:
        """Plan from the committed placement and check the plan whole."""
        ranks, lanes, _, lane = self._groups.place()
        slots = _slots(placement, ranks, 1 + max(self._maps))
        old = slots.copy()
        for layer, row in self.placement.items():
            if slots.shape[1] != len(row):
                raise InputError(f"{len(row)} experts", f"{slots.shape[1]}", "placement")
            old[layer] = row
        experts = slots.shape[1]
        if experts % ranks:
            raise InputError(f"a multiple of {ranks} experts", f"{experts}", "placement")
        for tensor in (one for of_layer in tensors.values() for one in of_layer):
            tensor.check(lane)
        states = [LayerState(k, tuple(tensor.spec for tensor in v)) for k, v in tensors.items()]
        movement = plan_movement(
            old, slots, states, Mesh(ranks, lanes, experts // ranks), self._arena.numel()
        )
        movement.check()
        return movement

    def _vote(self, stage: str, agreed: bytes, failure: str | None, *, moving: bool) -> None:
        """Vote. A rank that is gone ends all use, and so does a refusal amid a move, when a peer may hang."""
        try:
            if not moving:
                self._control.arrive(stage)
            self._control.agree(stage, agreed, failure)
        except MaterializeError as error:
            if moving or error.__cause__ is not None:
                self._broken = str(error)
            raise

    def _transfer(
        self, index: int, transfer: Transfer, movement: Movement, tensors: list[ExpertTensor]
    ) -> None:
        """Stage, vote, commit one transfer."""
        where = f"layer {transfer.layer}, transfer {index + 1} of {len(movement.transfers)}"
        _, _, rank, lane = self._groups.place()
        staged: list[tuple[Tensor, Tensor]] = []
        failure = None
        try:
            specs = movement.states[transfer.layer].specs
            exchange = exchange_of(transfer.pieces, specs, movement.mesh, rank, lane)
            staged = self._stage(transfer, exchange, tensors, movement.mesh.slots_per_rank, lane)
            if self._arena.device.type != "cpu":
                torch.get_device_module(self._arena.device).synchronize()
        except Exception as error:  # a failure here must become a vote, or the others wait for the timeout
            failure = f"{type(error).__name__}: {error}"
        self._vote(where, digest(str(index).encode()), failure, moving=True)
        with torch.no_grad():
            for live, copy in staged:
                live.copy_(copy)
        self._maps[transfer.layer].commit(transfer.slots)

    def _stage(
        self, transfer: Transfer, exchange: Exchange, tensors: list[ExpertTensor], slots: int, lane: int
    ) -> list[tuple[Tensor, Tensor]]:
        """Fill the staging area; return (live view, staged copy) for everything this rank must write."""
        areas, free = {}, 0
        kept = (exchange.recv_ranks, exchange.local, exchange.recv_lanes)
        for name, batch in zip(("ranks", "local", "lanes"), kept, strict=True):
            areas[name] = self._arena[free : free + batch.bytes]
            free += batch.bytes
        self._peak = max(self._peak, exchange.staging_bytes)
        live = _Live(transfer, tensors, slots, lane)

        send = self._arena[free : free + exchange.send_ranks.bytes]
        live.read(exchange.send_ranks, send)
        self._all_to_all(areas["ranks"], send, exchange.recv_ranks, exchange.send_ranks, self._groups.ranks)
        live.read(exchange.local, areas["local"])

        send = self._arena[free : free + exchange.send_lanes.bytes]
        arrived = dict(
            zip(exchange.recv_ranks.rows.tolist(), exchange.recv_ranks.offsets.tolist(), strict=True)
        )
        live.read(exchange.send_lanes, send, areas["ranks"], arrived)
        self._all_to_all(areas["lanes"], send, exchange.recv_lanes, exchange.send_lanes, self._groups.lanes)
        return [
            pair for name, batch in zip(areas, kept, strict=True) for pair in live.writes(batch, areas[name])
        ]

    def _all_to_all(self, into: Tensor, out: Tensor, recv: Batch, send: Batch, group: Any) -> None:
        """One exchange of bytes, which no rank enters alone for longer than the timeout."""
        if group is None:
            return
        work = dist.all_to_all_single(
            into, out, recv.splits.tolist(), send.splits.tolist(), group=group, async_op=True
        )
        work.wait(timedelta(seconds=self._control.timeout))


def _slots(placement: Placement | NDArray[np.int64], ranks: int, layers: int) -> NDArray[np.int64]:
    """Return the slots [layers, experts] of a placement that fits these ranks."""
    if not isinstance(placement, Placement):
        slots = np.asarray(placement)
    elif placement.ranks == ranks:
        slots = placement.slot_of_expert
    else:
        found = f"{placement.ranks}"
        raise InputError(f"a placement on {ranks} expert-parallel ranks", found, "placement")
    if slots.ndim != 2 or slots.shape[0] < layers:
        raise InputError(f"slots [at least {layers} layers, experts]", f"{slots.shape}", "placement")
    return slots


class _Live:
    """Live storage of a layer on this rank, addressed by the rows of a piece table."""

    def __init__(self, transfer: Transfer, tensors: list[ExpertTensor], slots: int, lane: int) -> None:
        self._pieces, self._tensors, self._slots, self._lane = transfer.pieces, tensors, slots, lane

    def _view(self, row: int, column: int) -> Tensor:
        """Live storage of a piece at its source or at its target."""
        piece = self._pieces[row].tolist()
        tensor, slot = self._tensors[piece[TENSOR]], piece[column] % self._slots
        view, low = tensor.views[slot], int(tensor.spec.held[self._lane, slot, 0])
        assert view is not None
        start, end = piece[START] - low, piece[END] - low
        part: Tensor = view if end - start == view.numel() else view.view(-1)[start:end]
        return part

    @staticmethod
    def _typed(area: Tensor, offset: int, like: Tensor) -> Tensor:
        size = like.numel() * like.element_size()
        typed: Tensor = area[offset : offset + size].view(like.dtype).view(like.shape)
        return typed

    def read(
        self, batch: Batch, into: Tensor, arrived: Tensor | None = None, offsets: dict[int, int] | None = None
    ) -> None:
        """Copy pieces into a buffer: from live storage, or from `arrived` where `offsets` knows the row."""
        with torch.no_grad():
            for row, offset in zip(batch.rows.tolist(), batch.offsets.tolist(), strict=True):
                if offsets is not None and arrived is not None and row in offsets:
                    piece = self._pieces[row].tolist()
                    size = (piece[END] - piece[START]) * self._tensors[piece[TENSOR]].spec.itemsize
                    into[offset : offset + size].copy_(arrived[offsets[row] : offsets[row] + size])
                else:
                    view = self._view(row, SOURCE_SLOT)
                    self._typed(into, offset, view).copy_(view)

    def writes(self, batch: Batch, area: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Pair the live target of each piece of this lane with its staged bytes."""
        pairs = []
        for row, offset in zip(batch.rows.tolist(), batch.offsets.tolist(), strict=True):
            if self._pieces[row, TARGET_LANE] == self._lane:
                view = self._view(row, TARGET_SLOT)
                pairs.append((view, self._typed(area, offset, view)))
        return pairs
