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

from routepack_opt.arrays import whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.replay.npzfiles import Npz
from routepack_opt.replay.options import Options
from routepack_opt.replay.routes import Routes, integer_array


def read_packed_file(path: Path, options: Options) -> Iterator[Routes]:
    """Yield the samples of a packed ``.npz`` file, of which one is in memory at a time."""
    with Npz(path) as file:
        small: dict[str, Any] = {
            name: file.array(name) for name in ("lengths", "offsets", "groups") if name in file.names
        }
        stream = file.stream("routed_experts")
        yield from _samples(small, stream.shape, lambda first, end: stream.take(end - first), options)
        stream.finish()


def read_packed(source: Mapping[str, Any], options: Options) -> Iterator[Routes]:
    """Yield the samples of a mapping with the fields of a packed file.

    Parameters
    ----------
    source : mapping
        ``routed_experts`` [rows, layers, K] or [rows, layers * K], ``offsets`` [N + 1], ``lengths`` [N] (or
        the caller's), perhaps ``groups`` [N], the prompt of each sample.
    options : Options
        Model and lengths.
    """
    ids = integer_array(source["routed_experts"], "routed_experts")
    yield from _samples(source, ids.shape, lambda first, end: ids[first:end], options)


def _samples(
    source: Mapping[str, Any], shape: tuple[int, ...], rows: Any, options: Options
) -> Iterator[Routes]:
    if not shape:
        raise InputError("[rows, layers, top-k]", "a scalar", "routed_experts")
    offsets = whole_numbers(source["offsets"], "offsets", shape=(None,), high=shape[0])
    size = max(offsets.size - 1, 0)
    _check_bounds(offsets, shape[0])
    stated = None
    if source.get("lengths") is not None:
        stated = whole_numbers(source["lengths"], "lengths", shape=(size,), low=1)
    groups = None
    if source.get("groups") is not None:
        groups = whole_numbers(source["groups"], "groups", shape=(size,), low=-(2**62))
    for i in range(size):
        length = options.length(i, None if stated is None else int(stated[i]))
        prompt = None if groups is None else int(groups[i])
        yield Routes(rows(int(offsets[i]), int(offsets[i + 1])), length, prompt=prompt, where=f"sample {i}")


def _check_bounds(offsets: NDArray[np.int64], rows: int) -> None:
    if offsets.size < 2 or offsets[0] != 0 or offsets[-1] != rows:
        raise InputError(f"offsets from 0 to {rows} rows", f"{offsets[:1]}..{offsets[-1:]}", "offsets")
    falls = np.flatnonzero(np.diff(offsets) < 0)
    if falls.size:
        i = int(falls[0])
        raise InputError("ascending offsets", f"{offsets[i]} then {offsets[i + 1]} at index {i}", "offsets")


def read_arrays(source: Iterable[Any], options: Options) -> Iterator[Routes]:
    """Yield per-sample arrays ([rows, layers, K], [rows, layers * K] or flat; ``None`` for a lost one)."""
    for i, ids in enumerate(source):
        yield Routes(ids, options.length(i), where=f"sample {i}")
