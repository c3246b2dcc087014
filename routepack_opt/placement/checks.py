"""Validation of per-layer maps, with messages that name the position of the first fault.

Guarantees: what :func:`as_table` returns is an int64 [layers, experts] array whose every row is a
permutation of 0 .. experts - 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, whole_number, whole_numbers
from routepack_opt.errors import InputError


def check_ranks(ranks: Any, experts: int) -> int:
    """Return `ranks` as an int that divides `experts`, or raise."""
    number = whole_number(ranks, "ranks", low=1)
    if experts % number:
        raise InputError(
            "a number of experts divisible by the number of ranks",
            f"{experts} experts over {number} ranks ({experts % number} left over)",
            "ranks",
            "Choose an expert-parallel size that divides the number of experts",
        )
    return number


def as_table(values: Any, where: str, position: str, value: str) -> IntArray:
    """Return `values` as int64 [layers, experts] with a permutation in every row.

    Parameters
    ----------
    values : array_like of int, shape [layers, experts]
    where : str
        Name of the map in messages.
    position, value : str
        What the second axis and the entries are called in messages, such as ``"slot"`` and ``"expert"``.

    Raises
    ------
    InputError
        Names the first layer and position whose entry is out of range or repeated, and what is missing.
    """
    table: IntArray = whole_numbers(values, where, shape=(None, None), low=-(2**62))
    layers, size = table.shape
    bad = (table < 0) | (table >= size)
    if bad.any():
        layer, index = (int(k) for k in np.argwhere(bad)[0])
        found = f"{value} {int(table[layer, index])} at layer {layer}, {position} {index}"
        raise InputError(f"{value}s 0..{size - 1}", found, where)
    seen = np.zeros((layers, size), dtype=np.int64)
    np.add.at(seen, (np.arange(layers)[:, None], table), 1)
    if (seen != 1).any():
        layer = int(np.argwhere(seen != 1)[0, 0])
        found = _describe(table[layer], seen[layer], layer, position, value)
        raise InputError(f"every {value} once per layer", found, where)
    return table


def _describe(row: IntArray, seen: IntArray, layer: int, position: str, value: str) -> str:
    # The first repeat in reading order, which is where a reader of the file looks.
    first = next(k for k in range(row.size) if (row[:k] == row[k]).any())
    places = ", ".join(map(str, np.flatnonzero(row == row[first]).tolist()))
    missing = int(np.flatnonzero(seen == 0)[0])
    return f"{value} {int(row[first])} at {position}s {places} of layer {layer}, {value} {missing} missing"
