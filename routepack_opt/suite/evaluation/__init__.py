"""Evaluation runs: Baseline, Reorder and RoutePack over sequences of windows, and a step simulator.

Guarantees: scores come from the exact objective; what a coefficient of the simulator decides is called
simulated, in every column and table, and travels with the assumptions it rests on.
"""

from routepack_opt.suite.evaluation.results import Results, read_results
from routepack_opt.suite.evaluation.runs import run_evaluation
from routepack_opt.suite.evaluation.scenarios import EvaluationSuite, Scenario, read_suite
from routepack_opt.suite.evaluation.tables import summary

__all__ = [
    "EvaluationSuite",
    "Results",
    "Scenario",
    "read_results",
    "read_suite",
    "run_evaluation",
    "summary",
]
