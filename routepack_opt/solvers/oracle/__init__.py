"""An exact optimum without a solver: dynamic programming over all subsets of the items.

Guarantees: integers only, no bounds and no pruning, so it shares nothing with the models and solvers that it
checks but the problem itself.
"""

from routepack_opt.solvers.oracle.subsets import OracleResult, refusal, solve_by_subsets

__all__ = ["OracleResult", "refusal", "solve_by_subsets"]
