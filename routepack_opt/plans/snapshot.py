"""The numbers of a plan that people look at, so that a plan file needs neither window nor problem.

Guarantees: everything is an exact integer of the problem's units, but for the metrics table, which is for
reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from routepack_opt.arrays import BoolArray, IntArray
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import Loads

Table = Mapping[str, Mapping[str, float] | None]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What a plan costs and what it was compared with.

    Attributes
    ----------
    lengths, aligned : numpy.ndarray of int64, shape (N,)
        Raw and aligned tokens of every sample.
    alone : numpy.ndarray of bool, shape (N,)
        Samples over the cap in a cell of their own.
    cell_tokens : numpy.ndarray of int64, shape (R, D)
        Aligned tokens of every cell.
    attention : numpy.ndarray of int64, shape (S, R, G)
        Straggler of every stage per row and shard, times the score's denominator.
    expert : numpy.ndarray of int64, shape (R, G)
        Expert work per row and shard, times the denominator.
    loads_identity, loads_plan : numpy.ndarray of int64, shape (L, P)
        Assignments of every EP rank over the window under identity and under the plan's placement.
    stages : tuple of str
        Stage names with their coefficients.
    capacity, cell_cap : int
        C, and the tokens a cell may hold.
    table : mapping
        Metrics by layout: ``baseline``, ``reorder``, ``routepack`` and more; None where none was found.
    notes : tuple of str
        What the reader of the table must know.
    """

    lengths: IntArray
    aligned: IntArray
    alone: BoolArray
    cell_tokens: IntArray
    attention: IntArray
    expert: IntArray
    loads_identity: IntArray
    loads_plan: IntArray
    stages: tuple[str, ...]
    capacity: int
    cell_cap: int
    table: Table = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def joint(self) -> IntArray:
        """J[r,g] times the denominator, int64 (R, G)."""
        return np.asarray(self.attention.sum(axis=0) + self.expert, np.int64)

    @property
    def fill(self) -> float:
        """Part of the capacity of all cells that holds tokens."""
        return float(self.aligned.sum()) / (self.capacity * self.cell_tokens.size)


def take_snapshot(
    problem: Problem, placement: Placement, loads: Loads, table: Table, notes: tuple[str, ...] = ()
) -> Snapshot:
    """Collect the numbers of one layout.

    Parameters
    ----------
    problem, placement : Problem, Placement
        What was planned.
    loads : Loads
        Terms of the plan's layout, from :func:`routepack_opt.scoring.loads_of`.
    table, notes : mapping, tuple of str
        See :class:`Snapshot`.
    """
    identity = Placement.identity(placement.num_layers, placement.num_experts, placement.ranks)
    return Snapshot(
        lengths=problem.window.lengths,
        aligned=problem.aligned,
        alone=problem.items.alone[problem.items.of_sample],
        cell_tokens=loads.tokens,
        attention=loads.attention,
        expert=loads.expert,
        loads_identity=identity.loads(problem.loads),
        loads_plan=placement.loads(problem.loads),
        stages=tuple(str(stage) for stage in problem.stages),
        capacity=problem.capacity,
        cell_cap=problem.cell_cap,
        table=table,
        notes=notes,
    )
