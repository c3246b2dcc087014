"""The fixed-row feasibility model (Eqs. 6-8) with every layout rule, in Pyomo.

Guarantees: the same feasible layouts as the CP-SAT model, but for the order of interchangeable cells; written
as a mixed-integer program for any solver that Pyomo reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from routepack_opt.problem import Problem


def fixed_row_program(problem: Problem, rows: int) -> Any:
    """Build the ``pyomo.environ.ConcreteModel`` of a layout with exactly ``rows`` rows.

    Parameters
    ----------
    problem : Problem
    rows : int

    Returns
    -------
    pyomo.environ.ConcreteModel
        Binary ``x[item, row, slot]``; ``kind[row, class]`` where classes matter. The objective is constant.
    """
    import pyomo.environ as pyo

    items, rules, dp, cap = problem.items, problem.rules, problem.topology.dp, problem.cell_cap
    size = np.where(items.alone, cap, items.tokens).tolist()
    samples = items.samples.tolist()
    model = pyo.ConcreteModel(name=f"rows_{rows}")
    model.pieces = pyo.RangeSet(0, items.size - 1)
    model.rows = pyo.RangeSet(0, rows - 1)
    model.slots = pyo.RangeSet(0, dp - 1)
    model.x = pyo.Var(model.pieces, model.rows, model.slots, domain=pyo.Binary)
    model.objective = pyo.Objective(expr=0 * model.x[0, 0, 0])

    model.once = pyo.Constraint(
        model.pieces, rule=lambda m, i: sum(m.x[i, r, d] for r in m.rows for d in m.slots) == 1
    )
    model.filled = pyo.Constraint(
        model.rows, model.slots, rule=lambda m, r, d: sum(m.x[i, r, d] for i in m.pieces) >= 1
    )
    model.capacity = pyo.Constraint(
        model.rows, model.slots, rule=lambda m, r, d: sum(size[i] * m.x[i, r, d] for i in m.pieces) <= cap
    )
    limit = rules.max_samples_per_cell
    if limit is not None:
        model.most_samples = pyo.Constraint(
            model.rows,
            model.slots,
            rule=lambda m, r, d: sum(samples[i] * m.x[i, r, d] for i in m.pieces) <= limit,
        )
    if rules.equal_samples_per_slot:
        total = sum(samples)
        model.equal_samples = pyo.Constraint(
            model.slots,
            rule=lambda m, d: dp * sum(samples[i] * m.x[i, r, d] for i in m.pieces for r in m.rows) == total,
        )
    _row_classes(model, items.row_class.tolist())
    return model


def _row_classes(model: Any, classes: list[int]) -> None:
    """Add one class per row, where there are several."""
    import pyomo.environ as pyo

    if len(set(classes)) < 2:
        return
    model.classes = pyo.Set(initialize=sorted(set(classes)))
    model.kind = pyo.Var(model.rows, model.classes, domain=pyo.Binary)

    model.one_kind = pyo.Constraint(model.rows, rule=lambda m, r: sum(m.kind[r, k] for k in m.classes) == 1)
    model.homogeneous = pyo.Constraint(
        model.pieces,
        model.rows,
        rule=lambda m, i, r: sum(m.x[i, r, d] for d in m.slots) <= m.kind[r, classes[i]],
    )
