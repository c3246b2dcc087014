"""`Placement`: where every logical expert lives, layer by layer.

Guarantees: ``slot_of_expert`` and ``expert_of_slot`` are inverse permutations in every layer; slot v belongs
to rank v // H with H = experts / ranks; arrays are read-only, so a placement never changes once made; two
placements are equal exactly when their digests are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, digest, frozen, whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.placement.checks import as_table, check_ranks


@dataclass(frozen=True, eq=False, repr=False)
class Placement:
    """A bijection logical expert -> physical slot for every MoE layer, the same for all EDP shards.

    Parameters
    ----------
    slot_of_expert : array_like of int, shape [layers, experts]
        Slot pi_l(e) of each logical expert; a permutation in every layer. Stored as read-only int64.
    ranks : int
        Expert-parallel ranks P; rank p owns the slots p*H .. (p+1)*H - 1, H = experts / P.

    Raises
    ------
    InputError
        The map is no permutation (names layer and expert), or `ranks` does not divide the experts.
    """

    slot_of_expert: IntArray
    ranks: int

    def __post_init__(self) -> None:
        table = as_table(self.slot_of_expert, "slot_of_expert", "expert", "slot")
        object.__setattr__(self, "ranks", check_ranks(self.ranks, table.shape[1]))
        object.__setattr__(self, "slot_of_expert", frozen(table))

    @classmethod
    def identity(cls, layers: int, experts: int, ranks: int) -> Placement:
        """Return the placement that leaves expert e in slot e at each of `layers` layers."""
        return cls(np.tile(np.arange(experts, dtype=np.int64), (layers, 1)), ranks)

    @classmethod
    def from_expert_of_slot(cls, expert_of_slot: Any, ranks: int) -> Placement:
        """Return the placement with the given inverse map.

        Parameters
        ----------
        expert_of_slot : array_like of int, shape [layers, slots]
            Logical expert held by each physical slot; a permutation in every layer.
        ranks : int
            Expert-parallel ranks.

        Raises
        ------
        InputError
            Names the layer and slot of an expert that is out of range or repeated, and the missing one.
        """
        return cls(_inverse(as_table(expert_of_slot, "expert_of_slot", "slot", "expert")), ranks)

    @property
    def num_layers(self) -> int:
        """MoE layers L."""
        return int(self.slot_of_expert.shape[0])

    @property
    def num_experts(self) -> int:
        """Logical experts E of a layer, which is also its number of slots."""
        return int(self.slot_of_expert.shape[1])

    @property
    def slots_per_rank(self) -> int:
        """Expert slots H = E / P that each rank owns."""
        return self.num_experts // self.ranks

    @cached_property
    def expert_of_slot(self) -> IntArray:
        """Logical expert in each slot, int64 [layers, slots]: the inverse of `slot_of_expert`."""
        return frozen(_inverse(self.slot_of_expert))

    @cached_property
    def rank_of_expert(self) -> IntArray:
        """Rank that owns each logical expert, int64 [layers, experts]."""
        return frozen(self.slot_of_expert // max(self.slots_per_rank, 1))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the map and the rank count, in hex; independent of the host's byte order."""
        return digest([f"placement:{self.ranks}", self.slot_of_expert])

    def demand(self, counts: Any) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Project expert counts on the EP ranks (Eq. 5).

        Parameters
        ----------
        counts : array_like of int, shape [samples, layers, experts]
            Routed assignments a[i, l, e], not negative.

        Returns
        -------
        numpy.ndarray, shape [samples, layers, ranks]
            q[i, l, p], the sum of a[i, l, e] over the experts of rank p, in the narrowest unsigned integer
            type that holds every entry.

        Raises
        ------
        InputError
            The shape does not fit the placement, the dtype is not an integer, or a count is negative.
        """
        from routepack_opt.placement.projection import project

        return project(counts, self.expert_of_slot, self.ranks)

    def loads(self, counts: Any) -> IntArray:
        """Return the rank loads of summed counts (Eq. 10): [layers, experts] -> int64 [layers, ranks]."""
        table = whole_numbers(counts, "loads", shape=self.slot_of_expert.shape)
        by_slot = np.take_along_axis(table, self.expert_of_slot, axis=1)
        shape = (self.num_layers, self.ranks, self.slots_per_rank)
        summed: IntArray = by_slot.reshape(shape).sum(axis=2, dtype=np.int64)
        return summed

    def moves_from(self, previous: Placement) -> int:
        """Return how many experts, over all layers, live on another rank than under `previous`."""
        self._check_alike(previous)
        return int(np.count_nonzero(self.rank_of_expert != previous.rank_of_expert))

    def slot_changes_from(self, previous: Placement) -> int:
        """Return how many experts, over all layers, live in another slot than under `previous`."""
        self._check_alike(previous)
        return int(np.count_nonzero(self.slot_of_expert != previous.slot_of_expert))

    def _check_alike(self, other: Placement) -> None:
        mine, theirs = ((*p.slot_of_expert.shape, p.ranks) for p in (self, other))
        if mine != theirs:
            raise InputError(f"(layers, experts, ranks) {mine}", f"{theirs}", "previous placement")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return self.ranks == other.ranks and np.array_equal(self.slot_of_expert, other.slot_of_expert)

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return (
            f"Placement(layers={self.num_layers}, experts={self.num_experts}, ranks={self.ranks}, "
            f"digest={self.digest[:12]})"
        )


def _inverse(table: IntArray) -> IntArray:
    inverse = np.empty_like(table)
    np.put_along_axis(inverse, table, np.broadcast_to(np.arange(table.shape[1]), table.shape), axis=1)
    return inverse
