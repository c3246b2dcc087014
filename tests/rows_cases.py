"""Small problems for the tests of row certification."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

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


@st.composite
def small_problems(draw):
    """Windows of up to 8 samples under any mix of rules."""
    size = draw(st.integers(1, 8))
    lengths = draw(st.lists(st.integers(1, 10), min_size=size, max_size=size))
    dp = draw(st.integers(1, 3))
    rules = {}
    if draw(st.booleans()):
        rules["min_rows"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        rules["row_multiple"] = draw(st.integers(1, 3))
    if draw(st.booleans()):
        rules["max_samples_per_cell"] = draw(st.integers(2, 4))
    if draw(st.booleans()):
        rules["equal_samples_per_slot"] = True
    if draw(st.booleans()):
        rules["cell_multiple"] = 3
        lengths = [min(t, 9) for t in lengths]
    if draw(st.booleans()):
        rules["row_class"] = draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))
    if draw(st.booleans()):
        rules["oversize"] = "alone"
        lengths = [t * draw(st.sampled_from([1, 1, 1, 2])) for t in lengths]
    elif size >= 2 and "row_class" not in rules and lengths[0] + lengths[1] <= 9:
        rules["same_cell"] = [(0, 1)]
    return row_problem(lengths, dp, 10, **rules)
