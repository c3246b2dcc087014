"""The casting border: what callers give becomes plain int64 or int32 arrays exactly once.

Guarantees: every array that leaves this module is C-contiguous, read-only and holds whole numbers inside the
stated range; nothing is rounded, wrapped or truncated silently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def whole_numbers(
    value: Any,
    where: str,
    *,
    shape: tuple[int | None, ...],
    low: int = 0,
    high: int = 2**62,
    dtype: type[np.signedinteger[Any]] = np.int64,
) -> npt.NDArray[Any]:
    """Turn `value` into a read-only integer array, or say which entry prevents it.

    Parameters
    ----------
    value : array_like
        Integers, or floats that are whole.
    where : str
        Name used in messages.
    shape : tuple of int or None
        Expected shape; ``None`` leaves an axis free.
    low, high : int
        Inclusive range of the entries.
    dtype : type
        Integer type of the result; entries that do not fit are an error.

    Returns
    -------
    numpy.ndarray
        Read-only, C-contiguous.

    Raises
    ------
    InputError
        On another shape, a non-numeric type, NaN, a fraction or an entry out of range.
    """
    try:
        array = np.asarray(value)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError(f"a {len(shape)}-dimensional array of whole numbers", str(error), where) from error
    if array.ndim != len(shape) or any(
        n is not None and n != m for n, m in zip(shape, array.shape, strict=True)
    ):
        wanted = str(tuple("any" if n is None else n for n in shape)).replace("'", "")
        raise InputError(f"shape {wanted}", f"shape {array.shape}", where)
    if array.size == 0:
        return frozen(np.zeros(array.shape, dtype))
    if array.dtype.kind not in "iuf":
        raise InputError("whole numbers", f"values of type {array.dtype}", where)
    if array.dtype.kind == "f":
        _first_bad(~np.isfinite(array), array, where, "finite whole numbers")
        _first_bad(
            array != np.rint(array),
            array,
            where,
            "whole numbers",
            "Round them yourself: nothing is rounded here",
        )
    high = min(high, int(np.iinfo(dtype).max))
    if int(array.min()) < low or int(array.max()) > high:
        _first_bad((array < low) | (array > high), array, where, f"whole numbers from {low} to {high}")
    result = np.ascontiguousarray(array, dtype=dtype)
    return frozen(result.copy() if result is array or result.base is not None else result)


def _first_bad(
    bad: npt.NDArray[Any], array: npt.NDArray[Any], where: str, expected: str, remedy: str | None = None
) -> None:
    if not bad.any():
        return
    index = tuple(int(k) for k in np.argwhere(bad)[0])
    raise InputError(
        expected, f"{array[index]} at index {index if len(index) > 1 else index[0]}", where, remedy
    )


def whole_number(value: Any, where: str, *, low: int = 0, high: int = 2**62) -> int:
    """Turn `value` into an int from `low` to `high` (booleans are refused).

    Raises
    ------
    InputError
        When it is not a whole number or is out of range.
    """
    plain = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not plain or not low <= int(value) <= high:
        limit = f"from {low} to {high}" if high < 2**62 else f"of at least {low}"
        raise InputError(f"a whole number {limit}", repr(value), where)
    return int(value)


def nested(value: Any, where: str, expected: str) -> list[list[Any]]:
    """Turn a sequence of sequences into lists, or say which entry is none.

    Raises
    ------
    InputError
        With `expected` and the first entry that cannot be iterated, or is a string.
    """
    return [
        _listed(part, where, expected, f" at index {k}")
        for k, part in enumerate(_listed(value, where, expected))
    ]


def _listed(value: Any, where: str, expected: str, place: str = "") -> list[Any]:
    try:
        if not isinstance(value, (str, bytes)):
            return list(value)
    except TypeError:
        pass
    raise InputError(expected, f"{value!r}{place}", where)


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Make `array` read-only and return it."""
    array.setflags(write=False)
    return array


def digest(parts: Iterable[str | npt.NDArray[Any]]) -> str:
    """SHA-256 over texts and arrays with their types and shapes, as 64 hexadecimal digits.

    Arrays are hashed in little-endian order, so the digest is the same on every host.
    """
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            sha.update(f"str:{len(part)}:{part};".encode())
            continue
        little = np.ascontiguousarray(part, dtype=part.dtype.newbyteorder("<"))
        sha.update(f"array:{little.dtype.str}:{little.shape};".encode())
        sha.update(little.data if little.size else b"")
    return sha.hexdigest()
