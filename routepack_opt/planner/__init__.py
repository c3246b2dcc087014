"""The planner: window to plan, under a deadline or a reproducible budget.

Guarantees: a plan is never worse than the best seed, nor than the trainer's own layout at the same number of
rows; the deadline holds, counted from the call once kernels are ready; the plan says on which rung it ended.
"""

from routepack_opt.planner.config import PlannerConfig, SearchConfig
from routepack_opt.planner.entry import plan
from routepack_opt.planner.pipeline import default_budget
from routepack_opt.planner.service import Planner
from routepack_opt.planner.warmup import warm_up
from routepack_opt.solvers.annealing.parameters import AnnealingParameters, Budget, Mix

__all__ = [
    "AnnealingParameters",
    "Budget",
    "Mix",
    "Planner",
    "PlannerConfig",
    "SearchConfig",
    "default_budget",
    "plan",
    "warm_up",
]
