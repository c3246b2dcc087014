"""Expert placement as an exact model: the busiest rank of one layer.

Guarantees: whole numbers throughout; ranks are interchangeable, so experts by falling load open ranks in
order; a cardinality row per rank keeps E / P experts on each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.bounds.placement import rank_peaks
from routepack_opt.models.linear import LinearModel
from routepack_opt.placement import Placement


@dataclass(frozen=True)
class MakespanModel:
    """Place the experts of one layer so that the busiest rank is least busy.

    Attributes
    ----------
    linear : LinearModel
        Variables and rows.
    on_rank : list of list of int
        Variable of expert e on rank p: ``on_rank[e][p]``.
    peak : int
        Variable of the busiest rank's load: the objective.
    """

    linear: LinearModel
    on_rank: list[list[int]]
    peak: int

    def owner(self, values: Any) -> npt.NDArray[np.int64]:
        """Rank of every expert in a solution, int64 (E,)."""
        return np.array([int(np.argmax([values[v] for v in row])) for row in self.on_rank], np.int64)

    def hint(self, owner: npt.NDArray[np.integer], loads: npt.NDArray[np.integer]) -> list[int]:
        """Values of every variable for the rank of every expert, ranks renumbered by first appearance."""
        values = [0] * len(self.linear.names)
        order = np.argsort(-np.asarray(loads), kind="stable")
        number: dict[int, int] = {}
        for e in order:
            p = number.setdefault(int(owner[e]), len(number))
            values[self.on_rank[int(e)][p]] = 1
        ranks = len(self.on_rank[0])
        values[self.peak] = int(np.bincount(owner, weights=loads, minlength=ranks).max())
        return values


def build_makespan_model(loads: npt.NDArray[np.integer], ranks: int) -> MakespanModel:
    """Build the model of one layer.

    Parameters
    ----------
    loads : numpy.ndarray of int, shape (E,)
        Load of every expert; E is a multiple of `ranks`.
    ranks : int
        P.
    """
    linear, experts = LinearModel(), loads.size
    on_rank = [[linear.binary(f"on[{e},{p}]") for p in range(ranks)] for e in range(experts)]
    low = int(rank_peaks(np.asarray(loads)[None], ranks)[0])
    peak = linear.variable("peak", low, int(loads.sum()))
    for row in on_rank:
        linear.row("assignment", [(v, 1) for v in row], 1, 1)
    for p in range(ranks):
        linear.row("cardinality", [(row[p], 1) for row in on_rank], experts // ranks, experts // ranks)
        terms = [(row[p], -int(load)) for row, load in zip(on_rank, loads, strict=True)]
        linear.row("cost", [(peak, 1), *terms], 0)
    add_rank_symmetry(linear, on_rank, np.asarray(loads))
    linear.check()
    return MakespanModel(linear, on_rank, peak)


def add_rank_symmetry(linear: LinearModel, on_rank: list[list[int]], loads: npt.NDArray[np.integer]) -> None:
    """Let rank p open only after a hotter expert has opened rank p - 1."""
    order = [int(e) for e in np.argsort(-loads, kind="stable")]
    for position, e in enumerate(order):
        for p in range(1, len(on_rank[0])):
            earlier = [(on_rank[j][p - 1], -1) for j in order[:position]]
            linear.row("symmetry", [(on_rank[e][p], 1), *earlier], None, 0)


def placement_of_owners(owners: npt.NDArray[np.integer], ranks: int) -> Placement:
    """Return the placement with the given ranks of experts, experts in ascending order within a rank.

    Parameters
    ----------
    owners : numpy.ndarray of int, shape (L, E)
        Rank of every expert.
    ranks : int
        P.
    """
    expert_of_slot = np.argsort(owners, axis=1, kind="stable")
    return Placement.from_expert_of_slot(expert_of_slot, ranks)
