"""Rows that a packing might have, for a placement that is easy to pack under.

Guarantees: depends on the problem, the number of rows and the seed alone; whole numbers only.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray, whole_number
from routepack_opt.problem import Problem

# In parts of 1000, what a search over layouts leaves of the differences between samples: a tenth, but four
# tenths of what an outlier has beyond a multiple of the median, because no company makes up for all of that.
_LEFT, _LEFT_BEYOND = 100, 400
_OUTLIER = 5


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
        For :func:`refine_for_rows`: an equal part of the window's loads, plus a tenth of what the samples of
        each drawn row differ from it, and more of an outlier. The rows of a packing add up to the window's
        loads, up to rounding.
    """
    rows, packings = whole_number(rows, "rows", low=1), whole_number(packings, "packings", low=1)
    blocks = rows * problem.topology.num_shards
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    left = _left(problem)
    drawn = np.zeros((packings * blocks, *left.shape[1:]), np.int64)
    for k in range(packings):
        np.add.at(drawn, k * blocks + _deal(problem.items.tokens, blocks, random), left)
    return np.asarray(np.maximum(problem.loads // blocks + drawn // 1000, 0), np.int64)


def _left(problem: Problem) -> IntArray:
    """Thousandths of what a search leaves of every item's difference from the window's mean sample."""
    tokens = problem.items.tokens[:, None, None]
    differs = problem.item_counts - tokens * problem.loads // max(int(tokens.sum()), 1)
    size = np.sqrt((differs**2).sum(axis=(1, 2))).astype(np.int64)
    usual = _OUTLIER * np.sort(size)[size.size // 2]
    beyond = np.maximum(size - usual, 0)
    share = _LEFT + (_LEFT_BEYOND - _LEFT) * beyond // np.maximum(size, 1)
    return np.asarray(share[:, None, None] * differs, np.int64)


def _deal(tokens: IntArray, blocks: int, random: np.random.Generator) -> IntArray:
    """Deal items to blocks like cards: by falling tokens, each round of one per block in random order."""
    falling = np.argsort(-tokens, kind="stable")
    block = np.empty(tokens.size, np.int64)
    for start in range(0, tokens.size, blocks):
        turn = falling[start : start + blocks]
        block[turn] = random.permutation(blocks)[: turn.size]
    return block
