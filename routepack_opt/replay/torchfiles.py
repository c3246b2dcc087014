"""``torch.save`` files read without torch: tensors, numpy arrays and plain values, nothing else.

Guarantees: no name in the file is imported or called; names that build tensors and arrays lead to the
stand-ins here, any other name is refused with the name; sizes are checked before bytes are read; a tensor's
bytes are read when it is used, not when the file is opened.
"""

from __future__ import annotations

import math
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import FormatError
from routepack_opt.replay.npzfiles import damage

_STORAGES = {
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "BoolStorage": "bool",
    "HalfStorage": "float16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "BFloat16Storage": "uint16",  # bits only: numpy has no such type, and routes are never of it
    "UntypedStorage": "uint8",
}
_FLOATS = ("float16", "float32", "float64")
_DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64", "bool", "bfloat16", *_FLOATS)
_LIMIT = 1 << 28  # bytes of the pickle itself: structure, not tensors


def _ordered(name: str, big: bool) -> np.dtype[Any]:
    return np.dtype(name).newbyteorder(">" if big else "<")


@dataclass(frozen=True)
class _Storage:
    file: TorchFile
    key: str
    dtype: np.dtype[Any]
    size: int


class Tensor:
    """A strided view of a storage in the file, read when asked for as an array."""

    def __init__(
        self, storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self._storage, self._offset, self.shape, self._strides = storage, offset, shape, strides
        self.dtype = storage.dtype
        self.ndim = len(shape)
        sizes_known = all(isinstance(n, int) and n >= 0 for n in (offset, *shape, *strides))
        if not sizes_known or len(shape) != len(strides):
            raise ValueError(f"tensor of shape {shape}, strides {strides}, offset {offset}")
        self._extent = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
        if offset + self._extent > storage.size:
            raise ValueError(f"tensor of shape {shape} beyond its storage of {storage.size}")
        # Overlapping views would make a small file stand for a huge array.
        if math.prod(shape) > self._extent:
            raise ValueError(f"tensor of shape {shape} that repeats its storage")

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Read the tensor."""
        item = self.dtype.itemsize
        data = self._storage.file.read(self._storage.key, self._offset * item, self._extent * item)
        strides = tuple(s * item for s in self._strides)
        array: NDArray[Any] = np.ndarray(self.shape, self.dtype, data, 0, strides)
        return array if dtype is None else array.astype(dtype)


class TorchFile:
    """An open ``torch.save`` archive; `value` is what was saved."""

    def __init__(self, path: Path) -> None:
        self._where = str(path)
        self._verified: set[str] = set()
        with damage(self._where, "a torch.save archive (the zip format)"):
            self._zip = zipfile.ZipFile(path)
            pickles = [name for name in self._zip.namelist() if name.rpartition("/")[2] == "data.pkl"]
            if len(pickles) != 1:
                raise ValueError(f"{len(pickles)} members data.pkl")
            self._root = pickles[0].removesuffix("data.pkl")
            self.big = self._byteorder() == b"big"
            if self._zip.getinfo(pickles[0]).file_size > _LIMIT:
                raise ValueError(f"a pickle of over {_LIMIT} bytes")
            data = self._zip.read(pickles[0])
        self.value = self._load(data)

    def _byteorder(self) -> bytes:
        name = f"{self._root}byteorder"
        return self._zip.read(name).strip() if name in self._zip.namelist() else b"little"

    def _load(self, data: bytes) -> Any:
        try:
            return _Unpickler(self, data).load()
        except FormatError:
            raise
        except Exception as error:  # a broken pickle can raise anything
            found = f"{type(error).__name__}: {error}"
            raise FormatError("a pickle of tensors, arrays and plain values", found, self._where) from error

    def read(self, key: str, first: int, size: int) -> bytes:
        """Return bytes of a storage."""
        with damage(f"{self._where}, storage {key}", f"{size} bytes"):
            self._verify(key)
            with self._zip.open(f"{self._root}data/{key}") as member:
                member.seek(first)
                data = member.read(size)
            if len(data) != size:
                raise EOFError(f"{len(data)} bytes")
        return data

    def _verify(self, key: str) -> None:
        """Read a storage through once: its checksum is compared at its end, and seeking skips that."""
        if key in self._verified:
            return
        with self._zip.open(f"{self._root}data/{key}") as member:
            while member.read(1 << 20):
                pass
        self._verified.add(key)

    def storage(self, parts: Any) -> _Storage:
        """Return the storage that a persistent id names."""
        kind, dtype, key, _, size = parts
        if kind != "storage" or not isinstance(dtype, _Named) or not isinstance(key, str):
            raise ValueError(f"persistent id {kind!r}")
        plain = _ordered(dtype.dtype, self.big)
        held = self._zip.getinfo(f"{self._root}data/{key}").file_size
        count = size if dtype.name != "UntypedStorage" else held
        if not isinstance(size, int) or count * plain.itemsize > held:
            raise ValueError(f"storage {key} of {size} entries in {held} bytes")
        return _Storage(self, key, plain, count)

    @property
    def where(self) -> str:
        """Path for messages."""
        return self._where


@dataclass(frozen=True)
class _Named:
    """A storage class or dtype of torch, by name."""

    name: str
    dtype: str


class _Unpickler(pickle._Unpickler):
    """The unpickler in Python: the compiled one reserves memory for whatever memo index a file names."""

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)
    del dispatch[pickle.BYTEARRAY8[0]]  # reserves the size that it names; such files hold none

    def __init__(self, file: TorchFile, data: bytes) -> None:
        super().__init__(BytesIO(data))
        self._file = file

    def persistent_load(self, pid: Any) -> Any:
        """Return the storage that the pickle names."""
        return self._file.storage(pid)

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in of a name, or refuse it."""
        known = _KNOWN.get((module, name))
        if known is not None:
            return known
        if module in ("torch", "torch.storage") and name in _STORAGES:
            return _Named(name, _STORAGES[name])
        if module == "torch" and name in _DTYPES:
            return _Named(name, name)
        remedy = "Only tensors, numpy arrays and plain values are read: save dictionaries of those"
        raise FormatError("tensors, arrays and plain values", f"{module}.{name}", self._file.where, remedy)

    def load_build(self) -> None:
        """Set the state of arrays and dtypes; nothing else has one that matters, and none may be changed."""
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, _Array | _DType):
            target.__setstate__(state)
        elif not isinstance(target, OrderedDict):
            raise ValueError(f"a state for {type(target).__name__}")

    dispatch[pickle.BUILD[0]] = load_build


def _tensor_v2(storage: _Storage, offset: int, shape: Any, strides: Any, *_: Any) -> Tensor:
    return Tensor(storage, offset, tuple(shape), tuple(strides))


def _tensor_v3(
    storage: _Storage, offset: int, shape: Any, strides: Any, _grad: Any, _hooks: Any, dtype: _Named, *_: Any
) -> Tensor:
    plain = _ordered(dtype.dtype, storage.file.big)
    held = _Storage(storage.file, storage.key, plain, storage.size * storage.dtype.itemsize // plain.itemsize)
    return Tensor(held, offset, tuple(shape), tuple(strides))


class _DType:
    """Stand-in for ``numpy.dtype`` while it is unpickled: plain numbers only."""

    def __init__(self, name: Any, *_: Any) -> None:
        self._name, self._big = str(name), False

    def __setstate__(self, state: Any) -> None:
        self._big = state[1] == ">"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype itself."""
        if np.dtype(self._name).kind not in "iufb":
            raise ValueError(f"numpy dtype {self._name!r}")
        return _ordered(self._name, self._big)


class _Array:
    """Stand-in for ``numpy.ndarray`` while it is unpickled."""

    def __init__(self, *_: Any) -> None:
        self._values: NDArray[Any] = np.zeros(0, np.int64)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        flat = np.frombuffer(_latin(data), dtype.dtype)
        self._values = flat.reshape(shape, order="F" if fortran else "C")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._values if dtype is None else self._values.astype(dtype)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def ndim(self) -> int:
        return self._values.ndim


def _latin(data: Any, encoding: str = "latin1") -> bytes:
    if encoding != "latin1":
        raise ValueError(f"encoding {encoding!r}")
    return data.encode("latin1") if isinstance(data, str) else bytes(data)


def _scalar(dtype: _DType, data: Any) -> Any:
    return np.frombuffer(_latin(data), dtype.dtype)[0].item()


_KNOWN: dict[tuple[str, str], Callable[..., Any]] = {
    ("collections", "OrderedDict"): OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch", "Size"): tuple,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _DType,
    ("_codecs", "encode"): _latin,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
}
