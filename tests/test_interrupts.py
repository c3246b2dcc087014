"""Ctrl-C: exact solves and certifications print what they hold, and exit with the documented code."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from routepack_opt.certificates import RowCertificate
from routepack_opt.solvers.interruptible import search
from routepack_opt.suite.instances import Suite
from routepack_opt.window import Window

MEDIUM = Path(__file__).parent.parent / "instances" / "exact-medium"
HARD = "n24-r3-d2-g1-l8-p4-heavy-none-1"

#: Runs a command in a fresh process, which gets one SIGINT after the given call of `owner.name`.
DRIVER = """
import os, signal, sys
from routepack_opt.cli.app import main
from {module} import {owner} as owner

original, calls = getattr(owner, {name!r}), []
def interrupted(*arguments, **options):
    result = original(*arguments, **options)
    calls.append(True)
    if len(calls) == {call}:
        os.kill(os.getpid(), signal.SIGINT)
    return result
setattr(owner, {name!r}, interrupted)
main(sys.argv[1:])
"""


def command(module, owner, name, call, *arguments):
    code = DRIVER.format(module=module, owner=owner, name=name, call=call)
    return subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)


def solve(backend, *options):
    """Interrupt a solve at its first incumbent, long before anything is proven."""
    where = ("routepack_opt.solvers.exact", "lexicographic", "LogEntry", 1)
    limits = ("--time-limit", 300, "--backend", backend)
    return command(*where, "solve", MEDIUM / f"{HARD}.npz", *limits, *options)


@pytest.mark.parametrize("backend", ["cpsat", "highs"])
def test_an_interrupted_solve_keeps_incumbent_and_bound(backend):
    done = solve(backend, "--json")
    assert done.returncode == 130, done.stderr
    record = json.loads(done.stdout)
    assert (record["termination"], record["solution_status"]) == ("interrupted", "feasible")
    score, bound = ([float(record[key][c]) for c in record[key]] for key in ("score", "bound"))
    assert all(0 < low <= value for low, value in zip(bound, score, strict=True))
    assert len(record["layout"]) == 24
    assert "Traceback" not in done.stderr


def test_an_interrupted_solve_shows_people_what_it_holds():
    done = solve("cpsat")
    assert done.returncode == 130
    assert "interrupted" in done.stdout
    assert "primary" in done.stdout
    assert "Traceback" not in done.stderr


def test_an_interrupted_certification_keeps_bound_and_packing(tmp_path):
    lengths = np.random.default_rng(3).integers(819, 4096, 200)  # two or more to a cell, and no room to spare
    Window.from_lengths(lengths).save(tmp_path / "window.npz")
    where = ("routepack_opt.solvers.rows.pipeline", "RowState", "report", 3)  # after the third stage
    options = ("--dp", 1, "--capacity", 8192, "--json", "-o", tmp_path / "cert.json")
    done = command(*where, "certify", tmp_path / "window.npz", *options)
    assert done.returncode == 130, done.stderr
    record = json.loads(done.stdout)
    assert record["stop"] == "interrupted"
    assert record["rows_status"] == "best_known"
    assert 1 < record["rows_lower_bound"] < record["rows"]
    assert "Traceback" not in done.stderr
    held = RowCertificate.load(tmp_path / "cert.json")
    assert (held.stop, held.rows) == ("interrupted", record["rows"])


EXPLAINS = """
import os, signal
from routepack_opt.models.layout import build_layout_model
from routepack_opt.solvers.exact.cpsat import explain
from routepack_opt.suite.instances import Suite

asked = Suite({suite!r}).load({name!r})
explain(build_layout_model(asked.problem, asked.placement.demand(asked.problem.item_counts), asked.rows), 0.1)
try:
    os.kill(os.getpid(), signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    print("heard")
"""


def test_a_solver_leaves_ctrl_c_to_python():
    code = EXPLAINS.format(suite=str(MEDIUM), name=HARD)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "heard\n"), done.stderr


def test_a_search_stops_and_keeps_its_solution():
    from ortools.sat.python import cp_model

    from routepack_opt.models.cpsat import build_cpsat
    from routepack_opt.models.layout import build_layout_model

    suite = Suite(MEDIUM)
    asked = suite.load(HARD)
    model = build_layout_model(asked.problem, asked.placement.demand(asked.problem.item_counts), asked.rows)
    built = build_cpsat(model.linear, model.objective["primary"], (), model.hint(suite.layout(HARD)))

    class Stop(cp_model.CpSolverSolutionCallback):
        def on_solution_callback(self):
            os.kill(os.getpid(), signal.SIGINT)

    handler = signal.getsignal(signal.SIGINT)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = 300
    status, interrupted = search(solver, built.model, Stop())
    assert (status, interrupted) == (cp_model.FEASIBLE, True)
    assert solver.value(built.variables[model.objective["primary"]]) > 0
    assert signal.getsignal(signal.SIGINT) is handler
