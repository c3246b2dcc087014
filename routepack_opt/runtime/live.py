"""Live expert storage of one layer on this rank, read into and written from transfer buffers.

Guarantees: a piece is copied with its own dtype and shape, so strided views work. Nothing live is written but
by :func:`commit`; :meth:`LiveLayer.writes` pairs targets with their staged bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from routepack_opt.runtime._kernels import copy_bytes
from routepack_opt.runtime.exchange import Batch
from routepack_opt.runtime.movement import Transfer
from routepack_opt.runtime.pieces import END, SOURCE_SLOT, START, TARGET_LANE, TARGET_SLOT, TENSOR
from routepack_opt.runtime.state import ExpertTensor

__all__ = ["LiveLayer", "Part", "commit"]

_STREAMED: Final = 1 << 20
"""Bytes from which a copy goes past the caches; the trainer may find a smaller one still there."""

Part = tuple[int, Tensor]
"""Member of a process group, and bytes (uint8) that go to it or come from it."""


class LiveLayer:
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

    def read(self, batch: Batch, into: Tensor) -> None:
        """Copy pieces from live storage into a buffer."""
        with torch.no_grad():
            for row, offset in zip(batch.rows.tolist(), batch.offsets.tolist(), strict=True):
                view = self._view(row, SOURCE_SLOT)
                self._typed(into, offset, view).copy_(view)

    def sources(
        self, batch: Batch, spare: Tensor, arrived: Mapping[int, Tensor] = MappingProxyType({})
    ) -> list[Part]:
        """Bytes of each piece and who gets them: what has `arrived` for its row, else live ones.

        A piece that does not lie in one piece of live storage is copied into `spare` first.
        """
        parts = []
        for row, offset, peer in zip(batch.rows.tolist(), batch.offsets.tolist(), batch.peers(), strict=True):
            part = arrived.get(row)
            if part is None:
                view = self._view(row, SOURCE_SLOT).detach()
                if not view.is_contiguous():
                    copy = self._typed(spare, offset, view)
                    view = copy.copy_(view)
                part = view.view(-1).view(torch.uint8)
            parts.append((peer, part))
        return parts

    def buffers(self, batch: Batch, area: Tensor) -> list[Part]:
        """Where the bytes of each piece go, and who sends them."""
        rows = zip(batch.rows.tolist(), batch.offsets.tolist(), batch.peers(), strict=True)
        return [(peer, area[offset : offset + self._bytes(row)]) for row, offset, peer in rows]

    def _bytes(self, row: int) -> int:
        piece = self._pieces[row].tolist()
        return int((piece[END] - piece[START]) * self._tensors[piece[TENSOR]].spec.itemsize)

    def writes(self, batch: Batch, area: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Pair the live target of each piece of this lane with its staged bytes."""
        pairs = []
        for row, offset in zip(batch.rows.tolist(), batch.offsets.tolist(), strict=True):
            if self._pieces[row, TARGET_LANE] == self._lane:
                view = self._view(row, TARGET_SLOT)
                pairs.append((view, self._typed(area, offset, view)))
        return pairs


def commit(writes: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Copy staged bytes over their live targets: pairs (live, staged) of the same dtype and shape."""
    with torch.no_grad():
        for live, staged in writes:
            if _streams(live):
                copy_bytes(_bytes(live), _bytes(staged))
                increment_version(live)  # a graph that still needs the old values must find out
            else:
                live.copy_(staged)


def _streams(live: Tensor) -> bool:
    """Whether one thread's streaming copy is the fastest: PyTorch's own uses all threads, and any device."""
    large = live.device.type == "cpu" and live.numel() * live.element_size() >= _STREAMED
    return large and live.is_contiguous() and torch.get_num_threads() == 1


def _bytes(tensor: Tensor) -> Any:
    """Contiguous CPU memory as a numpy array of bytes."""
    return tensor.detach().view(-1).view(torch.uint8).numpy()
