"""Small problems for the tests of row certification."""

from __future__ import annotations

import numpy as np

import routepack_opt.problem as problems
from routepack_opt.window import Window


def row_problem(lengths, dp=1, capacity=10, **rules):
    """Give a problem with lengths only."""
    return problems.Problem(
        Window.from_lengths(np.array(lengths)),
        problems.Topology(dp=dp),
        capacity=capacity,
        rules=problems.LayoutRules(**rules),
    )
