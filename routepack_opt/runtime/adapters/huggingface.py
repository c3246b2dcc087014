"""Hugging Face mixture-of-experts models: fused experts of any family, quantized ones included.

Guarantees: experts are found by their tensors (`down_proj` [experts, ...]), so GptOss with its transposed
weights and biases and the FP8 and MXFP4 modules need no case of their own; a tensor with another name,
wherever it hides, is refused until it is declared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from routepack_opt.errors import InputError
from routepack_opt.runtime.adapters.plain import ExpertLayer, TorchAdapter
from routepack_opt.runtime.control import Control
from routepack_opt.runtime.dispatch import LayerMap, map_experts_module
from routepack_opt.runtime.materialize import Groups, Materializer
from routepack_opt.runtime.state import tensors_of

__all__ = ["HuggingFaceRuntime", "attach", "find_experts"]

EXPERT_TENSOR: Final = re.compile(
    r"^(gate_up_proj|gate_proj|up_proj|down_proj)(_bias|_scale_inv|_activation_scale|_blocks|_scales)?$"
)
"""Names of expert-indexed tensors, expert axis first."""
_LAYER: Final = re.compile(r"(?:^|\.)layers\.(\d+)\.")


def find_experts(
    model: nn.Module, moe_layers: Sequence[int] | None = None, shared: Sequence[str] = ()
) -> list[ExpertLayer]:
    """Return the fused experts of a model, one per row of the placement.

    Parameters
    ----------
    model : nn.Module
        A transformers model.
    moe_layers : sequence of int, optional
        Decoder index of each placement row; without it, rows follow the order of the modules.
    shared : sequence of str
        Names of tensors inside an experts module that do not depend on the expert.

    Raises
    ------
    InputError
        When there are none, or a layer is not among `moe_layers`.
    """
    rows = None if moe_layers is None else {int(layer): row for row, layer in enumerate(moe_layers)}
    found: list[ExpertLayer] = []
    for path, module in model.named_modules():
        own = dict(module.named_parameters(recurse=False)) | dict(module.named_buffers(recurse=False))
        if not hasattr(module, "num_experts") or getattr(own.get("down_proj"), "ndim", 0) != 3:
            continue
        axes = {name: 0 for name in own if EXPERT_TENSOR.match(name)}
        present = {name for name, _ in tensors_of(module)}
        row, match = len(found), _LAYER.search(path)
        if rows is not None:
            if match is None or int(match.group(1)) not in rows:
                raise InputError(f"experts in decoder layers {sorted(rows)}", f"'{path}'", "moe_layers")
            row = rows[int(match.group(1))]
        found.append(ExpertLayer(row, path, module, axes, tuple(n for n in shared if n in present)))
    if not found:
        raise InputError("fused experts (down_proj [experts, ...])", "none", "model")
    return found


@dataclass(frozen=True)
class HuggingFaceRuntime:
    """What :func:`attach` built.

    Attributes
    ----------
    materializer : Materializer
        Call `materialize(plan.placement)` at step boundaries.
    adapter : TorchAdapter
        For checkpoints and weight sync.
    maps : dict of int to LayerMap
        Committed placement by layer.
    detach : callable
        Takes the maps off the experts.
    """

    materializer: Materializer
    adapter: TorchAdapter
    maps: dict[int, LayerMap]
    detach: Callable[[], None]


def attach(
    model: nn.Module,
    optimizer: Any = None,
    *,
    groups: Groups | None = None,
    control: Control | None = None,
    moe_layers: Sequence[int] | None = None,
    shared: Sequence[str] = (),
    staging_bytes: int = 256 << 20,
) -> HuggingFaceRuntime:
    """Map the experts of a Hugging Face model and make them movable.

    Parameters
    ----------
    model : nn.Module
        A transformers model, whole or sharded with FSDP2.
    optimizer : torch.optim.Optimizer, optional
        Whose state moves with the experts.
    groups : Groups, optional
        Expert-parallel group and lanes; none for one process.
    control : Control, optional
        All ranks by default.
    moe_layers, shared
        See :func:`find_experts`.
    staging_bytes : int
        Budget of the staging area.

    Raises
    ------
    InputError
        When something can't be moved, by name.
    """
    groups, experts = groups or Groups(), find_experts(model, moe_layers, shared)
    device = next(iter(experts[0].module.parameters())).device
    count = _num_experts(experts[0], groups)
    maps = {one.layer: LayerMap(np.arange(count, dtype=np.int64), device) for one in experts}
    detaches = [map_experts_module(one.module, maps[one.layer]) for one in experts]
    adapter = TorchAdapter(experts, optimizer, groups)
    materializer = Materializer(
        adapter, maps, groups, control or Control(), staging_bytes=staging_bytes, device=torch.device(device)
    )

    def detach() -> None:
        for call in detaches:
            call()

    return HuggingFaceRuntime(materializer, adapter, maps, detach)


def _num_experts(one: ExpertLayer, groups: Groups) -> int:
    """Logical experts of a layer: a DTensor knows, a local tensor holds one rank's."""
    tensor: Any = dict(tensors_of(one.module))["down_proj"]
    return int(tensor.shape[0]) * (1 if hasattr(tensor, "device_mesh") else groups.place()[0])
