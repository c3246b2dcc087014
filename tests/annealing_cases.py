"""Small problems with a placement and a layout, as the kernels of the annealer see them."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import oracles
from hypothesis import strategies as st
from strategies import placements_of, problems_with_layouts

from routepack_opt.layout import Layout
from routepack_opt.problem import Problem
from routepack_opt.solvers.annealing._kernels.state import Instance, State
from routepack_opt.solvers.annealing.instance import build_instance, from_kernel, new_state, to_kernel

WORDS = np.array([1, 2, 3, 4], np.uint64)
# What a state derives from `cell`, in an order of its own choosing only in `members` and `position`.
DERIVED = (
    "size",
    "tokens",
    "squares",
    "samples",
    "routed",
    "attention",
    "peaks",
    "joint",
    "by_shard",
    "score",
    "top",
)


@dataclass
class Case:
    """A problem, a placement and one member's state."""

    problem: Problem
    placement: Any
    rows: int
    instance: Instance
    state: State

    @property
    def layout(self):
        """Where the state is now, in the problem's order of slots."""
        return Layout.from_items(self.problem, from_kernel(self.problem, self.state.cell), self.rows)


def case_of(problem, placement, layout, words=WORDS):
    """Build the kernels' view of a layout."""
    instance = build_instance(problem, placement.demand(problem.item_counts))
    cells = to_kernel(problem, layout.cell_of_item(problem))
    return Case(problem, placement, layout.rows, instance, new_state(instance, layout.rows, cells, words))


@st.composite
def cases(draw):
    """Any rules that the layout keeps, explicit shards and oversize samples among them."""
    problem, layout = draw(problems_with_layouts())
    if draw(st.booleans()):
        problem = _with_oversize(problem, layout)
    words = np.random.SeedSequence(draw(st.integers(0, 2**32))).generate_state(4, np.uint64)
    return case_of(problem, draw(placements_of(problem)), layout, words)


def _with_oversize(problem, layout):
    """Lower the capacity until the longest sample with a cell of its own is over it, if it can be."""
    cells = [cell for row in layout.cells for cell in row]
    fill = {cell: int(problem.aligned[list(cell)].sum()) for cell in cells}
    single = max((cell for cell in cells if len(cell) == 1), key=fill.get, default=None)
    if single is None:
        return problem
    capacity = max([1, *(fill[cell] for cell in cells if cell != single)])
    capacity += -capacity % problem.rules.cell_multiple
    if capacity >= fill[single]:
        return problem
    rules = replace(problem.rules, oversize="alone")
    return Problem(problem.window, problem.topology, capacity, problem.stages, rules)


def oracle_score(problem, placement, cells):
    """Score of the paper's formulas, as fractions."""
    topology, window = problem.topology, problem.window
    stages = [tuple(Fraction(d) for d in stage.decimals) for stage in problem.stages]
    q = oracles.demand(problem.counts.tolist(), placement.slot_of_expert.tolist(), topology.ep)
    place = (cells, topology.shards, problem.capacity, stages)
    return oracles.score(oracles.joint(problem.aligned.tolist(), q, *place, window.num_layers, topology.ep))


def assert_consistent(case):
    """Every incremental number is what building the state from its cells gives, and the score is exact."""
    state = case.state
    fresh = new_state(case.instance, case.rows, state.cell, WORDS)
    for name in DERIVED:
        np.testing.assert_array_equal(getattr(state, name), getattr(fresh, name), err_msg=name)
    for cell in range(state.size.size):
        held = state.members[cell, : state.size[cell]].tolist()
        assert sorted(held) == np.flatnonzero(state.cell == cell).tolist()
        assert [int(state.position[i]) for i in held] == list(range(len(held)))
    found = tuple(Fraction(int(x), case.problem.denominator) for x in state.score)
    assert found == oracle_score(case.problem, case.placement, case.layout.cells)
