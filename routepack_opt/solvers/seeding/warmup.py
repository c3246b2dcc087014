"""Get the kernels of the seeds ready before a deadline counts."""

from __future__ import annotations

import numpy as np

from routepack_opt.problem import Problem, Topology
from routepack_opt.solvers.seeding.population import build_seeds
from routepack_opt.window import Window


def warm_up() -> None:
    """Load or compile every kernel of the seeds, for every type that a demand can have."""
    problem = Problem(Window.from_lengths(range(1, 13)), Topology(dp=2), capacity=24)
    packing = np.repeat([0, 1, 2, 3], 3)
    for kind in (np.uint8, np.uint16, np.uint32, np.uint64):
        demand = np.ones((12, 1, 1), kind)
        build_seeds(problem, demand, 2, trials=4, population=2)
        build_seeds(problem, demand, 2, packing=packing, trials=4, population=2, method="paper")
