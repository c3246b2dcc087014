"""Rows that a packing might have, for a placement that is easy to pack under.

Guarantees: depends on the problem, the number of rows and the seed alone; whole numbers only.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray, whole_number
from routepack_opt.placement.projection import sum_by_group
from routepack_opt.problem import Problem

_SPREAD = 10  # a search over layouts leaves about a tenth of the spread between random rows


def forecast_rows(problem: Problem, rows: int, *, packings: int = 4, seed: int = 0) -> IntArray:
    """Draw packings balanced in tokens and return the expert loads that a good search would leave their rows.

    A placement decides two things: the aggregate, and how much the samples differ on each rank, which is what
    a layout has to even out. Refining a placement for these rows keeps the first and lowers the second.

    Parameters
    ----------
    problem : Problem
        What is to be packed.
    rows : int
        R.
    packings : int, optional
        Packings drawn.
    seed : int, optional
        Of the draws.

    Returns
    -------
    ndarray of int64, shape [packings * rows * shards, layers, experts]
        For :func:`refine_for_rows`: an equal part of the window's loads, plus a tenth of what each drawn row
        differs from it. The rows of a packing add up to the window's loads, up to rounding.
    """
    rows, packings = whole_number(rows, "rows", low=1), whole_number(packings, "packings", low=1)
    blocks = rows * problem.topology.num_shards
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    dealt = [_deal(problem.items.tokens, blocks, random) for _ in range(packings)]
    drawn = np.concatenate([sum_by_group(problem.item_counts, block, blocks) for block in dealt])
    part = problem.loads // blocks
    return np.asarray(part + (drawn - part) // _SPREAD, np.int64)


def _deal(tokens: IntArray, blocks: int, random: np.random.Generator) -> IntArray:
    """Deal items to blocks like cards: by falling tokens, each round of one per block in random order."""
    falling = np.argsort(-tokens, kind="stable")
    block = np.empty(tokens.size, np.int64)
    for start in range(0, tokens.size, blocks):
        turn = falling[start : start + blocks]
        block[turn] = random.permutation(blocks)[: turn.size]
    return block
