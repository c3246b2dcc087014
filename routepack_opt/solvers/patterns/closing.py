"""The lexicographic optimum from row patterns: every layout that could be as good as the best is looked at.

Guarantees: when it ends in time, no layout scores below the result; what it does not cover is refused by
name. Under the bound's duals the slacks of a layout's patterns add up to its distance from the bound, so a
layout that is at least as good as the best one has patterns of little slack only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.bounds.score import placement_bound
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import Score, loads_of, score_of
from routepack_opt.solvers.oracle.splitting import split_in_two
from routepack_opt.solvers.patterns import _kernels as kernels
from routepack_opt.solvers.patterns import table as tables
from routepack_opt.solvers.patterns.bounding import PatternBound, generate
from routepack_opt.solvers.patterns.table import PatternTable

_MOST_PATTERNS = 8_000_000  # of little slack; more take too long
_BATCH = 4096
_FOUND = 65_536


def refusal(problem: Problem) -> str | None:
    """Say why the optimum cannot be found this way, or None when it can."""
    rules, topology = problem.rules, problem.topology
    reason = tables.refusal(problem)
    if reason is not None:
        return reason
    if len(topology.shards[0]) > 2:
        return "more than two slots in a shard"
    if topology.num_shards > 2:
        return f"{topology.num_shards} EDP shards; at most 2"
    if rules.equal_samples_per_slot and topology.dp > 1:
        return "rule equal_samples_per_slot, which ties all rows together"
    if rules.row_class is not None:
        return "rule row_class"
    if rules.max_samples_per_cell is not None:
        return "rule max_samples_per_cell"
    return None


@dataclass(frozen=True)
class PatternResult:
    """What the search knows.

    Parameters
    ----------
    score : Score
        Of `layout`.
    layout : Layout
        Best layout.
    bound : tuple of int
        Lower bound on every component of the optimum.
    optimal : bool
        Whether all three components are proven.
    patterns : int
        Patterns of little enough slack.
    interrupted : bool
        Whether Ctrl-C ended the search; what it had found is kept.
    """

    score: Score
    layout: Layout
    bound: tuple[int, int, int]
    optimal: bool
    patterns: int
    interrupted: bool = False


def solve_by_patterns(
    problem: Problem,
    placement: Placement,
    rows: int,
    hint: Layout,
    *,
    seconds: float | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> PatternResult:
    """Find the lexicographic optimum of a small problem from a good layout.

    Parameters
    ----------
    problem : Problem
        Within the limits of :func:`refusal`.
    placement : Placement
        Fixed.
    rows : int
        R.
    hint : Layout
        A valid layout; the better it is, the fewer patterns there are to look at.
    seconds : float, optional
        Time limit.
    clock : callable
        Returns seconds; for tests.

    Returns
    -------
    PatternResult

    Raises
    ------
    InputError
        When the problem is outside the limits, naming the reason.
    """
    reason = refusal(problem)
    if reason is not None:
        raise InputError("a problem that row patterns solve", reason, "problem")
    deadline = None if seconds is None else clock() + seconds
    search = _Search(problem, placement, rows, hint.validate(problem), deadline, clock)
    done = search.run()
    bound = search.score.components if done else search.floor
    return PatternResult(search.score, search.best, bound, done, search.patterns, search.interrupted)


class _OutOfTimeError(Exception):
    """The deadline has passed."""


class _Search:
    """Best layout so far, and the slack that a better one can have."""

    def __init__(
        self,
        problem: Problem,
        placement: Placement,
        rows: int,
        hint: Layout,
        deadline: float | None,
        clock: Callable[[], float],
    ) -> None:
        self.problem, self.rows, self.deadline, self.clock = problem, rows, deadline, clock
        self.demand = placement.demand(problem.item_counts)
        self.best = hint
        self.score = score_of(problem, loads_of(problem, self.demand, hint))
        self.table = PatternTable(problem, self.demand, rows)
        self.bound: PatternBound = generate(self.table, hint, deadline, clock)
        self.halves = self.table.halves(self.bound.duals)
        counted = placement_bound(problem, rows, self.demand).components
        low = np.maximum(counted, self.bound.components(rows)).tolist()
        self.floor: tuple[int, int, int] = (low[0], low[1], low[2])
        self.patterns = 0
        self.interrupted = False

    @property
    def room(self) -> int:
        """Slack that the patterns of an at least equally good layout have together."""
        most = self.problem.topology.num_shards * self.score.primary * self.bound.scale
        return most - int(self.bound.duals.sum()) - self.table.blocks * self.bound.least

    def run(self) -> bool:
        """Look at every layout that is no worse in its first component; return whether all were seen."""
        try:
            self._descend([], (1 << self.problem.items.size) - 1, 0, *self._near())
        except _OutOfTimeError:
            return False
        except KeyboardInterrupt:
            self.interrupted = True
            return False
        return True

    def _near(self) -> tuple[IntArray, IntArray]:
        """Return the sets that can be any but the two of most slack, by slack, and their slacks."""
        found = np.empty(_MOST_PATTERNS, np.int64)
        share = self.room // min(self.table.blocks, 3)
        limit = self.bound.least + share
        count = kernels.near(self.table.cost, self.bound.scale, *self.halves, limit, found)
        if count > found.size:
            raise _OutOfTimeError
        sets = found[:count].copy()
        for mask in sets.tolist():
            self.table.column(mask)
        sets = sets[self.table.cost[sets] < kernels.IMPOSSIBLE]
        slack = self._slack(sets)
        order = np.argsort(slack, kind="stable")
        order = order[slack[order] <= share]
        self.patterns = order.size
        return sets[order], slack[order]

    def _slack(self, sets: IntArray) -> IntArray:
        low, high = self.halves
        bits = low.size.bit_length() - 1
        worth = low[sets & (low.size - 1)] + high[sets >> bits]
        return np.asarray(self.bound.scale * self.table.cost[sets] - worth - self.bound.least, np.int64)

    def _descend(self, chosen: list[int], rest: int, spent: int, sets: IntArray, slack: IntArray) -> None:
        """Choose patterns by rising slack, until two are left."""
        k = self.table.blocks - len(chosen)
        if self.score.components == self.floor:
            return
        if k == 1:
            self._take([rest])
            return
        if k == 2:
            self._finish(chosen, np.array([rest], np.int64), np.array([self.room - spent], np.int64))
            return
        inside = np.flatnonzero((sets & ~np.int64(rest)) == 0)
        if self.score.components[:2] == self.floor[:2]:  # only a smaller row peak would be better
            inside = inside[self.table.cost[sets[inside]] < self.score.row_peak]
        sets, slack = sets[inside], slack[inside]
        if k == 3:
            for start in range(0, sets.size, _BATCH):
                part = slice(start, start + _BATCH)
                left = self.room - spent - slack[part]
                useful = 2 * slack[part] <= left  # the least slack of three
                self._finish(chosen, rest & ~sets[part][useful], left[useful], sets[part][useful])
            return
        for index, mask in enumerate(sets.tolist()):
            if (self.room - spent) < k * int(slack[index]):
                return
            later = slice(index + 1, None)
            self._descend([*chosen, mask], rest & ~mask, spent + int(slack[index]), sets[later], slack[later])

    def _finish(
        self, chosen: list[int], rests: IntArray, left: IntArray, third: IntArray | None = None
    ) -> None:
        """Split rests into the last two patterns in every way that the slack allows."""
        table, start = self.table, 0
        pair = (table.work, self.problem.items.tokens, self.problem.cell_cap, table.width)
        known = (table.cost, table.exact, self.bound.scale, self.halves, self.bound.least, pair)
        out = np.empty((_FOUND, 2), np.int64)
        while start < rests.size and self.score.components != self.floor:
            if self.deadline is not None and self.clock() >= self.deadline:
                raise _OutOfTimeError
            count, done = kernels.pairs(rests[start:], left[start:], *known, out)
            if done == 0:  # one rest alone has more ways than there is room for
                raise _OutOfTimeError
            for index, first in out[:count].tolist():
                last = [first, int(rests[start + index]) ^ first]
                self._take([*chosen, *last] if third is None else [*chosen, int(third[start + index]), *last])
            start += done

    def _take(self, sets: list[int]) -> None:
        """Keep the layout that the patterns make if it is better."""
        costs = [self.table.column(mask) for mask in sets]
        for first in self._divisions(len(sets)):
            shares = [sum(costs[k] for k in first), sum(costs) - sum(costs[k] for k in first)]
            value = (max(shares), sum(costs), max(costs))
            if value < self.score.components:
                self._make([[sets[k] for k in first], [sets[k] for k in range(len(sets)) if k not in first]])

    def _divisions(self, count: int) -> Iterator[tuple[int, ...]]:
        """Ways to give the patterns to the shards: those of the first one."""
        if self.problem.topology.num_shards == 1:
            yield tuple(range(count))
            return
        for others in combinations(range(1, count), self.rows - 1):
            yield (0, *others)

    def _make(self, shards: list[list[int]]) -> None:
        topology = self.problem.topology
        cell_of_item = np.zeros(self.problem.items.size, np.int64)
        for part, patterns in zip(topology.shards, shards, strict=False):
            for r, mask in enumerate(patterns):
                for d, members in zip(part, self._cells(mask, len(part)), strict=True):
                    cell_of_item[members] = r * topology.dp + d
        layout = Layout.from_items(self.problem, cell_of_item, self.rows).validate(self.problem)
        score = score_of(self.problem, loads_of(self.problem, self.demand, layout))
        if score < self.score:
            self.best, self.score = layout, score

    def _cells(self, mask: int, width: int) -> list[list[int]]:
        members = [m for m in range(self.problem.items.size) if mask >> m & 1]
        return [members] if width == 1 else split_in_two(self.problem, members)
