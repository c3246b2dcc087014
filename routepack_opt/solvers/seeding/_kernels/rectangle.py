"""The items and the R x D rectangle as kernels see them, and what a cell still takes.

Guarantees: :func:`fits` is the one place where the packing operators ask about rules; a packing built by
`fits` and :func:`put` keeps them all but "no empty cell".
"""

from typing import Any, NamedTuple

import numpy as np
from numba import njit

# Reference counting is off, which is why kernels allocate nothing: counting the arrays of a named tuple at
# every access costs more than the work.
kernel = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]


class Rectangle(NamedTuple):
    """Read-only description; see `rectangle.rectangle_of`."""

    tokens: Any  # int64 [M], and likewise the next two
    samples: Any
    row_class: Any
    class_of_cell: Any  # int64 [K]: class of the row of every flat cell
    slots: int  # D
    cap: int
    max_samples: int
    slot_quota: int  # most samples in a slot over all rows
    equal_slots: bool  # whether every slot must reach its quota


class Fill(NamedTuple):
    """What has been packed so far."""

    cell: Any  # int64 [M]: flat cell of every item, -1 before it is packed
    tokens: Any  # int64 [K], and likewise the next two
    samples: Any
    size: Any
    slot_samples: Any  # int64 [D]


def empty_fill(rect: Rectangle) -> Fill:
    """Return the fill of K empty cells."""
    cells = rect.class_of_cell.size
    return Fill(
        np.full(rect.tokens.size, -1, np.int64),
        np.zeros(cells, np.int64),
        np.zeros(cells, np.int64),
        np.zeros(cells, np.int64),
        np.zeros(rect.slots, np.int64),
    )


@kernel
def fits(rect: Any, fill: Any, item: int, cell: int) -> bool:
    """Tell whether `cell` may take `item`.

    An item over the cap enters an empty cell only, and nothing joins it there, since the cell then is over
    the cap.
    """
    samples = rect.samples[item]
    if rect.class_of_cell[cell] != rect.row_class[item] or fill.samples[cell] + samples > rect.max_samples:
        return False
    if fill.slot_samples[cell % rect.slots] + samples > rect.slot_quota:
        return False
    return fill.size[cell] == 0 or fill.tokens[cell] + rect.tokens[item] <= rect.cap


@kernel
def put(rect: Any, fill: Any, item: int, cell: int, sign: int) -> None:
    """Add `item` to `cell` (sign 1) or take it out (sign -1)."""
    fill.cell[item] = cell if sign > 0 else -1
    fill.tokens[cell] += sign * rect.tokens[item]
    fill.samples[cell] += sign * rect.samples[item]
    fill.size[cell] += sign
    fill.slot_samples[cell % rect.slots] += sign * rect.samples[item]


@kernel
def keeps_rules(rect: Any, fill: Any, cell_of_item: Any) -> bool:
    """Tell whether a complete assignment keeps every rule and leaves no cell empty; `fill` starts empty."""
    for item in range(cell_of_item.size):
        cell = cell_of_item[item]
        if cell < 0 or cell >= fill.size.size or not fits(rect, fill, item, cell):
            return False
        put(rect, fill, item, cell, 1)
    return lowest(fill.size) > 0


@kernel
def lowest(values: Any) -> int:
    """Return the least value."""
    least = values[0]
    for value in values:
        least = min(least, value)
    return int(least)


@kernel
def below(word: Any, limit: int) -> int:
    """Map 64 random bits to a whole number in [0, limit), limit < 2^31."""
    return int(((word >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))
