"""Samples back to back in one array, and plain per-sample arrays.

Guarantees: rows ``offsets[i]:offsets[i+1]`` go to sample i and to no other; lengths come from the source or
from the caller, who must agree where both speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import InputError
from routepack_opt.replay.npzfiles import Npz
from routepack_opt.replay.options import Options
from routepack_opt.replay.routes import Routes, integer_array

FIELDS = frozenset({"lengths", "offsets", "routed_experts"})


def vector(values: Any, name: str, size: int | None = None) -> NDArray[np.int64]:
    """Return a 1-D integer field as int64."""
    array = integer_array(values, name)
    if array.ndim != 1 or (size is not None and array.size != size):
        wanted = "one axis" if size is None else f"{size} entries"
        raise InputError(wanted, f"shape {array.shape}", name)
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError("values below 2^63", f"{array.max()}", name)
    return array.astype(np.int64)


def _bounds(offsets: NDArray[np.int64], samples: int, rows: int) -> None:
    if offsets.size != samples + 1 or offsets[0] != 0 or offsets[-1] != rows:
        found = f"{offsets.size} of them" + (f", {offsets[0]}..{offsets[-1]}" if offsets.size else "")
        raise InputError(f"{samples + 1} offsets 0..{rows}", found, "offsets")
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if falls.size:
        i = int(falls[0])
        raise InputError("ascending offsets", f"{offsets[i]} then {offsets[i + 1]}, index {i}", "offsets")


def read_packed_file(path: Path, options: Options) -> Iterator[Routes]:
    """Yield the samples of a packed ``.npz`` file, of which one is in memory at a time."""
    with Npz(path) as file:
        lengths = vector(file.array("lengths"), "lengths")
        offsets = vector(file.array("offsets"), "offsets")
        groups = vector(file.array("groups"), "groups", lengths.size) if "groups" in file.names else None
        stream = file.stream("routed_experts")
        if not stream.shape:
            raise InputError("[rows, layers, top-k]", "a scalar", "routed_experts")
        _bounds(offsets, lengths.size, stream.shape[0])
        for i, rows in enumerate(np.diff(offsets).tolist()):
            prompt = None if groups is None else int(groups[i])
            yield Routes(
                stream.take(rows), options.length(i, int(lengths[i])), prompt=prompt, where=f"sample {i}"
            )
        stream.finish()


def read_packed(source: Mapping[str, Any], options: Options) -> Iterator[Routes]:
    """Yield the samples of a mapping with the fields of a packed file."""
    lengths = vector(source["lengths"], "lengths")
    offsets = vector(source["offsets"], "offsets")
    groups = vector(source["groups"], "groups", lengths.size) if source.get("groups") is not None else None
    ids = integer_array(source["routed_experts"], "routed_experts")
    if not ids.ndim:
        raise InputError("[rows, layers, top-k]", "a scalar", "routed_experts")
    _bounds(offsets, lengths.size, ids.shape[0])
    for i in range(lengths.size):
        prompt = None if groups is None else int(groups[i])
        rows = ids[offsets[i] : offsets[i + 1]]
        yield Routes(rows, options.length(i, int(lengths[i])), prompt=prompt, where=f"sample {i}")


def read_arrays(source: Iterable[Any], options: Options) -> Iterator[Routes]:
    """Yield per-sample arrays ([rows, layers, K], [rows, layers * K] or flat; ``None`` for a lost one)."""
    for i, ids in enumerate(source):
        yield Routes(ids, options.length(i), where=f"sample {i}")
