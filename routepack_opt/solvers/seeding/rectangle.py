"""The border in front of the packing kernels: a problem's items and rules at a fixed number of rows.

Guarantees: a :class:`Rectangle` has plain read-only arrays of the same types for every problem, so kernels
are compiled once; the classes of its rows always leave at least D items to every row.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, frozen
from routepack_opt.problem import Problem
from routepack_opt.solvers.seeding._kernels.packing import first_fit
from routepack_opt.solvers.seeding._kernels.rectangle import Rectangle, empty_fill, keeps_rules

_NO_LIMIT = 2**62


def by_length(problem: Problem) -> IntArray:
    """Items by (-t, index), int64 (M,)."""
    return np.argsort(-problem.items.tokens, kind="stable")


def rectangle_of(problem: Problem, rows: int, class_of_row: IntArray | None = None) -> Rectangle | None:
    """Return the rectangle of `rows` rows for the packing kernels.

    Parameters
    ----------
    problem : Problem
        Items, slots and rules.
    rows : int
        R.
    class_of_row : numpy.ndarray of int64, shape (R,), optional
        Class of every row under `row_class`; chosen by :func:`choose_row_classes` when left out.

    Returns
    -------
    Rectangle or None
        None when the rules and the number of rows contradict each other.
    """
    items, dp, samples = problem.items, problem.topology.dp, problem.window.size
    equal = problem.rules.equal_samples_per_slot
    if items.size < rows * dp or (equal and samples % dp):
        return None
    if class_of_row is None:
        class_of_row = choose_row_classes(problem, rows)
    if class_of_row is None:
        return None
    return _rectangle(problem, class_of_row, equal)


def _rectangle(problem: Problem, class_of_row: IntArray, equal: bool) -> Rectangle:
    items, limit = problem.items, problem.rules.max_samples_per_cell
    return Rectangle(
        items.tokens,
        items.samples,
        items.row_class,
        frozen(np.repeat(class_of_row, problem.topology.dp)),
        problem.topology.dp,
        problem.cell_cap,
        _NO_LIMIT if limit is None else limit,
        problem.window.size // problem.topology.dp if equal else _NO_LIMIT,
        equal,
    )


def choose_row_classes(problem: Problem, rows: int) -> IntArray | None:
    """Choose the class of every row, int64 (R,), or None when first-fit decreasing needs more rows.

    Every class gets the rows that first-fit decreasing needs for it; each row left over goes to the class
    with most tokens per row among those with items enough. Rows of a class are neighbours, classes ascend.
    """
    if problem.rules.row_class is None:
        return np.zeros(rows, np.int64)
    items, dp, order = problem.items, problem.topology.dp, by_length(problem)
    classes, counts = np.unique(items.row_class, return_counts=True)
    tokens = [int(items.tokens[items.row_class == c].sum()) for c in classes]
    given = []
    for c, count in zip(classes, counts, strict=True):
        wide = _rectangle(problem, np.full(-(-int(count) // dp), c), equal=False)
        fill = empty_fill(wide)
        first_fit(wide, fill, order[items.row_class[order] == c])
        used = fill.cell.max() + 1
        given.append(-(-int(used) // dp))
    while sum(given) < rows:
        able = [k for k in range(classes.size) if (given[k] + 1) * dp <= counts[k]]
        if not able:
            return None
        given[max(able, key=lambda k: Fraction(tokens[k], given[k]))] += 1
    if sum(given) > rows or any(g * dp > n for g, n in zip(given, counts, strict=True)):
        return None
    return np.repeat(classes, given)


def row_classes_of(problem: Problem, cell_of_item: IntArray, rows: int) -> IntArray:
    """Class of every row of a layout, int64 (R,); 0 for a row without items."""
    class_of_row = np.zeros(rows, np.int64)
    class_of_row[cell_of_item // problem.topology.dp] = problem.items.row_class
    return class_of_row


def read_only(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a contiguous read-only view: a kernel is compiled anew for arrays that differ in these."""
    return frozen(np.ascontiguousarray(array).view())


def is_valid(problem: Problem, cell_of_item: IntArray, rows: int) -> bool:
    """Tell whether a layout (flat cell of every item) keeps the rules on cells, rows' classes and slots."""
    if (
        cell_of_item.size != problem.items.size
        or not 0 <= cell_of_item.min() <= cell_of_item.max() < rows * problem.topology.dp
    ):
        return False
    rect = rectangle_of(problem, rows, row_classes_of(problem, cell_of_item, rows))
    return rect is not None and bool(keeps_rules(rect, empty_fill(rect), read_only(cell_of_item)))
