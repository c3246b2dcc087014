"""General solvers on bin-packing instances: each returns whether it proved the fewest bins in the time.

``prtpy`` takes part where it is installed (``pip install prtpy``).
"""

import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from benchmarks.peers.ffd import first_fit
from benchmarks.row_windows import problem_of
from routepack_opt.models.rows.arcflow import arcflow, reflect
from routepack_opt.models.rows.export import write_flow
from routepack_opt.solvers.highs import quiet_highs
from routepack_opt.solvers.highs_child import solve_file
from routepack_opt.solvers.interruptible import search
from routepack_opt.solvers.rows import certify_rows


def ours(instance, limit):
    """Run the certification pipeline."""
    found = certify_rows(problem_of(instance.sizes, 1, instance.capacity), time_limit=limit)
    return found.status == "certified"


def cpsat_assignment(instance, limit):
    """Minimize the used bins over item-bin variables in CP-SAT, from the bins of first fit."""
    from ortools.sat.python import cp_model

    sizes = sorted(instance.sizes.tolist(), reverse=True)
    bins = range(len(first_fit(sizes, instance.capacity, range(len(sizes)))))
    model = cp_model.CpModel()
    used = [model.new_bool_var(f"y{b}") for b in bins]
    x = {(i, b): model.new_bool_var(f"x{i}_{b}") for i in range(len(sizes)) for b in bins if b <= i}
    for i in range(len(sizes)):
        model.add_exactly_one(x[i, b] for b in bins if b <= i)
    for b in bins:
        inside = [i for i in range(len(sizes)) if b <= i]
        model.add(sum(sizes[i] * x[i, b] for i in inside) <= instance.capacity * used[b])
        if b:
            model.add_implication(used[b], used[b - 1])
    model.minimize(sum(used))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit
    solver.parameters.num_workers = 1
    status, interrupted = search(solver, model)
    if interrupted:
        raise KeyboardInterrupt
    return status == cp_model.OPTIMAL


def _flow(build, instance, limit):
    """Solve a flow model in a process of its own; graphs of over a million arcs are not tried."""
    sizes, demand = np.unique(instance.sizes, return_counts=True)
    if sizes.size * instance.capacity > 5_000_000:
        return False
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flow.mps"
        write_flow(build(sizes[::-1], demand[::-1], instance.capacity), path, quiet_highs())
        left = limit - (time.monotonic() - started)
        return left > 0 and solve_file(path, left).status == "optimal"


def highs_arcflow(instance, limit):
    """Plain arc-flow in HiGHS."""
    return _flow(arcflow, instance, limit)


def highs_reflect(instance, limit):
    """Reflect in HiGHS."""
    return _flow(reflect, instance, limit)


def prtpy_completion(instance, limit):
    """Bin completion (Korf 2002) of prtpy, which has no time limit: in a process that is ended."""
    code = "import prtpy, sys; prtpy.pack(prtpy.packing.bin_completion, int(sys.argv[1]), eval(sys.argv[2]))"
    command = [sys.executable, "-c", code, str(instance.capacity), str(instance.sizes.tolist())]
    try:
        return subprocess.run(command, capture_output=True, timeout=limit).returncode == 0
    except subprocess.TimeoutExpired:
        return False


SOLVERS = {
    "routepack_opt": ours,
    "CP-SAT assignment": cpsat_assignment,
    "HiGHS arc-flow": highs_arcflow,
    "HiGHS reflect": highs_reflect,
}
if find_spec("prtpy") is not None:
    SOLVERS["prtpy bin completion"] = prtpy_completion
