"""The best split of a few items into two cells, by looking at every one."""

from __future__ import annotations

import numpy as np

from routepack_opt.problem import Problem
from routepack_opt.solvers.oracle import _kernels as kernels


def split_in_two(problem: Problem, members: list[int]) -> list[list[int]]:
    """Return the items of the two cells with the least attention cost (Eq. 12) that keep the cap.

    Parameters
    ----------
    problem : Problem
        Only the cap is looked at, no other rule.
    members : list of int
        Items, at most 20.
    """
    items, size = problem.items, 1 << len(members)
    tokens = np.zeros(size, np.int64)
    kernels.subset_sums(np.ascontiguousarray(items.tokens[members]), tokens)
    work = np.zeros((len(problem.linear), size), np.int64)
    for s, (linear, quadratic) in enumerate(zip(problem.linear, problem.quadratic, strict=True)):
        of_item = linear * items.tokens[members] + quadratic * items.squares[members]
        kernels.subset_sums(np.ascontiguousarray(of_item, np.int64), work[s])
    fits = tokens <= problem.cell_cap
    fits[0] = False
    part = kernels.best_pair(size - 1, work, fits)[1]
    inside = [m for k, m in enumerate(members) if part >> k & 1]
    return [[m for m in members if m not in inside], inside]
