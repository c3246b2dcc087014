"""Views of a layout in the shapes that trainers take.

Guarantees: every view holds each sample exactly once and is derived from the layout alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from routepack_opt.arrays import IntArray, frozen
from routepack_opt.layout import Layout


@dataclass(frozen=True)
class SlotView:
    """What one DP slot runs.

    Attributes
    ----------
    samples : tuple of int
        Window indices in execution order: row after row.
    rows : tuple of tuple of int
        For every row, positions into `samples`; together they are ``range(len(samples))``.
    """

    samples: tuple[int, ...]
    rows: tuple[tuple[int, ...], ...]


def slot_view(layout: Layout, slot: int) -> SlotView:
    """Return the view of one DP slot."""
    samples: list[int] = []
    rows = []
    for row in layout.cells:
        rows.append(tuple(range(len(samples), len(samples) + len(row[slot]))))
        samples.extend(row[slot])
    return SlotView(tuple(samples), tuple(rows))


def order_by_slot(layout: Layout) -> IntArray:
    """Window indices in slot-major order (slot, row, index), int64 (N,): what a reordering dispatch takes."""
    row, slot = np.divmod(layout.cell_of_sample, layout.dp)
    return frozen(np.argsort(slot * layout.rows + row, kind="stable").astype(np.int64))


def inverse_order(order: IntArray) -> IntArray:
    """Position of every window index in `order`: brings results back into window order."""
    return frozen(np.argsort(order, kind="stable").astype(np.int64))
