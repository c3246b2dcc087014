"""Megatron-Core: SequentialMLP, TEGroupedMLP and GroupedMLP under DistributedOptimizer.

Guarantees: parameters move whole on every lane; masters and moments move by the ranges that each lane owns
(see `adapters.megatron_optimizer`). Refused by name: other optimizers, precision-aware and offloaded state,
several optimizer instances, expert tensors of unknown layout, gradients that wait to be used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from routepack_opt.errors import InputError
from routepack_opt.runtime.adapters.megatron_optimizer import ShardedOptimizer, Slice
from routepack_opt.runtime.adapters.plain import refuse_subclass
from routepack_opt.runtime.control import Control
from routepack_opt.runtime.dispatch import LayerMap, map_dispatcher
from routepack_opt.runtime.materialize import Groups, Materializer
from routepack_opt.runtime.pieces import TensorSpec
from routepack_opt.runtime.state import ExpertTensor, check_complete, full_ranges, shared_digest

__all__ = ["MegatronAdapter", "MegatronRuntime", "attach", "find_layers", "stage_control"]

_NUMBERED = re.compile(r"^(local_experts)\.(\d+)(\..+)$|^(linear_fc[12]\.(?:weight|bias))(\d+)()$")
_GROUPED = ("weight1", "weight2")


def find_layers(chunks: Sequence[nn.Module], moe_layers: Sequence[int] | None = None) -> dict[int, Any]:
    """Return the MoE layers of the model chunks by row of the placement.

    Parameters
    ----------
    chunks : sequence of nn.Module
        Model chunks of this pipeline stage.
    moe_layers : sequence of int, optional
        Decoder index of each placement row (`MoEModel.moe_layers`); needed with pipeline parallelism.
        Without it, layers are numbered as they are found.

    Raises
    ------
    InputError
        When a layer is not among `moe_layers`.
    """
    found: list[Any] = [
        module
        for chunk in chunks
        for module in chunk.modules()
        if all(hasattr(module, name) for name in ("router", "experts", "token_dispatcher"))
    ]
    if moe_layers is None:
        return dict(enumerate(found))
    rows = {int(layer): row for row, layer in enumerate(moe_layers)}
    for module in found:
        if module.layer_number - 1 not in rows:
            raise InputError(f"decoder layers {sorted(rows)}", f"{module.layer_number - 1}", "moe_layers")
    return {rows[module.layer_number - 1]: module for module in found}


def expert_slices(experts: nn.Module, slots: int, where: str) -> dict[str, list[Slice]]:
    """Return, for each kind of expert parameter, where each local slot's expert lies.

    Raises
    ------
    InputError
        For a parameter whose expert can't be told from its name.
    """
    found: dict[str, list[Slice | None]] = {}
    for name, parameter in experts.named_parameters():
        match = _NUMBERED.match(name)
        if match:
            head, slot, tail = (part for part in match.groups() if part is not None)
            kinds = found.setdefault(f"{head}{tail}", [None] * slots)
            if int(slot) >= slots:
                raise InputError(f"{slots} local experts", name, where)
            kinds[int(slot)] = Slice(parameter, 0, parameter.numel())
        elif name in _GROUPED and parameter.numel() % slots == 0:
            # Used as view(slots, ...): an expert is a flat range even where the 2-D shape suggests columns.
            size = parameter.numel() // slots
            found[name] = [Slice(parameter, slot * size, (slot + 1) * size) for slot in range(slots)]
        else:
            raise InputError(
                "expert parameters of SequentialMLP, TEGroupedMLP or GroupedMLP", f"'{name}'", where
            )
    whole = {}
    for name, kinds in found.items():
        slices = [one for one in kinds if one is not None]
        if len(slices) != slots or len({one.end - one.start for one in slices}) != 1:
            raise InputError(f"{slots} experts of one size", f"{len(slices)} of '{name}'", where)
        whole[name] = slices
    return whole


def _has_gradient(parameter: Any) -> bool:
    """Whether something waits in the gradient buffer."""
    return bool(parameter.requires_grad and parameter.main_grad.any())


class MegatronAdapter:
    """Expert state of Megatron-Core layers.

    Parameters
    ----------
    chunks : sequence of DistributedDataParallel
        The wrapped model chunks.
    optimizer : MegatronOptimizer
        What `get_megatron_optimizer` returned.
    layers : dict of int to MoELayer
        From :func:`find_layers`.
    """

    def __init__(self, chunks: Sequence[Any], optimizer: Any, layers: dict[int, Any]) -> None:
        if not layers:
            raise InputError("at least one MoE layer", "none", "model")
        self._chunks, self._layers = list(chunks), layers
        self._members = [
            ShardedOptimizer(one) for one in getattr(optimizer, "chained_optimizers", [optimizer])
        ]
        first = next(iter(layers.values()))
        parameter = next(first.experts.parameters())
        self.groups = Groups(first.ep_group, self._member_of(parameter, "experts").lanes)

    @property
    def layers(self) -> Sequence[int]:
        """Rows of the placement, ascending."""
        return sorted(self._layers)

    def experts(self, layer: int) -> tuple[str, nn.Module, int]:
        """Return the name, the experts module and the number of local slots of a layer."""
        module = self._layers[layer]
        return f"moe_layer.{layer}.experts", module.experts, int(module.num_local_experts)

    def check(self) -> None:
        """Refuse while gradients wait to be used, or with expert tensors that nobody registered.

        Raises
        ------
        InputError
            Naming the tensor.
        """
        for layer in self.layers:
            name, experts, slots = self.experts(layer)
            for kind, slices in expert_slices(experts, slots, name).items():
                if any(_has_gradient(one.parameter) for one in slices):
                    raise InputError(
                        "zeroed gradients at a step boundary",
                        "gradients",
                        f"{name}.{kind}",
                        "call zero_grad_buffer() after optimizer.step() and before moving experts",
                    )
            check_complete(experts, (n for n, _ in experts.named_parameters()), (), name)

    def synchronize(self) -> None:
        """Finish a deferred parameter gather: until then other lanes' parameters are of the last step."""
        for chunk in self._chunks:
            if chunk.ddp_config.overlap_param_gather:
                chunk.start_param_sync(force_sync=True)

    def tensors(self, layer: int) -> list[ExpertTensor]:
        """Parameters, masters and moments of the layer's experts."""
        where, experts, slots = self.experts(layer)
        _, lanes, _, _ = self.groups.place()
        result = []
        for name, slices in sorted(expert_slices(experts, slots, where).items()):
            full, size = f"{where}.{name}", slices[0].end - slices[0].start
            refuse_subclass(slices[0].parameter, full)
            views = tuple(s.parameter.detach().view(-1)[s.start : s.end] for s in slices)
            spec = TensorSpec(full, views[0].element_size(), size, full_ranges(lanes, slots, size))
            result.append(ExpertTensor(spec, views))
            if slices[0].parameter.requires_grad:
                result += self._member_of(slices[0].parameter, full).tensors(full, slices, self.groups)
        return result

    def _member_of(self, parameter: nn.Parameter, where: str) -> ShardedOptimizer:
        for member in self._members:
            if member.buffer_of(parameter) is not None:
                return member
        raise InputError("a DistributedOptimizer that holds the parameter", "none", where)

    def shared(self) -> bytes:
        """Digest of the step counts, which must be the same everywhere."""
        counts = {count for member in self._members for count in member.steps()}
        return shared_digest([("step", torch.tensor(sorted(counts), dtype=torch.float64))])


@dataclass(frozen=True)
class MegatronRuntime:
    """What :func:`attach` built.

    Attributes
    ----------
    materializer : Materializer
        Call `materialize(plan.placement)` at step boundaries.
    adapter : MegatronAdapter
        For checkpoints and weight sync.
    maps : dict of int to LayerMap
        Committed placement by layer.
    detach : callable
        Takes the maps off the dispatchers.
    """

    materializer: Materializer
    adapter: MegatronAdapter
    maps: dict[int, LayerMap]
    detach: Callable[[], None]


def attach(
    chunks: Sequence[Any],
    optimizer: Any,
    *,
    moe_layers: Sequence[int] | None = None,
    staging_bytes: int = 256 << 20,
    control: Control | None = None,
) -> MegatronRuntime:
    """Map the dispatchers of a Megatron-Core model and make its experts movable; collective.

    Parameters
    ----------
    chunks : sequence of DistributedDataParallel
        Model chunks of this pipeline stage.
    optimizer : MegatronOptimizer
        With `use_distributed_optimizer`.
    moe_layers : sequence of int, optional
        See :func:`find_layers`.
    staging_bytes : int
        Budget of the staging area on each rank.
    control : Control, optional
        All ranks by default; with pipeline parallelism use :func:`stage_control`.

    Raises
    ------
    InputError
        When something can't be moved, by name.
    """
    layers = find_layers(chunks, moe_layers)
    adapter = MegatronAdapter(chunks, optimizer, layers)
    first = next(iter(layers.values()))
    device = next(first.experts.parameters()).device
    slots = np.arange(int(first.config.num_moe_experts), dtype=np.int64)
    maps = {row: LayerMap(slots, device) for row in sorted(layers)}
    detaches = [map_dispatcher(layers[row].token_dispatcher, maps[row]) for row in maps]
    control = control or Control()
    materializer = Materializer(
        adapter, maps, adapter.groups, control, staging_bytes=staging_bytes, device=device
    )

    def detach() -> None:
        for call in detaches:
            call()

    return MegatronRuntime(materializer, adapter, maps, detach)


def stage_control(pipeline_rank: int, timeout: float = 60.0) -> Control:
    """Build a control group per pipeline stage and return this rank's; collective over all ranks."""
    stages: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(stages, pipeline_rank)
    controls = {
        stage: Control([rank for rank, s in enumerate(stages) if s == stage], timeout)
        for stage in sorted(set(stages))
    }
    return controls[pipeline_rank]
