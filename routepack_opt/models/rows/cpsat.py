"""The fixed-row feasibility model (Eqs. 6-8) with every layout rule, for CP-SAT.

Guarantees: a solution of the model is a layout of exactly ``rows`` rows; the symmetry constraints remove no
layout without keeping one that differs only by the order of interchangeable cells, rows or slots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from routepack_opt.problem import Problem


@dataclass(frozen=True)
class FixedRowModel:
    """A CP-SAT model with its variables.

    Attributes
    ----------
    model : ortools.sat.python.cp_model.CpModel
    uses : dict of (int, int) to variable
        ``uses[item, cell]``: whether the item is in the flat cell ``r * D + d``.
    """

    model: Any
    uses: dict[tuple[int, int], Any]


def fixed_row_model(problem: Problem, rows: int) -> FixedRowModel:
    """Build the model of a layout with exactly ``rows`` rows.

    Parameters
    ----------
    problem : Problem
    rows : int

    Returns
    -------
    FixedRowModel
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    items, dp = problem.items, problem.topology.dp
    cells = range(rows * dp)
    uses = {(i, c): model.new_bool_var(f"x_{i}_{c}") for i in range(items.size) for c in cells}
    for i in range(items.size):
        model.add_exactly_one(uses[i, c] for c in cells)
    for c in cells:
        model.add_bool_or([uses[i, c] for i in range(items.size)])
    _capacity(model, problem, uses, cells)
    _row_classes(model, problem, uses, rows)
    _equal_slots(model, problem, uses, rows)
    _break_symmetry(problem, model, uses, rows)
    return FixedRowModel(model, uses)


def _capacity(model: Any, problem: Problem, uses: dict[tuple[int, int], Any], cells: range) -> None:
    """Tokens and samples of a cell; an oversize item leaves no room for another."""
    items, cap = problem.items, problem.cell_cap
    limit = problem.rules.max_samples_per_cell
    size = [cap if alone else int(t) for t, alone in zip(items.tokens, items.alone, strict=True)]
    for c in cells:
        model.add(sum(size[i] * uses[i, c] for i in range(items.size)) <= cap)
        if limit is not None:
            model.add(sum(int(items.samples[i]) * uses[i, c] for i in range(items.size)) <= limit)


def _row_classes(model: Any, problem: Problem, uses: dict[tuple[int, int], Any], rows: int) -> None:
    """One class per row; the rows of a class stand together, in increasing order of class."""
    classes = np.unique(problem.items.row_class).tolist()
    if len(classes) < 2:
        return
    dp = problem.topology.dp
    of_row = [{k: model.new_bool_var(f"class_{r}_{k}") for k in classes} for r in range(rows)]
    for r in range(rows):
        model.add_exactly_one(of_row[r].values())
        if r:
            rank = [sum(n * of_row[s][k] for n, k in enumerate(classes)) for s in (r - 1, r)]
            model.add(rank[0] <= rank[1])
        for i, k in enumerate(problem.items.row_class.tolist()):
            for d in range(dp):
                model.add_implication(uses[i, r * dp + d], of_row[r][k])


def _equal_slots(model: Any, problem: Problem, uses: dict[tuple[int, int], Any], rows: int) -> None:
    """Ask for the same number of samples in every slot."""
    if not problem.rules.equal_samples_per_slot:
        return
    items, dp = problem.items, problem.topology.dp
    total = int(items.samples.sum())
    for d in range(dp):
        count = sum(
            int(items.samples[i]) * uses[i, r * dp + d] for i in range(items.size) for r in range(rows)
        )
        model.add(dp * count == total)


def _break_symmetry(problem: Problem, model: Any, uses: dict[tuple[int, int], Any], rows: int) -> None:
    """Order interchangeable cells, or slots, by the largest items that they may hold."""
    items, dp = problem.items, problem.topology.dp
    order = np.lexsort((np.arange(items.size), -items.tokens)).tolist()
    several = len(np.unique(items.row_class)) > 1
    if problem.rules.equal_samples_per_slot:
        # whole columns may be exchanged: the largest item is in slot 0
        for r in range(rows):
            for d in range(1, dp):
                model.add(uses[order[0], r * dp + d] == 0)
        return
    if several:
        return
    for rank, i in enumerate(order[: rows * dp]):
        for c in range(rank + 1, rows * dp):
            model.add(uses[i, c] == 0)
