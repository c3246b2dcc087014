"""One routes value as it travels: strings, envelopes, bytes, nested lists -> an integer array.

Guarantees: a dtype or shape is taken from the value or from its form, never guessed; sizes must agree to the
byte; nothing is unpickled.
"""

from __future__ import annotations

import base64
import binascii
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import InputError
from routepack_opt.replay.npzfiles import damage
from routepack_opt.replay.routes import integer_array

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")
NPY_MAGIC = b"\x93NUMPY"
NPY_BASE64 = "k05VTVBZ"  # base64 of NPY_MAGIC and two zero bits
ENVELOPE = "nrlre1:"


@dataclass(frozen=True)
class Decoded:
    """An array, or ``None`` where the system sent none, and the start that its envelope states."""

    ids: NDArray[Any] | None
    start: int | None = None


def decode(value: Any, where: str, *, dtype: str | None = None, envelope_dtype: str = "uint8") -> Decoded:
    """Decode one routes value.

    Parameters
    ----------
    value : None, array, str, bytes, mapping or nested lists
        A base64 or ``.npy`` string, an ``nrlre1:`` string, a mapping with ``data`` and ``shape``, or ids.
    where : str
        Name for messages.
    dtype : str, optional
        Dtype of raw bytes without header, where the form defines one.
    envelope_dtype : str
        Dtype of a mapping that states none.

    Raises
    ------
    InputError
        The value is none of these, or its parts disagree.
    """
    if value is None:
        return Decoded(None)
    if isinstance(value, str) and value.startswith(ENVELOPE):
        return Decoded(_tagged(value, where))
    if isinstance(value, str | bytes | bytearray | memoryview):
        return Decoded(_plain(value, where, dtype))
    if isinstance(value, Mapping):
        return _mapping(value, where, envelope_dtype)
    return Decoded(integer_array(value, where))


def named_dtype(name: Any, where: str) -> np.dtype[Any]:
    """Return the little-endian dtype of a name in :data:`DTYPES`."""
    text = str(name).removeprefix("torch.").removeprefix("<")
    text = {"u1": "uint8", "i1": "int8", "u2": "uint16", "i2": "int16", "i4": "int32", "i8": "int64"}.get(
        text, text
    )
    if text not in DTYPES:
        raise InputError(f"one of {', '.join(DTYPES)}", f"dtype {name!r}", where)
    return np.dtype(text).newbyteorder("<")


def from_bytes(data: bytes, dtype: np.dtype[Any], shape: tuple[int, ...] | None, where: str) -> NDArray[Any]:
    """Return bytes as an array of a dtype, and of a shape when there is one."""
    size = dtype.itemsize * (math.prod(shape) if shape is not None else 1)
    if (len(data) != size) if shape is not None else len(data) % size:
        wanted = f"{size} bytes for shape {shape}" if shape is not None else f"a multiple of {size} bytes"
        raise InputError(f"{wanted} of {dtype.name}", f"{len(data)} bytes", where)
    array = np.frombuffer(data, dtype)
    return array if shape is None else array.reshape(shape)


def unbase64(text: str | bytes, where: str) -> bytes:
    """Decode strict base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError("base64", f"{error}", where) from None


def _plain(value: Any, where: str, dtype: str | None) -> NDArray[Any]:
    data = unbase64(value, where) if isinstance(value, str) else bytes(value)
    if data.startswith(NPY_MAGIC):
        with damage(where, "a .npy array"):
            stream = BytesIO(data)
            array = np.load(stream, allow_pickle=False)
            if stream.read(1):
                raise ValueError("bytes after the array")
        return integer_array(array, where)
    if dtype is None:
        remedy = 'If these are raw int32 ids, pass form="sglang"; otherwise send {data, shape, dtype}'
        raise InputError("a value that states its dtype", "raw base64 without header", where, remedy)
    return from_bytes(data, named_dtype(dtype, where), None, where)


def _tagged(value: str, where: str) -> NDArray[Any]:
    parts = value.removeprefix(ENVELOPE).split(":")
    if len(parts) != 3:
        raise InputError("nrlre1:<dtype>:<S>x<L>x<K>:<base64>", f"{len(parts) + 1} fields", where)
    name, sizes, text = parts
    return from_bytes(unbase64(text, where), named_dtype(name, where), _shape(sizes.split("x"), where), where)


def _shape(sizes: Any, where: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(size) if isinstance(size, str) else operator.index(size) for size in sizes)
    except (TypeError, ValueError):
        shape = ()
    if len(shape) not in (1, 2, 3) or min(shape) < 0:
        raise InputError("a shape of 1 to 3 sizes", f"{sizes!r}", where)
    return shape


def _mapping(value: Mapping[str, Any], where: str, default: str) -> Decoded:
    missing = [name for name in ("data", "shape") if name not in value]
    if missing:
        raise InputError("an envelope with data and shape", f"{sorted(value)}, no {missing[0]}", where)
    dtype = named_dtype(value.get("dtype") or default, where)
    shape, data = _shape(value["shape"], where), value["data"]
    if isinstance(data, str):
        data = _text(data, math.prod(shape) * dtype.itemsize, where)
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InputError("data as base64 or bytes", type(data).__name__, where)
    start = value.get("start")
    return Decoded(
        from_bytes(bytes(data), dtype, shape, where), None if start is None else _start(start, where)
    )


def _start(value: Any, where: str) -> int:
    try:
        start = operator.index(value)
    except TypeError:
        start = -1
    if start < 0:
        raise InputError("a start offset of 0 or more", f"{value!r}", f"{where}, start")
    return start


def _text(text: str, size: int, where: str) -> bytes:
    """Decode base64, or base85 where the length says so (older builds): the stated size tells them apart."""
    if len(text) == -(-size // 3) * 4:
        return unbase64(text, where)
    if len(text) == size + -(-size // 4):
        try:
            return base64.b85decode(text)
        except ValueError as error:
            raise InputError("base64 or base85", f"{error}", where) from None
    raise InputError(f"the base64 of {size} bytes", f"{len(text)} characters", where)
