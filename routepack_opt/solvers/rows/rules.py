"""What the rules and counts alone say about rows, in the user's terms.

Guarantees: a window that no row count can serve is named before any search, with the rule that binds and,
where it is known, the number of dummy samples that would help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from routepack_opt.bounds.rows import cell_losses
from routepack_opt.certificates import RowBound
from routepack_opt.solvers.rows.instance import IntArray, RowTask

if TYPE_CHECKING:
    from routepack_opt.problem import Problem


@dataclass(frozen=True)
class Contradiction:
    """Why no layout exists: the rule, the reason, and the dummy samples that would help (None: none)."""

    rule: str
    message: str
    dummies: int | None = None


def contradiction(problem: Problem) -> Contradiction | None:
    """Find a contradiction that holds for every row count, before any packing."""
    items, rules, dp = problem.items, problem.rules, problem.topology.dp
    samples, limit = items.samples, rules.max_samples_per_cell
    over = np.flatnonzero((items.tokens > problem.cell_cap) & ~items.alone)
    if over.size:
        item = int(over[0])
        return Contradiction(
            "capacity",
            f"{_name(problem, item)} has {int(items.tokens[item])} aligned tokens, "
            f"a cell holds {problem.cell_cap}",
        )
    if limit is not None and int(samples.max()) > limit:
        item = int(np.argmax(samples))
        return Contradiction(
            "max_samples_per_cell",
            f"{_name(problem, item)} is {int(samples[item])} samples, a cell holds {limit}",
        )
    if not rules.equal_samples_per_slot:
        return None
    total, share = int(samples.sum()), int(samples.sum()) // dp
    if total % dp:
        missing = -total % dp
        return Contradiction(
            "equal_samples_per_slot",
            f"{total} samples cannot be shared equally by {dp} slots; "
            f"at least {missing} dummy sample{'s' * (missing > 1)} more would be needed",
            missing,
        )
    if int(samples.max()) > share:
        item = int(np.argmax(samples))
        return Contradiction(
            "equal_samples_per_slot",
            f"{_name(problem, item)} is {int(samples[item])} samples, a slot gets {share}",
        )
    return None


def _name(problem: Problem, item: int) -> str:
    first, last = int(problem.items.offsets[item]), int(problem.items.offsets[item + 1])
    members = problem.items.members[first:last].tolist()
    return f"sample {members[0]}" if len(members) == 1 else f"same_cell group {tuple(members)}"


def too_few_items(task: RowTask, least: list[int], rows: int, whole: RowBound | None = None) -> Contradiction:
    """Explain that ``rows`` rows (a proven lower bound) cannot be filled.

    Parameters
    ----------
    task : RowTask
    least : list of int
        Proven rows of each class.
    rows : int
        Proven legal rows of the window.
    whole : RowBound, optional
        A bound on the window as a whole.
    """
    if whole is not None and whole.rows > max(sum(least), task.min_rows):
        rule = "equal_samples_per_slot" if task.equal_slots else "max_samples_per_cell"
        reason = (
            f"no layout of fewer than {whole.rows} rows keeps all rules together, and {task.size} items fill"
        )
        return Contradiction(rule, f"{reason} at most {task.most_rows} rows of {task.dp} slots")
    short = [(c, r) for c, r in zip(task.classes, least, strict=True) if r > c.most_rows]
    if short and len(task.classes) > 1:
        dummies = sum(r * task.dp - c.size for c, r in short)
        worst, need = short[0]
        why = (
            f"class {worst.row_class} has {worst.size} items, but its {need} row(s) of {task.dp} slots have "
            f"{need * task.dp} cells and none may be empty"
        )
        return Contradiction("row_class", f"{why}; {dummies} dummy sample(s) would fill them", dummies)
    cells, samples = rows * task.dp, int(task.samples.sum())
    dummies = cells - task.size
    rule, why = "capacity", f"the tokens need {sum(least)} row(s), so "
    if rows > max(task.min_rows, sum(least)):
        rule, why = "row_multiple", f"rows must be a multiple of {task.row_multiple}, so "
    elif task.min_rows > sum(least):
        rule, why = "min_rows", f"at least {task.min_rows} rows are asked for, so "
    elif samples >= cells:  # alone they would do
        rule, why = "same_cell", f"{samples} samples are tied into {task.size} items, but "
    elif rows == 1:
        rule, why = "samples", ""
    message = (
        f"{why}at least {rows} row(s) of {task.dp} slots = {cells} cells must be filled, none empty, "
        f"and there are {task.size} {'items' if samples > task.size else 'samples'}"
    )
    return Contradiction(rule, f"{message}; {dummies} dummy sample(s) would fill them", dummies)


def slot_bound(task: RowTask) -> RowBound | None:
    """Bound the rows under ``equal_samples_per_slot`` by the samples that large items cost their slot.

    A cell with an item over half its capacity holds fewer samples than the best cell, and a slot can afford
    only so many such losses if it is to reach its share of the samples.
    """
    shared = np.concatenate([c.items for c in task.classes])
    tokens = np.concatenate([c.tokens * 1 for c in task.classes])
    if len(task.classes) > 1 or not shared.size:
        return None  # a class's own units and limits do not mix; the bounds of each class remain
    bins = task.classes[0]
    losses, most = cell_losses(tokens, bins.samples, bins.cap, bins.max_samples)
    alone = np.maximum(most - task.samples[bins.alone], 0)
    share = int(task.samples.sum()) // task.dp
    every = np.concatenate([losses, alone])
    best_rows, best_threshold = 1, 0
    for threshold in np.unique(every[every > 0]).tolist():
        heavy = int(np.count_nonzero(every >= threshold))
        # each slot must afford its part of the heavy items
        rows = -(-(share + threshold * -(-heavy // task.dp)) // most)
        if rows > best_rows:
            best_rows, best_threshold = rows, threshold
    if not best_threshold:
        return None
    weights: IntArray = np.zeros(task.size, dtype=np.int64)
    weights[shared] = bins.samples + losses
    return RowBound(
        best_rows,
        "slots",
        "samples per slot beside large items",
        None,
        weights,
        most,
        {"threshold": best_threshold},
    )
