"""Row-aware placement: move experts so that the rows' busiest ranks get lighter, for forecast or known rows.

Guarantees: the loads handed to the refinement are exactly those of the layout, or of forecast rows; whether a
placement refined for a layout is kept is decided by the planner, by the exact score.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import loads_of
from routepack_opt.solvers.placing.rowaware import forecast_rows, refine_for_rows

_MOVES = 10_000  # per layer: what more of them found was lost in the noise of the search after it
_PACKINGS = 8  # forecast packings; half as many, or moves, are worse on the recorded windows
_LARGEST = 200_000_000  # layers x experts^2 x rows above which a forecast costs more than it gains
_EXCESS = 1_000  # a layer whose rows' peaks exceed its aggregate by less than this part has little to gain


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


def placement_for_forecast(
    problem: Problem, placement: Placement, rows: int, late: Callable[[], bool]
) -> Placement:
    """Refine a placement, before anything is packed, for rows that a packing might have.

    Among placements that balance the window equally well, some make the samples look more alike on every
    rank; those leave less for the layout to even out.

    Parameters
    ----------
    problem, placement : Problem, Placement
        What is planned, and its placement so far.
    rows : int
        R.
    late : callable
        Asked between layers; True ends the refinement with what it has.

    Returns
    -------
    Placement
        The one given where the problem is too large for this, or nothing better was found.
    """
    window, blocks = problem.window, rows * problem.topology.num_shards
    size = window.num_layers * window.num_experts**2 * blocks * _PACKINGS
    if size == 0 or size > _LARGEST or late():
        return placement
    loads = forecast_rows(problem, rows, packings=_PACKINGS)
    peaks = placement.demand(loads).max(axis=2).sum(axis=0, dtype=np.int64)
    least = placement.loads(problem.loads).max(axis=1) * _PACKINGS
    layers = np.flatnonzero((peaks - least) * _EXCESS > least)
    return refine_for_rows(loads, placement, moves=_MOVES, layers=layers, should_stop=late).placement


def expert_loads(problem: Problem, layout: Layout) -> IntArray:
    """Sum the counts of every row and shard: int64 (R G, L, E), row by row."""
    from routepack_opt.placement.projection import sum_by_group

    cell, shards = layout.cell_of_item(problem), problem.topology.num_shards
    block = cell // layout.dp * shards + problem.topology.shard_of_slot[cell % layout.dp]
    return sum_by_group(problem.item_counts, block, layout.rows * shards)
