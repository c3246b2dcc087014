"""Placement and layout in one model, for tiny problems: what deciding the placement first costs.

Guarantees: the objectives are the score's components over all placements and layouts; the products of "expert
on rank" and "load of the expert in a row-shard" are linearised with the load's own maximum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from routepack_opt.bounds.score import any_placement_bound
from routepack_opt.models.layout.formulation import LayoutModel, add_components, check_rows, start_model
from routepack_opt.models.layout.symmetry import add_symmetry
from routepack_opt.models.placement import add_rank_symmetry, placement_of_owners
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem


@dataclass(frozen=True)
class JointModel:
    """The layout model with free placement.

    Attributes
    ----------
    layout : LayoutModel
        Its demand is the items' counts by expert.
    on_rank : list of list of list of int
        Variable of "expert e of layer l on rank p": ``on_rank[l][e][p]``.
    """

    layout: LayoutModel
    on_rank: list[list[list[int]]]

    def placement(self, values: Sequence[float]) -> Placement:
        """Return the placement that a solution means."""
        owners = [[int(np.argmax([values[v] for v in row])) for row in layer] for layer in self.on_rank]
        shape = (len(self.on_rank), self.layout.problem.window.num_experts)
        return placement_of_owners(np.array(owners, np.int64).reshape(shape), self.layout.problem.topology.ep)


def build_joint_model(problem: Problem, rows: int) -> JointModel:
    """Build the model; its size grows with R * G * L * E * P.

    Parameters
    ----------
    problem : Problem
        Tiny.
    rows : int
        R.

    Raises
    ------
    InfeasibleError
        When the number of rows alone breaks a rule.
    """
    check_rows(problem, rows)
    counts = problem.item_counts.astype(np.int64)
    model = start_model(problem, counts, rows, any_placement_bound(problem, rows), symmetry=True)
    on_rank = [_add_placement(model, layer) for layer in range(problem.window.num_layers)]
    for layer, of_layer in enumerate(on_rank):
        for b in range(model.blocks):
            _add_products(model, b, layer, of_layer)
    add_components(model, int(counts.sum()))
    add_symmetry(model)
    for component, value in zip(("primary", "total", "row_peak"), model.bound.components, strict=True):
        model.linear.row("bounds", [(model.objective[component], 1)], -(-value // model.unit))
    model.linear.check()
    return JointModel(model, on_rank)


def _add_placement(model: LayoutModel, layer: int) -> list[list[int]]:
    """Eq. 3's bijection up to the order of slots inside a rank."""
    linear, topology = model.linear, model.problem.topology
    experts, ranks = model.problem.window.num_experts, topology.ep
    rows = [[linear.binary(f"on[{layer},{e},{p}]") for p in range(ranks)] for e in range(experts)]
    for row in rows:
        linear.row("placement", [(v, 1) for v in row], 1, 1)
    for p in range(ranks):
        linear.row("placement", [(row[p], 1) for row in rows], experts // ranks, experts // ranks)
    add_rank_symmetry(linear, rows, model.problem.loads[layer])
    return rows


def _add_products(model: LayoutModel, block: int, layer: int, on_rank: list[list[int]]) -> None:
    """Peak of a row-shard: at least, on every rank, the loads of the experts that live there."""
    linear, counts = model.linear, model.demand[:, layer]
    peak = model.peak[block, layer] = linear.variable(f"peak[{block},{layer}]", 0, int(counts.sum()))
    carried: list[list[tuple[int, int]]] = [[] for _ in on_rank[0]]
    for e, row in enumerate(on_rank):
        most = int(counts[:, e].sum())
        inside = [(model.in_block[m][block], -int(c)) for m, c in enumerate(counts[:, e])]
        for p, placed in enumerate(row):
            load = linear.variable(f"load[{block},{layer},{e},{p}]", 0, most)
            linear.row("cost", [(load, 1), *inside, (placed, -most)], -most)
            carried[p].append((load, -1))
        linear.row("links", [*((terms[-1][0], 1) for terms in carried), *inside], 0)
    for terms in carried:
        linear.row("cost", [(peak, 1), *terms], 0)
