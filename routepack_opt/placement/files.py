"""Placement files of other systems by kind, for the command line and for scripts.

Guarantees: what :func:`write_map` wrote, :func:`read_map` of the same kind reads back as an equal placement.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from routepack_opt.errors import FormatError, InputError
from routepack_opt.model import MoEModel
from routepack_opt.placement import formats
from routepack_opt.placement.maps import Placement

#: EPLB phy2log, SGLang expert location, vllm-ascend expert map, TensorRT-LLM, Megatron slot order.
KINDS = ("eplb", "sglang", "ascend", "trtllm", "megatron")


def read_map(
    path: str | Path, kind: str, ranks: int | None = None, model: MoEModel | None = None
) -> Placement:
    """Read a placement file.

    Parameters
    ----------
    path : str or Path
        ``.json`` or ``.npy`` for ``eplb`` and ``megatron``, JSON for ``sglang`` and ``ascend``, YAML for
        ``trtllm``.
    kind : str
        One of :data:`KINDS`.
    ranks : int, optional
        Expert-parallel ranks; needed for the kinds that do not hold them (eplb, sglang, trtllm).
    model : MoEModel, optional
        Picks the MoE layers out of a map with a row for every decoder layer (sglang).

    Raises
    ------
    InputError
        Unknown kind, no `ranks` where they are needed, or a map that is no placement.
    """
    _check_kind(kind)
    file = Path(path)
    if kind == "ascend":
        placement = formats.from_ascend(file)
    elif kind == "megatron":
        placement = formats.from_rank_lists(_array(file))
    elif ranks is None:
        raise InputError(
            "the number of expert-parallel ranks", "none", "ranks", f"A {kind} map does not hold it"
        )
    elif kind == "eplb":
        placement = formats.from_phy2log(_array(file), ranks)
    elif kind == "sglang":
        placement = formats.from_sglang(file, ranks, model)
    else:
        placement = formats.from_trtllm(file, ranks)
    if ranks is not None and placement.ranks != ranks:
        raise InputError(f"{ranks} ranks", f"{placement.ranks}", str(path))
    return placement


def write_map(placement: Placement, path: str | Path, kind: str, model: MoEModel | None = None) -> None:
    """Write a placement file of `kind`; `model` numbers the layers as decoder layers (sglang, trtllm)."""
    _check_kind(kind)
    file = Path(path)
    if kind == "trtllm":
        file.write_text(formats.to_trtllm(placement, model), encoding="utf-8")
        return
    if kind in ("eplb", "megatron"):
        table = formats.to_phy2log(placement)[0] if kind == "eplb" else formats.to_rank_lists(placement)
        if file.suffix == ".npy":
            np.save(file, table, allow_pickle=False)
            return
        data: Any = table.tolist()
    else:
        data = formats.to_ascend(placement) if kind == "ascend" else formats.to_sglang(placement, model)
    file.write_text(json.dumps(data), encoding="utf-8")


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise InputError(f"one of {', '.join(KINDS)}", repr(kind), "kind")


def _array(path: Path) -> Any:
    try:
        if path.suffix == ".npy":
            return np.load(path, allow_pickle=False)
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, EOFError) as error:
        raise FormatError("an array in .npy or JSON", str(error), str(path)) from error
