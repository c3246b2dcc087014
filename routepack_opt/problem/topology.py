"""The topology: data-parallel slots, expert-parallel ranks and the shards whose expert traffic is joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from routepack_opt.arrays import IntArray, frozen, nested, whole_number
from routepack_opt.errors import InputError


@dataclass(frozen=True)
class Topology:
    """Slots and ranks of the trainer.

    Parameters
    ----------
    dp : int
        D, the number of controller data-parallel slots.
    ep : int, default 1
        P, the number of physical expert-parallel ranks.
    edp_shards : int or sequence of sequences of int, default 1
        G contiguous blocks of D / G slots, or an explicit partition of ``range(dp)``. The slots of a shard
        share one EP communicator.
    ranks_per_node : int, optional
        EP ranks of one node; consecutive ranks of a shard share nodes. When it is given, plans have the
        fewest crossings among layouts that differ only by the slots of a row's cells. By default nodes do
        not matter.

    Raises
    ------
    InputError
        When D is no multiple of G, or a slot is missing from or repeated in the partition.
    """

    dp: int
    ep: int = 1
    edp_shards: int | Sequence[Sequence[int]] = 1
    ranks_per_node: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dp", whole_number(self.dp, "dp", low=1, high=2**20))
        object.__setattr__(self, "ep", whole_number(self.ep, "ep", low=1, high=2**20))
        shards = self.edp_shards
        if isinstance(shards, (Sequence, np.ndarray)):
            parts = nested(shards, "edp_shards", "a number of shards, or a list of slots for every shard")
            shards = tuple(tuple(whole_number(d, "edp_shards") for d in part) for part in parts)
            _check_partition(shards, self.dp)
        else:
            shards = whole_number(shards, "edp_shards", low=1)
            if self.dp % shards:
                remedy = "Give a divisor of dp, or the partition itself: edp_shards=[[0, 1, 2], [3]]"
                raise InputError(f"a divisor of dp={self.dp}", str(shards), "edp_shards", remedy)
        object.__setattr__(self, "edp_shards", shards)
        if self.ranks_per_node is not None:
            nodes = whole_number(self.ranks_per_node, "ranks_per_node", low=1, high=2**20)
            object.__setattr__(self, "ranks_per_node", nodes)

    @cached_property
    def shards(self) -> tuple[tuple[int, ...], ...]:
        """The slots D_g of every shard g, ascending."""
        if isinstance(self.edp_shards, int):
            width = self.dp // self.edp_shards
            return tuple(tuple(range(g * width, (g + 1) * width)) for g in range(self.edp_shards))
        return tuple(tuple(sorted(part)) for part in self.edp_shards)

    @property
    def num_shards(self) -> int:
        """G."""
        return len(self.shards)

    @cached_property
    def shard_of_slot(self) -> IntArray:
        """Shard of every DP slot, int64 (D,)."""
        owner = np.zeros(self.dp, np.int64)
        for g, part in enumerate(self.shards):
            owner[list(part)] = g
        return frozen(owner)


def _check_partition(shards: tuple[tuple[int, ...], ...], dp: int) -> None:
    flat = [d for part in shards for d in part]
    remedy = f"Every slot from 0 to {dp - 1} stands in exactly one shard, and no shard is empty"
    expected = f"a partition of the {dp} slots"
    if not shards or any(not part for part in shards):
        raise InputError(expected, f"an empty shard in {shards}", "edp_shards", remedy)
    for d in range(dp):
        if flat.count(d) != 1:
            found = f"slot {d} missing" if d not in flat else f"slot {d} {flat.count(d)} times"
            raise InputError(expected, found, "edp_shards", remedy)
    if len(flat) != dp:
        raise InputError(expected, f"slot {max(flat)}", "edp_shards", remedy)
