"""CP-SAT searches that Ctrl-C stops without losing what they found.

Guarantees: Python's own handling of Ctrl-C is left as it is (the one that CP-SAT can install replaces it for
good); the solver has stopped when :func:`search` returns.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any


def search(solver: Any, model: Any, callback: Any = None) -> tuple[Any, bool]:
    """Solve on a thread, so that Ctrl-C reaches this one.

    Parameters
    ----------
    solver : ortools CpSolver
        Holds the values and the bound afterwards, also those of a search that was stopped.
    model : ortools CpModel
        What to solve.
    callback : ortools CpSolverSolutionCallback, optional
        Called on that thread with every new solution.

    Returns
    -------
    status : ortools status
        Of the search as far as it came.
    interrupted : bool
        Whether Ctrl-C stopped it.
    """
    solver.parameters.catch_sigint_signal = False
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(solver.solve, model, callback)
        try:
            return running.result(), False
        except KeyboardInterrupt:
            solver.stop_search()
            return running.result(), True
