"""Live expert storage of one layer on this rank, read into and written from transfer buffers.

Guarantees: a piece is copied with its own dtype and shape, so strided views work. Nothing live is written:
:meth:`LiveLayer.writes` pairs targets with their staged bytes.
"""

from __future__ import annotations

import torch
from torch import Tensor

from routepack_opt.runtime.exchange import Batch
from routepack_opt.runtime.movement import Transfer
from routepack_opt.runtime.pieces import END, SOURCE_SLOT, START, TARGET_LANE, TARGET_SLOT, TENSOR
from routepack_opt.runtime.state import ExpertTensor

__all__ = ["LiveLayer"]


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
