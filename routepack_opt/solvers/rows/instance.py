"""The bin packing behind the rows of a problem, as plain arrays.

Guarantees: items stand in one fixed order (tokens decreasing, then index), oversize samples are counted
apart, and a window falls into one :class:`ClassBins` per row class.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from routepack_opt.problem import Problem

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class ClassBins:
    """Items of one row class.

    Attributes
    ----------
    row_class : int
    items : int64[m]
        Problem items that share cells, tokens decreasing.
    tokens, samples : int64[m]
        Of these items; tokens in units of ``unit``.
    alone : int64[a]
        Oversize items, each in a cell of its own.
    cap, dp : int
    max_samples : int or None
        None also where the rule cannot bind.
    unit : int
        The common divisor of the tokens, by which ``tokens`` and ``cap`` are divided.
    """

    row_class: int
    items: IntArray
    tokens: IntArray
    samples: IntArray
    alone: IntArray
    cap: int
    dp: int
    max_samples: int | None
    unit: int = 1

    @property
    def size(self) -> int:
        """Items, with the oversize ones."""
        return int(self.items.size + self.alone.size)

    @property
    def most_rows(self) -> int:
        """Rows that its items can fill without an empty cell."""
        return self.size // self.dp

    def rows_of_bins(self, bins: int) -> int:
        """Rows for so many shared bins and the oversize cells; at least 1."""
        return max(1, -(-(bins + self.alone.size) // self.dp))

    def bins_of_rows(self, rows: int) -> int:
        """Shared bins that so many rows leave beside the oversize cells."""
        return rows * self.dp - int(self.alone.size)


@dataclass(frozen=True)
class RowTask:
    """What is to be certified.

    Attributes
    ----------
    classes : tuple of ClassBins
        In increasing order of class.
    size, dp, cap, min_rows, row_multiple : int
    equal_slots : bool
        The rule ``equal_samples_per_slot``.
    samples : int64[size]
        Samples of all items of the problem.
    """

    classes: tuple[ClassBins, ...]
    size: int
    dp: int
    cap: int
    min_rows: int
    row_multiple: int
    equal_slots: bool
    samples: IntArray

    def legal(self, rows: int) -> int:
        """Least row count of at least ``rows`` that ``min_rows`` and ``row_multiple`` allow."""
        return -(-max(rows, self.min_rows, 1) // self.row_multiple) * self.row_multiple

    def previous(self, rows: int) -> int:
        """Greatest legal row count below ``rows``; 0 when there is none."""
        below = (rows - 1) // self.row_multiple * self.row_multiple
        return below if below >= max(1, self.min_rows) else 0

    @property
    def most_rows(self) -> int:
        """Rows that can be filled without an empty cell."""
        return sum(c.most_rows for c in self.classes)

    @classmethod
    def from_problem(cls, problem: Problem) -> RowTask:
        """Read the items, capacity and rules of a problem."""
        items, rules, dp = problem.items, problem.rules, problem.topology.dp
        order = np.argsort(-items.tokens, kind="stable")
        groups = []
        for row_class in np.unique(items.row_class):
            mine = order[items.row_class[order] == row_class]
            shared, alone = mine[~items.alone[mine]], mine[items.alone[mine]]
            groups.append(_class_bins(int(row_class), shared, np.sort(alone), problem))
        return cls(
            classes=tuple(groups),
            size=items.size,
            dp=dp,
            cap=problem.cell_cap,
            min_rows=rules.min_rows,
            row_multiple=rules.row_multiple,
            equal_slots=rules.equal_samples_per_slot,
            samples=items.samples,
        )


def _class_bins(row_class: int, shared: IntArray, alone: IntArray, problem: Problem) -> ClassBins:
    items, cap = problem.items, problem.cell_cap
    tokens, samples = items.tokens[shared], items.samples[shared]
    limit = problem.rules.max_samples_per_cell
    if limit is not None:
        # the lightest tokens per sample show whether so many samples can meet in a cell at all
        order = np.argsort(tokens / np.maximum(samples, 1), kind="stable")
        fit = int(np.searchsorted(np.cumsum(tokens[order]), cap, side="right"))
        if int(samples[order[: fit + 1]].sum()) <= limit:
            limit = None
    unit = max(1, int(np.gcd.reduce(tokens))) if tokens.size else 1
    return ClassBins(
        row_class, shared, tokens // unit, samples, alone, cap // unit, problem.topology.dp, limit, unit
    )
