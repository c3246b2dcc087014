"""Samples back to back in one array, and plain per-sample arrays.

Guarantees: rows ``offsets[i]:offsets[i+1]`` go to sample i and to no other; lengths come from the source or
from the caller, who must agree where both speak.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.arrays import whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.replay.options import Options
from routepack_opt.replay.routes import Routes, row_stream


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
    stream = row_stream(source["routed_experts"], "routed_experts")
    offsets = whole_numbers(source["offsets"], "offsets", shape=(None,), high=stream.shape[0])
    _check_bounds(offsets, stream.shape[0])
    lengths = _per_sample(source, "lengths", offsets.size - 1, 1)
    groups = _per_sample(source, "groups", offsets.size - 1, -(2**62))
    for i, rows in enumerate(np.diff(offsets).tolist()):
        length = options.length(i, None if lengths is None else int(lengths[i]))
        prompt = None if groups is None else int(groups[i])
        yield Routes(stream.take(rows), length, prompt=prompt, where=f"sample {i}")
    stream.finish()


def _per_sample(source: Mapping[str, Any], name: str, size: int, low: int) -> NDArray[np.int64] | None:
    if source.get(name) is None:
        return None
    return whole_numbers(source[name], name, shape=(size,), low=low)


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
