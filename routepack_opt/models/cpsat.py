"""A linear model as a CP-SAT model.

Guarantees: same variables, rows and whole numbers as the :class:`~routepack_opt.models.linear.LinearModel`,
but for the counting bounds, which are implied and slow CP-SAT down (measured: twice the time); a hint covers
every variable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from routepack_opt.models.linear import LinearModel, Row


@dataclass(frozen=True)
class CpSatModel:
    """The CP-SAT model and its variables.

    Attributes
    ----------
    model : ortools CpModel
        Ready to be solved.
    variables : list
        CP-SAT variable of every variable of the linear model.
    assumptions : dict of str to variable
        Literal of every family that may be assumed or dropped; empty when the model is not to be explained.
    """

    model: Any
    variables: list[Any]
    assumptions: dict[str, Any]


def build_cpsat(
    linear: LinearModel,
    objective: int | None = None,
    locks: Sequence[tuple[int, int]] = (),
    hint: Sequence[int] | None = None,
    *,
    explain: bool = False,
) -> CpSatModel:
    """Translate a model.

    Parameters
    ----------
    linear : LinearModel
        What to translate.
    objective : int, optional
        Variable to minimise.
    locks : sequence of (variable, value)
        Upper limits on variables: components that are already optimal.
    hint : sequence of int, optional
        Value of every variable.
    explain : bool, default False
        Put every family behind a literal that is assumed, so that an infeasible model names the families
        that contradict each other.

    Returns
    -------
    CpSatModel
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    pairs = zip(linear.names, linear.bounds, strict=True)
    variables = [
        model.new_bool_var(name) if bounds == (0, 1) else model.new_int_var(*bounds, name)
        for name, bounds in pairs
    ]
    assumptions: dict[str, Any] = {}
    for row in linear.rows:
        if row.family == "bounds" or (explain and row.family in ("symmetry", "links", "cost")):
            continue
        constraint = _add(model, variables, row)
        if explain and row.family != "assignment":
            if row.family not in assumptions:
                assumptions[row.family] = model.new_bool_var(f"assume {row.family}")
            constraint.only_enforce_if(assumptions[row.family])
    if assumptions:
        model.add_assumptions(list(assumptions.values()))
    for index, value in locks:
        model.add(variables[index] <= value)
    if hint is not None:
        for variable, value in zip(variables, hint, strict=True):
            model.add_hint(variable, value)
    if objective is not None:
        model.minimize(variables[objective])
    return CpSatModel(model, variables, assumptions)


def _add(model: Any, variables: list[Any], row: Row) -> Any:
    from ortools.sat.python import cp_model

    chosen = [variables[i] for i, _ in row.terms]
    total = cp_model.LinearExpr.weighted_sum(chosen, [c for _, c in row.terms])
    low = row.low if row.low is not None else cp_model.INT_MIN
    high = row.high if row.high is not None else cp_model.INT_MAX
    return model.add_linear_constraint(total, low, high)
