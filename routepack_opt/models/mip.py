"""A linear model as a MIP: a Pyomo model, or the plain arrays that HiGHS takes.

Guarantees: same variables, rows and whole numbers as the :class:`~routepack_opt.models.linear.LinearModel`;
locks stand half a unit above the value they lock, because a MIP solver's arithmetic is not exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.models.linear import LinearModel

SLACK = 0.5  # of a lock: components are whole, so half a unit admits nothing worse

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class MipArrays:
    """A MIP by rows: ``low <= A x <= high``, minimise one variable.

    Attributes
    ----------
    cost, low, high : numpy.ndarray of float64, shape (n,)
        Objective and bounds of the variables.
    whole : numpy.ndarray of bool, shape (n,)
        Integer variables.
    row_low, row_high : numpy.ndarray of float64, shape (rows,)
        Sides of the rows.
    start, index, value : numpy.ndarray
        The matrix by rows.
    """

    cost: Floats
    low: Floats
    high: Floats
    whole: npt.NDArray[np.bool_]
    row_low: Floats
    row_high: Floats
    start: npt.NDArray[np.int32]
    index: npt.NDArray[np.int32]
    value: Floats


def mip_arrays(linear: LinearModel, objective: int | None, locks: Sequence[tuple[int, int]]) -> MipArrays:
    """Translate a model to arrays.

    Parameters
    ----------
    linear : LinearModel
        What to translate.
    objective : int, optional
        Variable to minimise.
    locks : sequence of (variable, value)
        Upper limits on variables.
    """
    low, high = np.array(linear.bounds, np.float64).T.copy()
    for index, value in locks:
        high[index] = min(high[index], value + SLACK)
    cost = np.zeros(low.size)
    if objective is not None:
        cost[objective] = 1.0
    rows = linear.rows
    return MipArrays(
        cost,
        low,
        high,
        np.array(linear.whole, bool),
        np.array([-np.inf if row.low is None else row.low for row in rows], np.float64),
        np.array([np.inf if row.high is None else row.high for row in rows], np.float64),
        np.cumsum([0, *(len(row.terms) for row in rows)]).astype(np.int32),
        np.array([i for row in rows for i, _ in row.terms], np.int32),
        np.array([c for row in rows for _, c in row.terms], np.float64),
    )


def build_pyomo(linear: LinearModel, objective: int | None, locks: Sequence[tuple[int, int]]) -> Any:
    """Translate a model to a Pyomo ``ConcreteModel`` with ``x``, ``rows`` and ``objective``.

    Parameters are those of :func:`mip_arrays`.
    """
    import pyomo.environ as pyo

    model = pyo.ConcreteModel()
    model.x = pyo.Var(range(len(linear.names)))
    for k, (low, high) in enumerate(linear.bounds):
        model.x[k].setlb(low)
        model.x[k].setub(high)
        if linear.whole[k]:
            model.x[k].domain = pyo.Binary if (low, high) == (0, 1) else pyo.Integers
    for index, value in locks:
        model.x[index].setub(min(linear.bounds[index][1], value + SLACK))
    model.rows = pyo.ConstraintList()
    for row in linear.rows:
        if not row.terms:  # one that cannot hold: Pyomo refuses rows without variables
            model.rows.add(model.x[0] >= linear.bounds[0][1] + 1)
            continue
        body = pyo.quicksum(c * model.x[i] for i, c in row.terms)
        if row.low is not None and row.low == row.high:
            model.rows.add(body == row.low)
        else:
            model.rows.add((row.low, body, row.high))
    model.objective = pyo.Objective(expr=model.x[objective] if objective is not None else 0.0)
    return model
