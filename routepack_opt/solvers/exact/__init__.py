"""Exact lexicographic optima by CP-SAT and by MIP.

Guarantees: a result is rescored in integers; why the solve stopped and what it holds are two fields; nothing
is written to standard output; a time limit is kept even when a solver overruns its own.
"""

from routepack_opt.solvers.exact.lexicographic import solve_exact
from routepack_opt.solvers.exact.result import ExactResult, LogEntry

__all__ = ["ExactResult", "LogEntry", "solve_exact"]
