"""Items into cells: the constructions that Algorithm 2 starts from, and its random ones.

Guarantees: a packing is complete, keeps every rule and leaves no cell empty, or it is None. Flat cell b is
row ``b // D``, slot ``b % D``. Ties break by the lowest index.
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.problem import Problem
from routepack_opt.solvers.seeding._kernels import packing as kernels
from routepack_opt.solvers.seeding._kernels.rectangle import Fill, Rectangle, empty_fill
from routepack_opt.solvers.seeding.rectangle import by_length, rectangle_of


def fixed_row_ffd(problem: Problem, rows: int) -> IntArray | None:
    """Pack by first-fit decreasing into R x D cells (FixedRowFFD, Algorithm 2 line 1).

    Items by (-t, index), each into the lowest cell that takes it. Then, for every cell still empty, the last
    item of the fullest cell with two or more items opens it.

    Parameters
    ----------
    problem : Problem
        Items, slots and rules.
    rows : int
        R.

    Returns
    -------
    numpy.ndarray of int64, shape (M,), or None
        Flat cell of every item; None when an item finds no cell, or a cell cannot be opened.
    """
    rect = rectangle_of(problem, rows)
    return None if rect is None else first_fit_decreasing(rect, by_length(problem))


def first_fit_decreasing(rect: Rectangle, order: IntArray) -> IntArray | None:
    """Run FixedRowFFD in a given rectangle; see :func:`fixed_row_ffd`."""
    fill = empty_fill(rect)
    kernels.first_fit(rect, fill, order)
    return fill.cell if fill.cell.min() >= 0 and kernels.open_empty_cells(rect, fill, order) else None


def least_loaded(problem: Problem, rows: int) -> IntArray | None:
    """Pack by the longest-processing-time rule under the cap: each item into the cell of fewest tokens.

    Parameters and result as for :func:`fixed_row_ffd`. This balances tokens where first fit leaves the last
    rows nearly empty.
    """
    rect = rectangle_of(problem, rows)
    return None if rect is None else least_loaded_in(rect, by_length(problem))


def least_loaded_in(rect: Rectangle, order: IntArray) -> IntArray | None:
    """Run :func:`least_loaded` in a given rectangle and order."""
    fill = empty_fill(rect)
    kernels.least_loaded(rect, fill, order)
    return _complete(fill)


def window_shuffle(order: IntArray, window: int, rng: np.random.BitGenerator) -> IntArray:
    """Perturb an order (WindowShuffle, Algorithm 2 line 4).

    Parameters
    ----------
    order : numpy.ndarray of int64, shape (M,)
        Items, longest first.
    window : int
        Choice width w: the next item is drawn evenly from the first w that remain.
    rng : numpy.random.BitGenerator
        Source of M raw words.
    """
    shuffled = order.copy()
    kernels.window_shuffle(shuffled, window, rng.random_raw(order.size))
    return shuffled


def randomized_best_fit(
    rect: Rectangle, order: IntArray, window: int, rng: np.random.BitGenerator
) -> IntArray | None:
    """Build K cells from an order (Algorithm 2 lines 5-8, with RandomizedBestFit).

    The first K items open the K cells. Each further item ranks the cells that take it by (-tokens, number of
    items, index) and goes to one of the first `window`, drawn evenly.

    Returns
    -------
    numpy.ndarray of int64, shape (M,), or None
        Flat cell of every item; None when the trial is aborted because no cell takes an item.
    """
    fill, ranked = empty_fill(rect), np.empty(window, np.int64)
    kernels.randomized_best_fit(rect, fill, order, ranked, rng.random_raw(order.size))
    return _complete(fill)


def _complete(fill: Fill) -> IntArray | None:
    return fill.cell if fill.cell.min() >= 0 and fill.size.min() > 0 else None
