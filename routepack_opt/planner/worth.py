"""Windows on which no search can help.

Guarantees: a reason is given only when every layout in the same number of rows that holds as many samples in
every cell costs the same, so that skipping the search loses nothing.
"""

from __future__ import annotations

from routepack_opt.problem import Problem


def cannot_pay(problem: Problem) -> str | None:
    """Say why no search can improve the best seed of a window, or None.

    Parameters
    ----------
    problem : Problem
        The window on its topology.

    Returns
    -------
    str or None
        The reason, for people: one cell, one item for every cell of a single row, or samples that are all
        alike. Near-uniform windows are left to the bound: a search stops at a seed close enough to it.
    """
    items, topology = problem.items, problem.topology
    if topology.dp == 1 and items.size == 1:
        return "planning cannot pay: the window is one item in one cell"
    one_row = items.size < 2 * topology.dp and problem.rules.min_rows == 1
    if one_row and items.size == topology.dp and topology.num_shards == 1:
        return "planning cannot pay: the window is one row with one item per slot"
    alike = items.size > 1 and bool((items.tokens == items.tokens[0]).all())
    alike = alike and bool((items.squares == items.squares[0]).all() and (items.samples == 1).all())
    if alike and bool((problem.item_counts == problem.item_counts[0]).all()):
        return "planning cannot pay: all samples have equal length and equal routing"
    return None
