"""Bytes that ranks exchange to bring tokens to their experts and back, by level of the network.

Guarantees: whole counts of assignments turned into bytes once; a token that goes to several experts of one
rank is counted for each of them, so the bytes are an upper bound for transports that send it once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.crossings import held
from routepack_opt.layout import Layout
from routepack_opt.problem import Problem

Floats = npt.NDArray[np.float64]
LEVELS = ("intra_node", "inter_node")


@dataclass(frozen=True, eq=False)
class Traffic:
    """Assignments that ranks dispatch, without those that stay on their rank.

    Attributes
    ----------
    sent, received : numpy.ndarray of float64, shape (2, R, G, L, P)
        By level: inside the node, and between nodes. One dispatch; the combine goes the other way.
    """

    sent: Floats
    received: Floats

    @property
    def busiest(self) -> Floats:
        """Most that one rank sends or receives in an exchange, (2, R, G, L)."""
        return np.asarray(np.maximum(self.sent, self.received).max(axis=4), np.float64)

    @property
    def per_rank(self) -> Floats:
        """Assignments that each rank sends over the step, (2, G, P): four exchanges, two of them reversed."""
        return np.asarray(2 * (self.sent + self.received).sum(axis=(1, 3)), np.float64)


def traffic_of(problem: Problem, demand: npt.NDArray[np.integer], layout: Layout, per_node: int) -> Traffic:
    """Count what every rank of every shard sends and receives at each level.

    Parameters
    ----------
    problem : Problem
        Topology.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    layout : Layout
        A complete layout.
    per_node : int
        Ranks of one EP group in a node; consecutive ranks share nodes.

    Notes
    -----
    Which tokens a rank holds: :func:`routepack_opt.crossings.held`.
    """
    cells = _cell_demand(problem, demand, layout)
    ranks = demand.shape[2]
    node = np.arange(ranks) // per_node
    same = node[:, None] == node[None, :]
    masks = np.stack([same & ~np.eye(ranks, dtype=bool), ~same]).astype(np.float64)
    sent, received = [], []
    for slots in problem.topology.shards:
        flow = np.einsum("jp,rjlq->rlpq", shares(len(slots), ranks), cells[:, list(slots)])
        sent.append(np.einsum("rlpq,kpq->krlp", flow, masks))
        received.append(np.einsum("rlpq,kpq->krlq", flow, masks))
    return Traffic(np.stack(sent, axis=2), np.stack(received, axis=2))


def shares(slots: int, ranks: int) -> Floats:
    """Return which share of a slot's tokens each rank holds, float64 (slots, ranks); rows sum to 1."""
    return np.asarray(held(slots, ranks) / ranks, np.float64)


def _cell_demand(problem: Problem, demand: npt.NDArray[np.integer], layout: Layout) -> IntArray:
    """Sum the demand over every cell, int64 (R, D, L, P)."""
    cell = layout.cell_of_item(problem)
    total = np.zeros((layout.rows * layout.dp, *demand.shape[1:]), np.int64)
    for item, k in enumerate(cell):
        total[k] += demand[item]
    return total.reshape(layout.rows, layout.dp, *demand.shape[1:])
