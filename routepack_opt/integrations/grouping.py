"""Packers of one rank: the fewest groups under a cap, and groups of like size, the same on every machine.

Guarantees: every group has a member and none is over the cap; the same input gives the same groups on every
rank, without a clock; never worse than the groups of the trainer where those are given.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.errors import InputError, RoutePackError
from routepack_opt.planner import Budget, plan
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.solvers.rows import certify_rows
from routepack_opt.stages import AttentionStage
from routepack_opt.window import Window

_PROPOSALS = 20_000
_LARGEST_SUM = 2**30  # tokens of a window, so that scores fit 62 bits

Groups = list[list[int]]


def balanced_groups(
    values: Sequence[int],
    groups: int,
    *,
    capacity: int | None = None,
    equal: bool = False,
    own: Groups | None = None,
) -> Groups:
    """Share values over groups so that the largest sum is small: one row of as many slots as groups.

    Parameters
    ----------
    values : sequence of int
        Tokens or work of every sample, at least 1.
    groups : int
        Number of groups.
    capacity : int, optional
        Largest sum allowed.
    equal : bool, default False
        Every group gets the same number of samples.
    own : list of lists of int, optional
        Groups of the trainer; returned when they are better.

    Returns
    -------
    list of lists of int
        Ascending positions.

    Raises
    ------
    InputError
        When no such groups exist, or none were found.
    """
    exact = [int(v) for v in values]
    unit = max(-(-sum(exact) // _LARGEST_SUM), 1)
    scaled = np.array([max(-(-v // unit), 1) for v in exact], np.int64)
    limit = int(scaled.sum()) if capacity is None else max(min(int(capacity) // unit, int(scaled.sum())), 1)
    candidates = [sorted(map(sorted, own))] if own is not None else []
    candidates += _one_row(scaled, groups, limit, equal)
    if not candidates:
        raise InputError(f"values that fill {groups} groups", f"{len(exact)} values", "values")
    return min(candidates, key=lambda parts: max(sum(exact[i] for i in part) for part in parts))


def _one_row(values: IntArray, groups: int, limit: int, equal: bool) -> list[Groups]:
    """Return the groups that a search finds, or nothing."""
    rules = LayoutRules(equal_samples_per_slot=equal)
    stages = (AttentionStage("work", 1.0),)
    try:
        problem = Problem(Window.from_lengths(values), Topology(groups), limit, stages, rules)
        found = plan(problem, budget=Budget(_PROPOSALS), baselines=False, rows=1)
    except RoutePackError:  # no such groups, or none found
        return []
    return [[list(cell) for cell in found.cells[0]]]


def fewest_groups(values: Sequence[int], capacity: int, *, least: int = 1, multiple: int = 1) -> Groups:
    """Pack values into the fewest groups under a cap, then even the groups out.

    Parameters
    ----------
    values : sequence of int
        Tokens of every sample, at least 1.
    capacity : int
        Largest sum of a group.
    least, multiple : int
        The number of groups is at least `least` and a multiple of `multiple`.

    Raises
    ------
    InputError
        When a value is over the cap, or there are too few values.
    """
    exact = np.array([int(v) for v in values], np.int64)
    rules = LayoutRules(min_rows=max(least, 1), row_multiple=max(multiple, 1))
    limit = min(int(capacity), int(exact.sum()))
    problem = Problem(Window.from_lengths(exact), Topology(1), limit, rules=rules)
    certificate = certify_rows(problem, time_limit=60.0, stages="cheap")  # milliseconds: no clock decides
    if certificate.rows is None or certificate.packing is None:
        raise InputError(f"values that fill groups of {capacity}", f"{certificate.status}", "values")
    packing: Groups = [[] for _ in range(certificate.rows)]
    for i, group in enumerate(certificate.packing):
        packing[int(group)].append(i)
    return balanced_groups(exact.tolist(), certificate.rows, capacity=limit, own=packing)
