"""Solve a MIP file with HiGHS in a process of its own, which can be killed when the time is up.

Guarantees: the call returns within its seconds (and a little), although HiGHS does not always keep its own
limit; a killed solve is ``unknown``.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ChildResult:
    """What the child reported.

    Attributes
    ----------
    termination : str
        Why it stopped: ``finished`` or ``killed``.
    status : str
        What it holds: ``optimal``, ``infeasible`` or ``unknown``.
    objective : float or None
    version : str or None
    """

    termination: str
    status: str
    objective: float | None = None
    version: str | None = None


_CHILD = """
import json, sys
from routepack_opt.solvers.highs import quiet_highs
solver = quiet_highs()
solver.setOptionValue("threads", 1)
solver.readModel(sys.argv[1])
solver.setOptionValue("time_limit", float(sys.argv[2]))
solver.run()
status = str(solver.getModelStatus()).rsplit(".", 1)[-1]
name = {"kOptimal": "optimal", "kInfeasible": "infeasible"}.get(status, "unknown")
value = solver.getInfo().objective_function_value if name == "optimal" else None
print(json.dumps({"status": name, "objective": value, "version": solver.version()}))
"""


def solve_file(path: str | Path, seconds: float) -> ChildResult:
    """Solve an ``.mps`` or ``.lp`` file within ``seconds``."""
    root = str(Path(__file__).resolve().parents[2])
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {root!r})\n{_CHILD}",
        str(path),
        str(seconds),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 2.0, check=True)
    except subprocess.TimeoutExpired:
        return ChildResult("killed", "unknown")
    report = json.loads(done.stdout.strip().splitlines()[-1])
    return ChildResult("finished", report["status"], report["objective"], report["version"])
