"""Row-aware placement: once the rows are known, move experts so that the rows' busiest ranks get lighter.

Guarantees: the loads handed to the refinement are exactly those of the layout; whether the refined placement
is kept is decided by the planner, by the exact score.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import loads_of
from routepack_opt.solvers.placing.rowaware import refine_for_rows

_MOVES = 10_000  # per layer: what more of them found was lost in the noise of the search after it


def placement_for_rows(
    problem: Problem, placement: Placement, layout: Layout, late: Callable[[], bool]
) -> Placement:
    """Refine a placement for the rows of a layout.

    Parameters
    ----------
    problem, placement, layout : Problem, Placement, Layout
        What was planned.
    late : callable
        Asked between layers; True ends the refinement with what it has.

    Returns
    -------
    Placement
        The one given when nothing better was found.
    """
    shards = problem.topology.num_shards
    attention = loads_of(problem, placement.demand(problem.item_counts), layout).attention
    result = refine_for_rows(
        expert_loads(problem, layout),
        placement,
        shard_of_row=np.tile(np.arange(shards), layout.rows),
        base=attention.sum(axis=(0, 1)),
        unit=problem.expert_unit,
        moves=_MOVES,
        should_stop=late,
    )
    return result.placement


def expert_loads(problem: Problem, layout: Layout) -> IntArray:
    """Sum the counts of every row and shard: int64 (R G, L, E), row by row."""
    cell, shards = layout.cell_of_item(problem), problem.topology.num_shards
    block = cell // layout.dp * shards + problem.topology.shard_of_slot[cell % layout.dp]
    order = np.argsort(block, kind="stable")
    starts = np.searchsorted(block[order], np.arange(layout.rows * shards + 1))
    loads = np.zeros((layout.rows * shards, *problem.item_counts.shape[1:]), np.int64)
    for k in range(loads.shape[0]):
        loads[k] = problem.item_counts[order[starts[k] : starts[k + 1]]].sum(axis=0, dtype=np.int64)
    return loads
