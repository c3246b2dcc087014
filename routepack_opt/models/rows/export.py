"""Row models as files for other solvers.

Guarantees: ``mps``, ``lp`` and ``cpsat`` hold the fixed-row model with every rule; ``bpplib`` holds the items
of one class alone, and is refused where a rule would be lost.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from routepack_opt.errors import InputError
from routepack_opt.models.rows.arcflow import FlowModel

if TYPE_CHECKING:
    from routepack_opt.problem import Problem

FORMATS = ("mps", "lp", "cpsat", "bpplib")


def export_rows(problem: Problem, rows: int, to: str, path: str | Path) -> None:
    """Write the feasibility of ``rows`` rows for other solvers.

    Parameters
    ----------
    problem : Problem
    rows : int
        Not used by ``bpplib``, which asks for the fewest bins.
    to : str
        ``mps`` or ``lp`` (through Pyomo), ``cpsat`` (text protocol buffer), or ``bpplib`` (number of items,
        capacity, one size per line).
    path : str or Path

    Raises
    ------
    InputError
        For another format, or rules that BPPLIB files cannot express.
    """
    if to not in FORMATS:
        raise InputError(f"one of {', '.join(FORMATS)}", repr(to), "to")
    if to == "bpplib":
        Path(path).write_text(_bpplib(problem), encoding="ascii")
    elif to == "cpsat":
        from routepack_opt.models.rows.cpsat import fixed_row_model

        fixed_row_model(problem, rows).model.export_to_file(str(path))
    else:
        from routepack_opt.models.rows.pyomo import fixed_row_program

        fixed_row_program(problem, rows).write(str(path), format=to)


def _bpplib(problem: Problem) -> str:
    items, rules = problem.items, problem.rules
    lost = {
        "row_class": len(np.unique(items.row_class)) > 1,
        "oversize='alone'": bool(items.alone.any()),
        "max_samples_per_cell": rules.max_samples_per_cell is not None,
        "equal_samples_per_slot": rules.equal_samples_per_slot,
    }
    for rule, present in lost.items():
        if present:
            raise InputError(
                "a problem of one capacity alone", f"the rule {rule}", "to", "Use mps, lp or cpsat"
            )
    return (
        "\n".join(map(str, [items.size, problem.cell_cap, *sorted(items.tokens.tolist(), reverse=True)]))
        + "\n"
    )


def write_flow(flow: FlowModel, path: str | Path, solver: Any) -> None:
    """Write a flow model to an ``.mps`` or ``.lp`` file through a given ``highspy.Highs``."""
    import highspy

    order = np.argsort(flow.column, kind="stable")
    columns = flow.cost.size
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = columns, flow.low.size
    lp.col_cost_, lp.col_lower_ = flow.cost, np.zeros(columns)
    lp.col_upper_ = np.full(columns, highspy.kHighsInf)
    lp.row_lower_ = flow.low
    lp.row_upper_ = np.where(np.isinf(flow.high), highspy.kHighsInf, flow.high)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(flow.column[order], np.arange(columns + 1)).astype(np.int32)
    lp.a_matrix_.index_ = flow.row[order].astype(np.int32)
    lp.a_matrix_.value_ = flow.value[order]
    lp.integrality_ = [highspy.HighsVarType.kInteger] * columns
    solver.passModel(lp)
    solver.writeModel(str(path))
