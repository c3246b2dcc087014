"""Ranges of expert tensors that are DTensors: expert-parallel Shard(0), alone or under FSDP2.

Guarantees: only placements whose slot owner is rank v // slots_per_rank are accepted; a tensor that is cut
along the lanes in any way that is not one contiguous range per expert is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor

from routepack_opt.errors import InputError
from routepack_opt.runtime.pieces import Int
from routepack_opt.runtime.state import full_ranges


def is_dtensor(tensor: Tensor) -> bool:
    """Whether the tensor is distributed over a device mesh."""
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def dtensor_ranges(tensor: Any, name: str, ranks: Any, lanes: Any) -> tuple[Int, list[Tensor | None]]:
    """Return what each lane holds of every local slot, and this lane's views.

    Parameters
    ----------
    tensor : DTensor [experts, ...]
        Expert axis first.
    name : str
        For messages.
    ranks, lanes : ProcessGroup or None
        The expert-parallel and the expert-data-parallel group.

    Returns
    -------
    held : int64 [lanes, slots_per_rank, 2]
    views : list of Tensor or None, one per local slot

    Raises
    ------
    InputError
        For a mesh axis that is neither group, or a placement whose ranges cannot be moved.
    """
    over_ranks, over_lanes, lanes_first = _axes(tensor, name, ranks, lanes)
    num_ranks, num_lanes = (1 if g is None else g.size() for g in (ranks, lanes))
    lane = 0 if lanes is None else lanes.rank()
    if num_ranks > 1 and (over_ranks is None or not over_ranks.is_shard(0) or _split_factor(over_ranks) > 1):
        raise InputError("experts sharded on axis 0 over the expert-parallel group", f"{over_ranks}", name)
    if tensor.shape[0] % num_ranks:
        raise InputError(f"a multiple of {num_ranks} experts", f"{tensor.shape[0]}", name)
    slots, shape = tensor.shape[0] // num_ranks, tuple(tensor.shape[1:])
    held, local = full_ranges(num_lanes, slots, math.prod(shape)), tensor.to_local()
    if over_lanes is None or over_lanes.is_replicate():
        return held, list(local.unbind(0))
    if over_lanes.is_shard(1):
        bounds, row = _chunks(shape[0], num_lanes), math.prod(shape[1:])
        held[:] = (bounds * row)[:, None, :]
        return held, [view.reshape(-1) if view.is_contiguous() else view for view in local.unbind(0)]
    expected_factor = num_ranks if lanes_first else 1
    if over_lanes.dim != 0 or _split_factor(over_lanes) != expected_factor:
        raise InputError("lanes that cut axis 1, or axis 0 inside each rank's experts", f"{over_lanes}", name)
    return _whole_experts(held, local, _chunks(slots, num_lanes), lane)


def _whole_experts(held: Int, local: Tensor, bounds: Int, lane: int) -> tuple[Int, list[Tensor | None]]:
    """Give each lane some of the rank's slots, whole."""
    views: list[Tensor | None] = [None] * held.shape[1]
    for owner, (start, end) in enumerate(bounds.tolist()):
        held[owner, :start], held[owner, end:] = 0, 0
        if owner == lane:
            views[start:end] = list(local.unbind(0))
    return held, views


def _split_factor(placement: Any) -> int:
    return int(getattr(placement, "split_factor", 1))


def _chunks(size: int, parts: int) -> Int:
    """Bounds [parts, 2] of torch.chunk."""
    step = -(-size // parts)
    edges = np.minimum(np.arange(parts + 1, dtype=np.int64) * step, size)
    return np.stack([edges[:-1], edges[1:]], axis=1)


def _axes(tensor: Any, name: str, ranks: Any, lanes: Any) -> tuple[Any, Any, bool]:
    """Placements over the two groups, and whether the lanes' mesh axis comes first."""
    wanted = [None if g is None else _members(g) for g in (ranks, lanes)]
    found: list[Any] = [None, None]
    order: list[int] = []
    for axis, placement in enumerate(tensor.placements):
        if tensor.device_mesh.size(axis) == 1:
            continue
        members = _members(tensor.device_mesh.get_group(axis))
        if members not in wanted:
            raise InputError(
                "mesh axes that are the expert-parallel group or the lanes", f"ranks {members}", name
            )
        which = wanted.index(members)
        found[which] = placement
        order.append(which)
    return found[0], found[1], order[:1] == [1] and len(order) == 2


def _members(group: Any) -> Sequence[int]:
    return list(dist.get_process_group_ranks(group))
