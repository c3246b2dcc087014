"""The fixed-row CP-SAT model as the last stage: small windows, but every rule.

Guarantees: a row count is excluded only when CP-SAT proves the model infeasible; that evidence is marked as a
solver's claim.
"""

from __future__ import annotations

import hashlib

import numpy as np

from routepack_opt.certificates import RowBound
from routepack_opt.models.rows.cpsat import fixed_row_model
from routepack_opt.solvers.interruptible import search
from routepack_opt.solvers.rows.instance import IntArray
from routepack_opt.solvers.rows.state import RowState

LARGEST_MODEL = 20_000  # variables


def model_stage(state: RowState) -> None:
    """Decide the open row counts from the target up, as far as size and time allow."""
    task, excluded, logs = state.task, [], hashlib.sha256()
    rows = state.target
    last = task.most_rows if state.forced is None else state.target
    while rows <= last and (state.upper is None or rows < state.upper) and state.remaining > 0:
        if task.size * rows * task.dp > LARGEST_MODEL:
            return
        status, layout, log = solve_fixed_rows(state, rows)
        logs.update(log.encode())
        if layout is not None:
            state.offer_layout(layout, rows)
            return
        if status != "infeasible":
            return
        excluded.append(rows)
        if state.forced is None or state.forced == state.lower:
            state.whole = _claim(rows + 1, excluded, logs.hexdigest())
        rows = task.legal(rows + 1)


def solve_fixed_rows(state: RowState, rows: int) -> tuple[str, IntArray | None, str]:
    """Solve one row count: feasible, infeasible or unknown, the flat cell of every item, the statistics."""
    from ortools.sat.python import cp_model

    built = fixed_row_model(state.problem, rows)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(0.01, state.remaining)
    solver.parameters.num_workers = 1
    status, interrupted = search(solver, built.model)
    if interrupted:
        raise KeyboardInterrupt
    if status == cp_model.INFEASIBLE:
        return "infeasible", None, solver.response_stats()
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return "unknown", None, solver.response_stats()
    layout = np.full(state.task.size, -1, dtype=np.int64)
    for (item, cell), use in built.uses.items():
        if solver.value(use):
            layout[item] = cell
    return "feasible", layout, solver.response_stats()


def _claim(rows: int, excluded: list[int], log: str) -> RowBound:
    from importlib.metadata import version

    details = {
        "model": "fixed rows",
        "excluded": list(excluded),
        "solver": "OR-Tools CP-SAT",
        "version": version("ortools"),
        "log_sha256": log,
    }
    return RowBound(rows, "solver-claim", "fixed-row model", details=details)
