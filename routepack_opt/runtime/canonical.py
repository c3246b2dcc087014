"""The canonical view: expert state by logical expert, whatever the placement.

Guarantees: no expert changes its slot for an export; each logical expert is seen exactly once per lane; a
view taken before a commit cannot be read on after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from routepack_opt.errors import InputError
from routepack_opt.runtime.adapters.dtensor import is_dtensor
from routepack_opt.runtime.adapters.plain import ExpertLayer
from routepack_opt.runtime.dispatch import LayerMap
from routepack_opt.runtime.materialize import Adapter, Groups
from routepack_opt.runtime.state import tensors_of

__all__ = [
    "ExpertPart",
    "canonical_state_dict",
    "expert_parts",
    "load_canonical",
    "load_safetensors",
    "save_safetensors",
]


@dataclass(frozen=True)
class ExpertPart:
    """What this rank holds of one tensor of one logical expert.

    Attributes
    ----------
    name : str
        Tensor, without its expert.
    layer, expert : int
        Row of the placement, logical expert.
    start, end : int
        Range inside the expert's flattened tensor.
    view : Tensor
        Live storage.
    """

    name: str
    layer: int
    expert: int
    start: int
    end: int
    view: Tensor


def expert_parts(adapter: Adapter, maps: Mapping[int, LayerMap], groups: Groups) -> Iterator[ExpertPart]:
    """Yield all expert state of this rank under its logical ids, for weight sync and export.

    Raises
    ------
    InputError
        When experts are moved while the view is being read.
    """
    _, _, rank, lane = groups.place()
    versions = {layer: maps[layer].version for layer in adapter.layers}
    for layer in adapter.layers:
        expert_of_slot = maps[layer].expert_of_slot.tolist()
        for tensor in adapter.tensors(layer):
            for slot, view in enumerate(tensor.views):
                if maps[layer].version != versions[layer]:
                    raise InputError(
                        "one placement during an export", "a commit in between", f"layer {layer}"
                    )
                if view is not None:
                    start, end = (int(x) for x in tensor.spec.held[lane, slot])
                    expert = expert_of_slot[rank * len(tensor.views) + slot]
                    yield ExpertPart(tensor.spec.name, layer, expert, start, end, view)


def canonical_state_dict(
    model: nn.Module,
    experts: Sequence[ExpertLayer],
    maps: Mapping[int, LayerMap],
    groups: Groups | None = None,
) -> dict[str, Tensor]:
    """Return the model's state dict with whole expert tensors in logical order; collective over the groups.

    Parameters
    ----------
    model : nn.Module
        The model that holds the experts.
    experts : sequence of ExpertLayer
        As given to the adapter.
    maps : dict of int to LayerMap
        Committed placement.
    groups : Groups, optional
        Expert-parallel group, when the tensors hold one rank's experts only.
    """
    state = {name: _whole(tensor, None) for name, tensor in model.state_dict().items()}
    for one, name, axis in _expert_keys(experts):
        tensor = dict(tensors_of(one.module))[name].detach()
        tensor = _whole(tensor, (groups or Groups()).ranks, axis)
        state[f"{one.name}.{name}"] = tensor.index_select(
            axis, maps[one.layer].slot_of_expert.to(tensor.device)
        )
    return state


def load_canonical(
    model: nn.Module,
    state: Mapping[str, Tensor],
    experts: Sequence[ExpertLayer],
    maps: Mapping[int, LayerMap],
    groups: Groups | None = None,
) -> None:
    """Load a canonical state dict into a model under any placement, in place.

    Raises
    ------
    InputError
        When an expert tensor is missing or has another shape.
    """
    _, _, rank, _ = (groups or Groups()).place()
    keys = {f"{one.name}.{name}": (one, name, axis) for one, name, axis in _expert_keys(experts)}
    with torch.no_grad():
        for key, (one, name, axis) in keys.items():
            target = dict(tensors_of(one.module))[name]
            if key not in state:
                raise InputError("the tensor in the checkpoint", "none", key)
            if is_dtensor(target):
                raise InputError("plain tensors", "a DTensor", key, "load with torch.distributed.checkpoint")
            slots = target.shape[axis]
            mine = maps[one.layer].expert_of_slot[rank * slots : (rank + 1) * slots]
            source = state[key].index_select(axis, mine.to(state[key].device))
            if source.shape != target.shape:
                raise InputError(f"shape {tuple(target.shape)}", f"{tuple(source.shape)}", key)
            target.copy_(source)
    rest = {key: value for key, value in state.items() if key not in keys}
    model.load_state_dict(rest, strict=False)


def save_safetensors(path: str | Path, state: Mapping[str, Tensor]) -> None:
    """Write a canonical state dict; tensors that share storage are written once each."""
    from safetensors.torch import save_file

    save_file({name: tensor.detach().contiguous().clone() for name, tensor in state.items()}, str(path))


def load_safetensors(path: str | Path) -> dict[str, Tensor]:
    """Read what :func:`save_safetensors` wrote."""
    from safetensors.torch import load_file

    return dict(load_file(str(path)))


def _expert_keys(experts: Sequence[ExpertLayer]) -> list[tuple[ExpertLayer, str, int]]:
    return [(one, name, axis) for one in experts for name, axis in sorted(one.axes.items())]


def _whole(tensor: Tensor, ranks: Any, axis: int = 0) -> Tensor:
    """Return all experts of a tensor, from the ranks that hold them, in physical order."""
    if is_dtensor(tensor):
        distributed: Any = tensor
        full: Tensor = distributed.full_tensor()
        return full
    if ranks is None or ranks.size() == 1:
        return tensor.detach()
    local = tensor.movedim(axis, 0).contiguous()
    out = torch.empty(
        (local.shape[0] * ranks.size(), *local.shape[1:]), dtype=local.dtype, device=local.device
    )
    # As bytes: not every backend knows every quantized type.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # renamed in torch 2.13
    gather(_bytes(out), _bytes(local), group=ranks)
    return out.movedim(0, axis)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.reshape(-1).view(torch.uint8)
