"""The command line.

Guarantees: with ``--json`` standard output holds exactly one JSON object and progress goes to standard error;
a user's mistake is one clear line and exit code 2, an infeasible or unknown problem exit code 3, a failed
check 4.
"""

from routepack_opt.cli.app import main

__all__ = ["main"]
