"""The process in which HiGHS runs, so that it can be stopped and cannot print to the caller's output.

Guarantees: file descriptor 1 carries only JSON lines of this module's protocol: a model, then one job per
line in; incumbents and one closing line per job out.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from routepack_opt.models.linear import LinearModel
from routepack_opt.models.mip import build_pyomo, mip_arrays
from routepack_opt.solvers.highs import quiet_highs

Say = Callable[[dict[str, Any]], None]


def main() -> None:
    """Serve jobs until standard input ends."""
    out = os.fdopen(os.dup(1), "w", buffering=1)
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)  # the HiGHS banner is written to descriptor 1 before any option can be set

    def say(message: dict[str, Any]) -> None:
        out.write(json.dumps(message) + "\n")

    head = json.loads(sys.stdin.readline())
    linear = LinearModel.from_json(head["model"])
    solve = solve_highs if head["engine"] == "highs" else _pyomo
    for line in sys.stdin:
        job = json.loads(line)
        try:
            say({"done": solve(linear, job, head, say)})
        except Exception as error:  # the caller must get an answer whatever the solver throws
            say({"done": {"status": "error", "message": f"{type(error).__name__}: {error}"}})


def solve_highs(linear: LinearModel, job: dict[str, Any], head: dict[str, Any], say: Say) -> dict[str, Any]:
    """Solve one job with HiGHS directly."""
    import highspy

    arrays = mip_arrays(linear, job["objective"], job["locks"])
    solver = quiet_highs()
    for name, value in _options(job, head).items():
        solver.setOptionValue(name, value)
    solver.passModel(_highs_lp(highspy, arrays))
    if job["hint"] is not None:
        solution = highspy.HighsSolution()
        solution.col_value = [float(v) for v in job["hint"]]
        solver.setSolution(solution)
    solver.cbMipImprovingSolution.subscribe(
        lambda event: say({"values": np.asarray(event.data_out.mip_solution).tolist()})
    )
    solver.cbMipInterrupt.subscribe(_BoundReports(say))
    solver.run()
    status = {
        highspy.HighsModelStatus.kOptimal: "optimal",
        highspy.HighsModelStatus.kInfeasible: "infeasible",
        highspy.HighsModelStatus.kTimeLimit: "unknown",
    }.get(solver.getModelStatus(), "error")
    info = solver.getInfo()
    feasible = info.primal_solution_status == 2  # a feasible point
    values = list(solver.getSolution().col_value) if feasible else None
    if status == "unknown" and feasible:
        status = "feasible"
    return _answer(status, values, info.mip_dual_bound, solver.modelStatusToString(solver.getModelStatus()))


class _BoundReports:
    """Says every rise of the bound; HiGHS asks many times a second whether to stop."""

    def __init__(self, say: Say) -> None:
        self.say, self.known = say, -np.inf

    def __call__(self, event: Any) -> None:
        bound = float(event.data_out.mip_dual_bound)
        if self.known + 0.5 < bound < np.inf:  # components are whole: less is no news
            self.known = bound
            self.say({"bound": bound})


def _highs_lp(highspy: Any, arrays: Any) -> Any:
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = arrays.cost.size, arrays.row_low.size
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = arrays.cost, arrays.low, arrays.high
    lp.row_lower_, lp.row_upper_ = arrays.row_low, arrays.row_high
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = arrays.start, arrays.index, arrays.value
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[int(whole)] for whole in arrays.whole]
    return lp


def _options(job: dict[str, Any], head: dict[str, Any]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "mip_rel_gap": 0.0,
        "mip_abs_gap": 0.49,  # components are whole
        "mip_feasibility_tolerance": 1e-7,
        "threads": head["workers"],
        "random_seed": head["seed"],
    }
    if job["seconds"] is not None:
        options["time_limit"] = max(job["seconds"], 0.0)
    return options


def _pyomo(linear: LinearModel, job: dict[str, Any], head: dict[str, Any], say: Say) -> dict[str, Any]:
    """Solve one job through Pyomo's second-generation HiGHS interface."""
    from pyomo.contrib.solver.common.results import SolutionStatus, TerminationCondition
    from pyomo.contrib.solver.solvers.highs import Highs

    model = build_pyomo(linear, job["objective"], job["locks"])
    solver = Highs()
    solver.config.load_solutions = False
    solver.config.raise_exception_on_nonoptimal_result = False
    if job["seconds"] is not None:
        solver.config.time_limit = max(job["seconds"], 0.01)
    options = _options({"seconds": None}, head)
    options.pop("threads")
    solver.config.threads = head["workers"]
    solver.config.solver_options = options
    results = solver.solve(model)
    condition = results.termination_condition
    found = results.solution_status in (SolutionStatus.optimal, SolutionStatus.feasible)
    values = None
    if found:
        results.solution_loader.load_vars()
        values = [float(model.x[k].value or 0.0) for k in range(len(linear.names))]
    if condition == TerminationCondition.convergenceCriteriaSatisfied:
        status = "optimal"
    elif condition in (
        TerminationCondition.provenInfeasible,
        TerminationCondition.infeasibleOrUnbounded,
    ):
        status = "infeasible"
    elif condition == TerminationCondition.maxTimeLimit:
        status = "feasible" if found else "unknown"
    else:
        status = "error"
    return _answer(status, values, results.objective_bound, str(condition))


def _answer(status: str, values: list[float] | None, bound: Any, message: str) -> dict[str, Any]:
    finite = bound is not None and np.isfinite(bound)
    return {"status": status, "values": values, "bound": float(bound) if finite else None, "message": message}


if __name__ == "__main__":
    main()
