"""Get every kernel ready before a deadline counts.

Guarantees: after :func:`warm_up` nothing is compiled inside :func:`routepack_opt.plan`, whatever the window.
"""

from __future__ import annotations

import time

import numpy as np

from routepack_opt.planner.entry import plan
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.solvers.annealing.parameters import Budget
from routepack_opt.solvers.placing.warmup import warm_up as warm_up_placing
from routepack_opt.solvers.seeding import warm_up as warm_up_seeding
from routepack_opt.stages import AttentionStage
from routepack_opt.window import Window


def warm_up() -> float:
    """Load or compile every kernel that planning uses.

    Returns
    -------
    float
        Seconds it took: some tens the first time, a few later (compiled kernels are cached on disk).
    """
    from routepack_opt.solvers.rows import warm_up_rows

    start = time.perf_counter()
    warm_up_rows()
    warm_up_placing()
    warm_up_seeding()
    for tokens in (7, 70_000):  # demand in 16 and in 32 bits: each is compiled for itself
        lengths = np.full(12, tokens)
        counts = np.zeros((12, 2, 4), np.int32)
        counts[:, :, 0], counts[:, :, 1] = tokens, np.arange(12)[:, None] % 7
        problem = Problem(
            Window.from_counts(lengths, counts),
            Topology(dp=2, ep=2, ranks_per_node=1),  # seating loads scipy
            capacity=4 * tokens,
            stages=(AttentionStage("warm", 1.0, 1.0),),
            rules=LayoutRules(min_rows=2),
        )
        for method in ("annealing", "paper"):
            first = plan(problem, budget=Budget(200), method=method)
        plan(problem, budget=Budget(200), previous=first, refine_placement=True)
    return time.perf_counter() - start
