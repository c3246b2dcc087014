"""The trainer's rules as rows of the layout model, one family per rule.

Guarantees: a family is named after the rule, so that an infeasible model can be explained in the user's
terms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from routepack_opt.models.layout.formulation import LayoutModel


def add_rules(model: LayoutModel) -> None:
    """Add the rows of every rule that the problem sets (`same_cell` is in the items already)."""
    _cap(model)
    _alone(model)
    if model.problem.rules.max_samples_per_cell is not None:
        _max_samples(model, model.problem.rules.max_samples_per_cell)
    if model.problem.rules.row_class is not None:
        _row_class(model)
    if model.problem.rules.equal_samples_per_slot:
        _equal_samples(model)


def _cells(model: LayoutModel) -> range:
    return range(model.rows * model.problem.topology.dp)


def _cap(model: LayoutModel) -> None:
    """Eq. 8, for the items that the cap binds."""
    items = model.problem.items
    bound = np.flatnonzero(~items.alone)
    for k in _cells(model):
        terms = [(model.in_cell[m][k], int(items.tokens[m])) for m in bound]
        model.linear.row("capacity", terms, None, model.problem.cell_cap)


def _alone(model: LayoutModel) -> None:
    """Let an oversize item keep everybody else out of its cell."""
    size = model.problem.items.size
    for a in np.flatnonzero(model.problem.items.alone):
        for k in _cells(model):
            others = [(model.in_cell[m][k], 1) for m in range(size) if m != a]
            model.linear.row("oversize", [*others, (model.in_cell[a][k], size - 1)], None, size - 1)


def _max_samples(model: LayoutModel, limit: int) -> None:
    samples = model.problem.items.samples
    for k in _cells(model):
        terms = [(row[k], int(n)) for row, n in zip(model.in_cell, samples, strict=True)]
        model.linear.row("max_samples_per_cell", terms, None, limit)


def _row_class(model: LayoutModel) -> None:
    """Every row has one class, and takes items of that class only."""
    classes, dp = model.problem.items.row_class, model.problem.topology.dp
    for r in range(model.rows):
        chosen = {int(c): model.linear.binary(f"class[{r},{int(c)}]") for c in np.unique(classes)}
        model.linear.row("row_class", [(v, 1) for v in chosen.values()], 1, 1)
        for m, c in enumerate(classes):
            inside = [(model.in_cell[m][r * dp + d], 1) for d in range(dp)]
            model.linear.row("row_class", [*inside, (chosen[int(c)], -1)], None, 0)


def _equal_samples(model: LayoutModel) -> None:
    items, dp = model.problem.items, model.problem.topology.dp
    total = int(items.samples.sum())
    for d in range(dp):
        terms = [
            (model.in_cell[m][r * dp + d], int(n) * dp)
            for m, n in enumerate(items.samples)
            for r in range(model.rows)
        ]
        model.linear.row("equal_samples_per_slot", terms, total, total)
