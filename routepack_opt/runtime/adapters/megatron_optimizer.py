"""Which part of an expert's masters and moments each lane owns in a Megatron DistributedOptimizer.

Guarantees: ranges of all lanes are computed from the gradient buffer's layout and this lane's are checked
against the optimizer's own map; the master of an fp32 parameter is a view of the parameter and is left out,
or it would move twice; shards are found by identity, never by their place in a parameter group.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from routepack_opt.errors import InputError
from routepack_opt.runtime.adapters.plain import ELEMENTWISE_OPTIMIZERS, state_of
from routepack_opt.runtime.materialize import Groups
from routepack_opt.runtime.pieces import Int, TensorSpec
from routepack_opt.runtime.state import ExpertTensor

__all__ = ["ShardedOptimizer", "Slice"]


@dataclass(frozen=True)
class Slice:
    """An expert's part of a parameter: elements [start, end) of the flattened parameter."""

    parameter: nn.Parameter
    start: int
    end: int


class ShardedOptimizer:
    """One DistributedOptimizer: where its buffers put parameters and who owns which part."""

    def __init__(self, optimizer: Any) -> None:
        inner: Any = getattr(optimizer, "optimizer", None)
        if type(optimizer).__name__ != "DistributedOptimizer":
            raise InputError("DistributedOptimizer", type(optimizer).__name__, "optimizer")
        if type(inner).__name__ not in ELEMENTWISE_OPTIMIZERS:
            raise InputError(f"one of {sorted(ELEMENTWISE_OPTIMIZERS)}", type(inner).__name__, "optimizer")
        if getattr(optimizer.config, "use_precision_aware_optimizer", False):
            raise InputError(
                "optimizer state in tensors of its own", "use_precision_aware_optimizer", "optimizer"
            )
        self._optimizer, self._inner = optimizer, inner

    @property
    def lanes(self) -> Any:
        """Process group over which the state is cut."""
        return self._optimizer.data_parallel_group

    def buffer_of(self, parameter: nn.Parameter) -> Any:
        """Return the buffer that holds a parameter, or None."""
        buffers = (b for b in self._optimizer.buffers if parameter in b.param_index_map)
        return next(buffers, None)

    def steps(self) -> Iterator[float]:
        """Yield the step counts found in the state and in the groups."""
        for state in self._inner.state.values():
            if "step" in state:
                yield float(state["step"])
        yield from (float(group["step"]) for group in self._inner.param_groups if "step" in group)

    def _owned(self, parameter: nn.Parameter, lanes: int) -> Int:
        """Range of the flattened parameter that each lane owns, int64 [lanes, 2]."""
        buffer = self.buffer_of(parameter)
        start, end, bucket_id = buffer.param_index_map[parameter]
        bucket = buffer.buckets[bucket_id]
        share = bucket.grad_data.numel() // lanes
        low = bucket.offset + np.arange(lanes, dtype=np.int64) * share
        owned = np.clip(np.stack([low, low + share], axis=1), start, end) - start
        owned[owned[:, 0] >= owned[:, 1]] = 0
        return np.asarray(owned, dtype=np.int64)

    def _shard(self, parameter: nn.Parameter, owned: Int, name: str) -> tuple[Tensor | None, bool]:
        """Return this lane's optimizer tensor of a parameter, and whether it is a copy (a master)."""
        optimizer = self._optimizer
        if parameter not in optimizer.model_param_gbuf_map:
            found, shard, master = (0, 0), None, False
        else:
            own = optimizer._get_model_param_range_map(parameter)["param"]
            found = (own.start, own.end)
            shard, master = getattr(parameter, "main_param", None), True
            if shard is None:
                shard, master = self._fp32_shard(parameter), False
        if found != tuple(owned.tolist()):
            raise InputError(f"the optimizer's own range {tuple(owned.tolist())}", f"{found}", name)
        return shard, master

    def _fp32_shard(self, parameter: nn.Parameter) -> Tensor | None:
        """Find the view that stands for an fp32 parameter; orders of other lists do not match the groups'."""
        groups = (self._optimizer.model_fp32_groups, self._optimizer.shard_fp32_groups)
        for models, shards in zip(*groups, strict=True):
            for model, shard in zip(models, shards, strict=True):
                if model is parameter:
                    found: Tensor = shard
                    return found
        return None

    def tensors(self, name: str, slices: list[Slice], groups: Groups) -> list[ExpertTensor]:
        """Master and moments of one kind of expert parameter."""
        _, lanes, _, lane = groups.place()
        held = np.zeros((lanes, len(slices), 2), dtype=np.int64)
        by_key: dict[str, list[Tensor | None]] = {key: [None] * len(slices) for key in self._keys(slices[0])}
        for slot, part in enumerate(slices):
            owned = self._owned(part.parameter, lanes)
            inside = np.clip(owned, part.start, part.end) - part.start
            held[:, slot] = np.where(inside[:, :1] < inside[:, 1:], inside, 0)
            start, end = (int(x) for x in held[lane, slot])
            shard, master = self._shard(part.parameter, owned[lane], name)
            if shard is None or start == end:
                continue
            first = part.start + start - int(owned[lane, 0])
            states = state_of(name, self._inner.state.get(shard, {}), tuple(shard.shape))[0]
            for key, value in [*states, *([("master", shard)] if master else [])]:
                by_key[key][slot] = value.detach()[first : first + end - start]
        size = slices[0].end - slices[0].start
        return [
            ExpertTensor(TensorSpec(f"{name}/{key}", 4, size, held), tuple(views))
            for key, views in sorted(by_key.items())
        ]

    def _keys(self, part: Slice) -> list[str]:
        """State that an expert has on some lane; a lane that holds none of it must name the same."""
        seen = {
            k for s in self._inner.state.values() for k, v in s.items() if isinstance(v, Tensor) and v.dim()
        }
        copies = part.parameter.dtype in (torch.float16, torch.bfloat16)
        return sorted({*seen, *(["master"] if copies else [])})
