"""The row models agree with exhaustive search, in every form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_rows import fits_rows, least_bins
from rows_cases import row_problem, small_problems

from routepack_opt.errors import InputError
from routepack_opt.models.rows.arcflow import arcflow, reflect
from routepack_opt.models.rows.cpsat import fixed_row_model
from routepack_opt.models.rows.export import export_rows, write_flow
from routepack_opt.models.rows.pyomo import fixed_row_program
from routepack_opt.solvers.highs import quiet_highs
from routepack_opt.solvers.highs_child import solve_file
from routepack_opt.solvers.interruptible import search


def cpsat_fits(problem, rows):
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status, _ = search(solver, fixed_row_model(problem, rows).model)
    assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
    return status == cp_model.OPTIMAL


def highs_status(path):
    solver = quiet_highs()
    solver.readModel(str(path))
    solver.run()
    return str(solver.getModelStatus()), solver.getInfo().objective_function_value


@settings(max_examples=60, deadline=None)
@given(small_problems(), st.integers(1, 3))
def test_fixed_row_models(tmp_path_factory, problem, rows):
    legal = rows >= problem.rules.min_rows and rows % problem.rules.row_multiple == 0
    truth = fits_rows(problem, rows)
    if not legal:
        return
    assert cpsat_fits(problem, rows) == truth
    path = tmp_path_factory.mktemp("rows") / "model.mps"
    export_rows(problem, rows, "mps", path)
    assert (highs_status(path)[0] == "HighsModelStatus.kOptimal") == truth


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 30), st.lists(st.integers(1, 30), min_size=1, max_size=9))
def test_flow_models(tmp_path_factory, cap, lengths):
    lengths = [min(t, cap) for t in lengths]
    sizes, demand = np.unique(lengths, return_counts=True)
    path = tmp_path_factory.mktemp("flow") / "flow.mps"
    for model in (arcflow, reflect):
        write_flow(model(sizes[::-1], demand[::-1], cap), path, quiet_highs())
        status, value = highs_status(path)
        assert status == "HighsModelStatus.kOptimal"
        assert round(value) == least_bins(lengths, cap), model.__name__


def test_exports(tmp_path):
    problem = row_problem([5, 4, 3], dp=1)
    for to in ("mps", "lp", "cpsat", "bpplib"):
        path = tmp_path / f"model.{to}"
        export_rows(problem, 2, to, path)
        assert path.stat().st_size
    assert (tmp_path / "model.bpplib").read_text() == "3\n10\n5\n4\n3\n"
    assert solve_file(tmp_path / "model.mps", 20).status == "optimal"
    with pytest.raises(InputError, match="row_class"):
        export_rows(row_problem([5, 4, 3], row_class=[0, 0, 1]), 2, "bpplib", tmp_path / "x")
    with pytest.raises(InputError, match="mps, lp"):
        export_rows(problem, 2, "xml", tmp_path / "x")


def test_pyomo_model_is_named():
    assert fixed_row_program(row_problem([5, 4, 3]), 2).name == "rows_2"
