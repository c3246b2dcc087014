"""``.npz`` files read without pickling, the large member as a stream.

Guarantees: nothing is unpickled; a file that is truncated, damaged or of another kind is a
:class:`~routepack_opt.errors.FormatError`; a member is read in order in pieces, whether compressed or not,
and its checksum is verified when the last piece has been taken.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import FormatError


@contextmanager
def damage(where: str, expected: str) -> Iterator[None]:
    """Turn whatever a broken file makes numpy and zipfile raise into a :class:`FormatError`."""
    try:
        yield
    except FormatError:
        raise
    except FileNotFoundError:
        raise FormatError("a file", "none by that name", where) from None
    except Exception as error:  # parsers of damaged bytes raise anything, down to tokenize's own errors
        raise FormatError(
            expected, f"{type(error).__name__}: {error}", where, "Truncated or damaged?"
        ) from error


@dataclass
class Stream:
    """An array whose rows are taken in order: `shape` and `dtype` first, then pieces."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    file: IO[bytes]
    where: str

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def take(self, rows: int) -> NDArray[Any]:
        """Return the next `rows` rows."""
        shape = (rows, *self.shape[1:])
        size = math.prod(shape) * self.dtype.itemsize
        with damage(self.where, f"{size} more bytes"):
            data = self.file.read(size)
            if len(data) != size:
                raise EOFError(f"{len(data)} bytes")
        return np.frombuffer(data, self.dtype).reshape(shape)

    def finish(self) -> None:
        """Check that nothing is left, and the checksum with it."""
        with damage(self.where, "the end of the array"):
            if self.file.read(1):
                raise ValueError("bytes after the last row")


class ArrayStream:
    """An array in memory, to be taken in order like a :class:`Stream`."""

    def __init__(self, array: NDArray[Any]) -> None:
        self.shape, self._array, self._next = array.shape, array, 0

    def take(self, rows: int) -> NDArray[Any]:
        """Return the next `rows` rows."""
        first, self._next = self._next, self._next + rows
        return self._array[first : self._next]

    def finish(self) -> None:
        """Do nothing: memory has no checksum."""


class Npz:
    """An open ``.npz`` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with damage(str(path), "an .npz file"):
            self._zip = zipfile.ZipFile(path)

    def __enter__(self) -> Npz:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def names(self) -> set[str]:
        """Names of the arrays."""
        return {name.removesuffix(".npy") for name in self._zip.namelist() if name.endswith(".npy")}

    def array(self, name: str) -> NDArray[Any]:
        """Return a whole array."""
        stream = self.stream(name)
        array = stream.take(stream.shape[0]) if stream.shape else stream.take(1)[0]
        stream.finish()
        return array

    def stream(self, name: str) -> Stream:
        """Open an array to be read in pieces."""
        where = f"{self.path}, {name}"
        with damage(where, "an array"):
            info = self._zip.getinfo(f"{name}.npy")
            file = self._zip.open(info)
            shape, dtype = _header(file)
            size = math.prod(shape) * dtype.itemsize
            if info.file_size != file.tell() + size:
                raise ValueError(f"{info.file_size} bytes for shape {shape} of {dtype}")
        return Stream(shape, dtype, file, where)


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f".npy version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    if dtype.hasobject:
        raise ValueError("an array of objects, which would need unpickling")
    if fortran and len(shape) > 1:
        raise ValueError("an array in Fortran order")
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape}")
    return shape, dtype
