"""What one rank does with a piece table: packing order, split sizes, buffer offsets, bytes.

Guarantees: the sender's and the receiver's order are derived from the same table, so the split sizes of all
ranks match; the staging bytes of a set of moves are known, exactly, before a buffer is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from routepack_opt.runtime.pieces import (
    SOURCE_LANE,
    SOURCE_SLOT,
    TARGET_LANE,
    TARGET_SLOT,
    Int,
    Mesh,
    TensorSpec,
    buffer_bytes,
)


@dataclass(frozen=True)
class Batch:
    """Pieces in buffer order.

    Attributes
    ----------
    rows : int64 [pieces]
        Indices into the piece table.
    offsets : int64 [pieces]
        Byte offset of each piece in the buffer.
    splits : int64 [peers]
        Bytes for (or from) each member of the process group.
    """

    rows: Int
    offsets: Int
    splits: Int

    @property
    def bytes(self) -> int:
        """Size of the buffer."""
        return int(self.splits.sum())

    def peers(self) -> list[int]:
        """Member of the process group that each piece goes to or comes from."""
        ends = np.cumsum(self.splits)
        found: list[int] = np.searchsorted(ends, self.offsets, side="right").tolist()
        return found


@dataclass(frozen=True)
class Exchange:
    """One rank's part of a transfer: two collectives, their buffers, and where each result lies.

    Attributes
    ----------
    send_ranks, recv_ranks : Batch
        Stage one, among the expert-parallel ranks of this lane.
    send_lanes, recv_lanes : Batch
        Stage two, among the lanes of this rank.
    local : Batch
        Pieces that stay on this rank and lane and only change slot.
    """

    send_ranks: Batch
    recv_ranks: Batch
    local: Batch
    send_lanes: Batch
    recv_lanes: Batch

    @property
    def sent_bytes(self) -> int:
        """Bytes that either stage sends, kept for parts that do not lie in one piece."""
        return max(self.send_ranks.bytes, self.send_lanes.bytes)

    @property
    def staging_bytes(self) -> int:
        """Bytes of staging that this rank needs for the transfer; both stages send from the same area."""
        return self.recv_ranks.bytes + self.local.bytes + self.recv_lanes.bytes + self.sent_bytes


def _batch(mask: Int, peer: Int, size: Int, peers: int) -> Batch:
    """Order the masked pieces by peer (ties by table order) and lay them out one after another."""
    rows = np.flatnonzero(mask).astype(np.int64)
    rows = rows[np.argsort(peer[rows], kind="stable")]
    ends = np.cumsum(size[rows])
    splits = np.zeros(peers, dtype=np.int64)
    np.add.at(splits, peer[rows], size[rows])
    return Batch(rows, ends - size[rows], splits)


def exchange_of(pieces: Int, specs: Sequence[TensorSpec], mesh: Mesh, rank: int, lane: int) -> Exchange:
    """Return what the rank at (`rank`, `lane`) of the mesh sends, receives and keeps."""
    size = buffer_bytes(pieces, specs)
    source, target = (pieces[:, column] // mesh.slots_per_rank for column in (SOURCE_SLOT, TARGET_SLOT))
    from_lane, to_lane = pieces[:, SOURCE_LANE], pieces[:, TARGET_LANE]
    mine, here, crosses = from_lane == lane, target == rank, source != target
    nobody = np.zeros(len(pieces), dtype=np.int64)
    return Exchange(
        send_ranks=_batch(mine & (source == rank) & crosses, target, size, mesh.ranks),
        recv_ranks=_batch(mine & here & crosses, source, size, mesh.ranks),
        local=_batch(mine & here & ~crosses & (to_lane == lane), nobody, size, 1),
        send_lanes=_batch(mine & here & (to_lane != lane), to_lane, size, mesh.lanes),
        recv_lanes=_batch(here & (to_lane == lane) & ~mine, from_lane, size, mesh.lanes),
    )


def staging_bytes(pieces: Int, specs: Sequence[TensorSpec], mesh: Mesh) -> int:
    """Staging bytes of the fullest rank for a piece table: the largest `Exchange.staging_bytes`."""
    size = buffer_bytes(pieces, specs)
    source, target = (pieces[:, column] // mesh.slots_per_rank for column in (SOURCE_SLOT, TARGET_SLOT))
    from_lane, to_lane = pieces[:, SOURCE_LANE], pieces[:, TARGET_LANE]
    crosses, hops = source != target, from_lane != to_lane

    def per_rank(rank: Int, lane: Int, mask: Int) -> Int:
        total = np.zeros(mesh.ranks * mesh.lanes, dtype=np.int64)
        np.add.at(total, (rank * mesh.lanes + lane)[mask], size[mask])
        return total

    kept = per_rank(target, from_lane, crosses | ~hops) + per_rank(target, to_lane, hops)
    sent = np.maximum(per_rank(source, from_lane, crosses), per_rank(target, from_lane, hops))
    return int((kept + sent).max(initial=0))
