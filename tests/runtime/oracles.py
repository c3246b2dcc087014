"""Slow, obvious models of what the runtime does: a world of numpy arrays and a literal two-stage exchange."""

from __future__ import annotations

import numpy as np

from routepack_opt.runtime.exchange import exchange_of
from routepack_opt.runtime.movement import Mesh, Movement, TensorSpec
from routepack_opt.runtime.pieces import (
    END,
    SOURCE_LANE,
    SOURCE_SLOT,
    START,
    TARGET_LANE,
    TARGET_SLOT,
    TENSOR,
)

Store = dict[tuple[int, int, int], np.ndarray]  # (tensor, slot, lane) -> the elements that lane holds


def scatter(
    canonical: list[np.ndarray], specs: tuple[TensorSpec, ...], mesh: Mesh, slots: np.ndarray
) -> Store:
    """Cut canonical state [experts, size] into what each lane holds under a row of slots."""
    store = {}
    for t, spec in enumerate(specs):
        for expert, slot in enumerate(slots):
            for lane in range(mesh.lanes):
                a, b = spec.held[lane, slot % mesh.slots_per_rank]
                store[t, int(slot), lane] = canonical[t][expert, a:b].copy()
    return store


def run(movement: Movement, layer: int, store: Store) -> tuple[int, int]:
    """Execute a layer's transfers on a store, moving piece by piece; return the bytes of both stages."""
    mesh, specs = movement.mesh, movement.states[layer].specs
    ranks_bytes = lanes_bytes = 0
    for transfer in movement.transfers:
        if transfer.layer != layer:
            continue
        arrived = {}
        for row in transfer.pieces.tolist():
            t, source, target, lane, to, a, b = row
            low = specs[t].held[lane, source % mesh.slots_per_rank][0]
            data = store[t, source, lane][a - low : b - low].copy()
            assert len(data) == b - a, "the sender does not hold the range"
            size = len(data) * specs[t].itemsize
            ranks_bytes += size * (source // mesh.slots_per_rank != target // mesh.slots_per_rank)
            lanes_bytes += size * (lane != to)
            arrived[tuple(row)] = data
        for row, data in arrived.items():
            t, _, target, _, to, a, b = row
            low = specs[t].held[to, target % mesh.slots_per_rank][0]
            store[t, target, to][a - low : b - low] = data
    return ranks_bytes, lanes_bytes


def wire(movement: Movement, index: int) -> int:
    """Check that all pairs of ranks expect what the other sends; return the fullest rank's staging."""
    transfer, mesh = movement.transfers[index], movement.mesh
    specs = movement.states[transfer.layer].specs
    every = {
        (p, d): exchange_of(transfer.pieces, specs, mesh, p, d)
        for p in range(mesh.ranks)
        for d in range(mesh.lanes)
    }
    written = []
    for (p, d), mine in every.items():
        for q in range(mesh.ranks):
            assert mine.send_ranks.splits[q] == every[q, d].recv_ranks.splits[p]
            assert _between(mine.send_ranks, q) == _between(every[q, d].recv_ranks, p)
        for lane in range(mesh.lanes):
            assert mine.send_lanes.splits[lane] == every[p, lane].recv_lanes.splits[d]
            assert _between(mine.send_lanes, lane) == _between(every[p, lane].recv_lanes, d)
        kept = [*mine.recv_ranks.rows, *mine.local.rows, *mine.recv_lanes.rows]
        written += [r for r in kept if transfer.pieces[r, TARGET_LANE] == d]
    assert sorted(written) == list(range(len(transfer.pieces)))
    return max(exchange.staging_bytes for exchange in every.values())


def _between(batch, peer):
    """Rows of a batch that belong to one peer, found by walking the splits."""
    start, end = int(batch.splits[:peer].sum()), int(batch.splits[: peer + 1].sum())
    return [int(r) for r, offset in zip(batch.rows, batch.offsets, strict=True) if start <= offset < end]


__all__ = ["END", "SOURCE_LANE", "SOURCE_SLOT", "START", "TARGET_SLOT", "TENSOR", "run", "scatter", "wire"]
