"""Megatron `dist_checkpointing` under a placement: logical expert offsets, no data moved.

Guarantees: every expert's parameters, masters, moments and extra state are saved under its logical index and
can be loaded into any placement; a format that stores the physical order of the buffers (`dp_reshardable`) is
refused while an expert is away from home, and so is any entry whose expert can't be told.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, ShardedTensorFactory

from routepack_opt.errors import InputError
from routepack_opt.runtime.adapters.megatron import MegatronRuntime

__all__ = ["logical_state_dict"]

_SHARDING: Final = "distrib_optim_sharding_type"
_SLOT: Final = re.compile(r"^local_experts\.(\d+)\.|^linear_fc[12]\.(?:weight|bias|_extra_state)(\d+)$")


def logical_state_dict(
    chunks: Sequence[Any],
    optimizer: Any,
    runtime: MegatronRuntime,
    *,
    is_loading: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the sharded state dict of model and optimizer by logical expert; collective.

    Parameters
    ----------
    chunks : sequence of DistributedDataParallel
        Model chunks.
    optimizer : MegatronOptimizer or None
        None leaves the optimizer out.
    runtime : MegatronRuntime
        Holds the placement under which the state lies, or into which it shall be loaded.
    is_loading : bool
        Whether the dict is a template for `dist_checkpointing.load`.
    metadata : dict, optional
        Checkpoint metadata; the optimizer format is set to `fully_reshardable`.

    Returns
    -------
    dict
        Keys `model` (`model0`, `model1` for several chunks) and `optimizer`.

    Raises
    ------
    InputError
        For a format that depends on the physical order while a placement is not the identity.
    """
    metadata = {_SHARDING: "fully_reshardable", **(metadata or {})}
    away = [layer for layer, row in runtime.materializer.placement.items() if (row[1:] < row[:-1]).any()]
    if away and metadata[_SHARDING] != "fully_reshardable":
        raise InputError(
            "fully_reshardable while a placement is not the identity",
            f"{metadata[_SHARDING]} with layers {away[:8]} moved",
            _SHARDING,
            "choose fully_reshardable, or materialize the identity placement first",
        )
    if away and metadata.get("singleton_local_shards"):
        raise InputError("experts in one tensor", "singleton_local_shards", "metadata", "leave it out")
    runtime.adapter.synchronize()
    result: dict[str, Any] = {}
    for index, chunk in enumerate(chunks):
        state = chunk.module.sharded_state_dict(prefix="", metadata=dict(metadata))
        for layer in runtime.adapter.layers:
            _rename(state, chunk.module, layer, runtime)
        result["model" if len(chunks) == 1 else f"model{index}"] = state
    if optimizer is not None:
        models = {k: v for one in list(result.values()) for k, v in one.items()}
        result["optimizer"] = optimizer.sharded_state_dict(
            models, is_loading=is_loading, metadata=dict(metadata)
        )
    return result


def _rename(state: dict[str, Any], model: Any, layer: int, runtime: MegatronRuntime) -> None:
    """Give the entries of one layer's experts their logical index."""
    _, experts, slots = runtime.adapter.experts(layer)
    path = next((name for name, module in model.named_modules() if module is experts), None)
    if path is None:
        return
    first = runtime.adapter.groups.place()[2] * slots
    expert_of_slot = runtime.maps[layer].expert_of_slot.tolist()
    for key in [key for key in state if key.startswith(f"{path}.")]:
        match = _SLOT.match(key[len(path) + 1 :])
        if match is None:
            if expert_of_slot != sorted(expert_of_slot):
                raise InputError(
                    "one entry per expert (SequentialMLP, TEGroupedMLP)",
                    "experts of one rank in a single entry",
                    key,
                    "materialize the identity placement first",
                )
            continue
        slot = first + int(match.group(1) or match.group(2))
        state[key] = _at(state[key], slot, expert_of_slot[slot], len(expert_of_slot), key)


def _at(entry: Any, slot: int, expert: int, experts: int, key: str) -> Any:
    """Replace the physical expert index of an entry by the logical one."""
    if isinstance(entry, ShardedTensorFactory):
        return replace(entry, build_fn=_wrap(entry.build_fn, slot, expert, experts, key))
    if isinstance(entry, ShardedTensor):
        axis, count = entry.prepend_axis_num - 1, entry.axis_fragmentations
    elif isinstance(entry, ShardedObject):
        axis, count = len(entry.global_offset) - 1, entry.global_shape
    else:
        raise InputError("a sharded tensor, object or factory", type(entry).__name__, key)
    if axis < 0 or count[axis] != experts or entry.global_offset[axis] != slot:
        raise InputError(
            f"expert {slot} of {experts} on axis {axis}", f"{entry.global_offset} of {count}", key
        )
    offset = (*entry.global_offset[:axis], expert, *entry.global_offset[axis + 1 :])
    return replace(entry, global_offset=offset)


def _wrap(build: Callable[..., Any], slot: int, expert: int, experts: int, key: str) -> Callable[..., Any]:
    """Rename what a factory builds, also when the optimizer calls it with its own tensors."""

    def renamed(*args: Any, **kwargs: Any) -> Any:
        built = build(*args, **kwargs)
        if isinstance(built, Mapping):
            return {name: _at(one, slot, expert, experts, key) for name, one in built.items()}
        return [_at(one, slot, expert, experts, key) for one in built]

    return renamed
