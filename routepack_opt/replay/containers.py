"""Files -> what a system would hand over in memory: mappings, arrays, streams of records.

Guarantees: nothing is unpickled but the plain values that :mod:`routepack_opt.replay.torchfiles` allows;
JSON lines are read one at a time; a damaged file is a :class:`~routepack_opt.errors.FormatError` naming
file and line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from routepack_opt.errors import FormatError
from routepack_opt.replay.npzfiles import Npz, damage
from routepack_opt.replay.torchfiles import TorchFile

SUFFIXES = (".npz", ".npy", ".json", ".jsonl", ".pt")


def open_source(path: Path) -> Any:
    """Return the contents of a file by its suffix.

    Parameters
    ----------
    path : Path
        ``.npz`` (fields, or ``layer_0``, ``layer_1``, ... per layer), ``.npy`` (one array, mapped),
        ``.json`` (a record or a list of them), ``.jsonl`` (a record per line), ``.pt`` (``torch.save``).

    Returns
    -------
    mapping, array or iterator of records
    """
    if not path.is_file():
        raise FormatError("a file", "none by that name", str(path))
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _fields(path)
    if suffix == ".npy":
        with damage(str(path), "a .npy array"):
            return np.load(path, mmap_mode="r", allow_pickle=False)
    if suffix == ".json":
        with damage(str(path), "a JSON document"):
            return _parse(path.read_text(encoding="utf-8"))
    if suffix == ".jsonl":
        return _lines(path)
    if suffix == ".pt":
        return TorchFile(path).value
    raise FormatError(f"a file ending in {', '.join(SUFFIXES)}", f"{path.suffix or 'no suffix'}", str(path))


def _fields(path: Path) -> dict[str, Any]:
    with Npz(path) as file:  # an open member outlives the archive's handle
        names = sorted(file.names)
        fields: dict[str, Any] = {n: file.array(n) for n in names if n != "routed_experts"}
        if "routed_experts" in names:
            fields["routed_experts"] = file.stream("routed_experts")
    layers = sorted((name for name in fields if name.startswith("layer_")), key=_number)
    if layers and [_number(name) for name in layers] != list(range(len(layers))):
        raise FormatError("layer_0, layer_1, ... without gaps", ", ".join(layers), str(path))
    if layers:
        fields["layers"] = [fields.pop(name) for name in layers]
    return fields


def _number(name: str) -> int:
    digits = name.removeprefix("layer_")
    return int(digits) if digits.isdecimal() else -1


def _lines(path: Path) -> Iterator[Any]:
    with path.open(encoding="utf-8") as file:
        for number in count(1):
            with damage(f"{path}, line {number}", "a JSON record"):
                line = file.readline()
                if not line:
                    return
                record = _parse(line) if line.strip() else {}
            if not isinstance(record, dict):
                raise FormatError("a JSON object", f"{line.strip():.40}", f"{path}, line {number}")
            if record or line.strip():
                yield record


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
