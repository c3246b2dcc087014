"""Make a placement real: stage, vote, commit.

Guarantees: all ranks agree on the whole plan before a byte moves; a transfer is staged beside the live state
and copied over it only after every rank has voted that it holds its part; the map of the layer flips together
with its state; staging never exceeds its budget; parameters, storage, shapes, gradient views and process
groups stay what they were. After any failure the committed placement is :attr:`Materializer.placement`.

Source: the paper, section 3.3 and Figure 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from routepack_opt.errors import InputError
from routepack_opt.placement import Placement
from routepack_opt.runtime.control import Control, MaterializeError
from routepack_opt.runtime.dispatch import LayerMap
from routepack_opt.runtime.exchange import exchange_of
from routepack_opt.runtime.live import LiveLayer, Part, commit
from routepack_opt.runtime.movement import LayerState, Mesh, Movement, Transfer, plan_movement
from routepack_opt.runtime.pieces import digest
from routepack_opt.runtime.state import ExpertTensor

__all__ = ["Adapter", "Groups", "Materializer", "Report"]

_T = TypeVar("_T")


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
        # Written once, so that the system must find the memory now.
        self._arena = torch.empty(staging_bytes, dtype=torch.uint8, device=device).fill_(0)
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
        self._peak = 0
        if movement.transfers:
            self._together("parameter sync", self._adapter.synchronize)
        for index, transfer in enumerate(movement.transfers, start=1):
            where = f"layer {transfer.layer}, transfer {index} of {len(movement.transfers)}"
            staged = self._together(where, self._stage, transfer, movement, tensors[transfer.layer])
            commit(staged)
            self._maps[transfer.layer].commit(transfer.slots)
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

    def _together(self, stage: str, action: Callable[..., _T], *args: Any) -> _T:
        """Do something on all ranks and return only if it went well on each."""
        result: Any = None
        failure = None
        try:
            result = action(*args)
            if self._arena.device.type != "cpu":
                torch.get_device_module(self._arena.device).synchronize()
        except Exception as error:  # a failure here must become a vote, or the others wait for the timeout
            failure = f"{type(error).__name__}: {error}"
        self._vote(stage, digest(stage.encode()), failure, moving=True)
        done: _T = result
        return done

    def _stage(
        self, transfer: Transfer, movement: Movement, tensors: list[ExpertTensor]
    ) -> list[tuple[Tensor, Tensor]]:
        """Fill the staging area; return (live view, staged copy) for everything this rank must write."""
        mesh, specs = movement.mesh, movement.states[transfer.layer].specs
        _, _, rank, lane = self._groups.place()
        exchange = exchange_of(transfer.pieces, specs, mesh, rank, lane)
        live = LiveLayer(transfer, tensors, mesh.slots_per_rank, lane)
        areas, free = {}, 0
        kept = (exchange.recv_ranks, exchange.local, exchange.recv_lanes)
        for name, batch in zip(("ranks", "local", "lanes"), kept, strict=True):
            areas[name] = self._arena[free : free + batch.bytes]
            free += batch.bytes
        self._peak = max(self._peak, exchange.staging_bytes)

        spare = self._arena[free : free + exchange.sent_bytes]
        incoming = live.buffers(exchange.recv_ranks, areas["ranks"])
        self._exchange(incoming, live.sources(exchange.send_ranks, spare), self._groups.ranks)
        live.read(exchange.local, areas["local"])
        rows = exchange.recv_ranks.rows.tolist()
        arrived = {row: part for row, (_, part) in zip(rows, incoming, strict=True)}
        outgoing = live.sources(exchange.send_lanes, spare, arrived)
        self._exchange(live.buffers(exchange.recv_lanes, areas["lanes"]), outgoing, self._groups.lanes)
        return [
            pair for name, batch in zip(areas, kept, strict=True) for pair in live.writes(batch, areas[name])
        ]

    def _exchange(self, into: list[Part], out: list[Part], group: Any) -> None:
        """Send and receive parts, all at once; no rank waits longer than the timeout.

        Point to point, part by part, state leaves from where it lives: one collective over one buffer would
        have all of it packed first. Between two ranks both sides list the parts in the same order.
        """
        if group is None or not (into or out):
            return
        peer = dist.get_global_rank
        operations = [dist.P2POp(dist.irecv, part, peer(group, source), group) for source, part in into]
        operations += [dist.P2POp(dist.isend, part, peer(group, target), group) for target, part in out]
        for work in dist.batch_isend_irecv(operations):
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
