"""Validation of per-layer maps, with messages that name the position of the first fault.

Guarantees: what :func:`as_table` returns is an int64 [layers, experts] array whose every row is a
permutation of 0 .. experts - 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError

Int64 = npt.NDArray[np.int64]


def as_integers(values: Any, where: str, ndim: int = 2) -> Int64:
    """Return `values` as an int64 array of `ndim` axes, refusing floats, ragged lists and strings."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise InputError(
            f"an integer array with {ndim} axes", f"a ragged sequence ({error})", where
        ) from error
    if array.ndim != ndim:
        raise InputError(f"an integer array with {ndim} axes", f"shape {array.shape}", where)
    if array.size and array.dtype.kind not in "iu":
        raise InputError("integers", f"dtype {array.dtype}", where)
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError("integers below 2**63", f"{int(array.max())}", where)
    return array.astype(np.int64)


def check_ranks(ranks: Any, experts: int) -> int:
    """Return `ranks` as an int that divides `experts`, or raise."""
    if isinstance(ranks, bool) or not isinstance(ranks, (int, np.integer)) or ranks < 1:
        raise InputError("at least one rank, a whole number", repr(ranks), "ranks")
    if experts % ranks:
        raise InputError(
            "a number of experts divisible by the number of ranks",
            f"{experts} experts over {ranks} ranks ({experts % ranks} left over)",
            "ranks",
            "Choose an expert-parallel size that divides the number of experts",
        )
    return int(ranks)


def as_table(values: Any, where: str, position: str, value: str) -> Int64:
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
    table = as_integers(values, where)
    layers, size = table.shape
    bad = (table < 0) | (table >= size)
    if bad.any():
        layer, index = (int(k) for k in np.argwhere(bad)[0])
        raise InputError(
            f"{value}s 0..{size - 1}",
            f"{value} {int(table[layer, index])} at layer {layer}, {position} {index}",
            where,
        )
    seen = np.zeros((layers, size), dtype=np.int64)
    np.add.at(seen, (np.arange(layers)[:, None], table), 1)
    if (seen != 1).any():
        layer = int(np.argwhere(seen != 1)[0, 0])
        raise InputError(
            f"every {value} once per layer",
            _describe(table[layer], seen[layer], layer, position, value),
            where,
        )
    return table


def _describe(row: Int64, seen: Int64, layer: int, position: str, value: str) -> str:
    # The first repeat in reading order, which is where a reader of the file looks.
    first = next(k for k in range(row.size) if (row[:k] == row[k]).any())
    places = np.flatnonzero(row == row[first])
    missing = np.flatnonzero(seen == 0)
    return (
        f"{value} {int(row[first])} at {position}s {', '.join(map(str, places.tolist()))} of layer {layer}, "
        f"and {value} {int(missing[0])} missing"
    )
