"""The layout: which cell every sample runs in.

Guarantees: a layout that :meth:`Layout.validate` accepts keeps every sample exactly once, leaves no cell
empty, and obeys the cap and every rule of the problem. A layout is never rewritten by its signature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, frozen, nested, whole_number, whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.problem import Problem

Cells = tuple[tuple[tuple[int, ...], ...], ...]


@dataclass(frozen=True, eq=False)
class Layout:
    """An assignment of samples to the R x D rectangle of cells.

    Parameters
    ----------
    cell_of_sample : array_like of int, shape (N,)
        Flat cell ``row * dp + slot`` of every sample.
    rows, dp : int
        R and D.

    Raises
    ------
    InputError
        When a cell index is out of range.
    """

    cell_of_sample: IntArray
    rows: int
    dp: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "rows", whole_number(self.rows, "rows", low=1))
        object.__setattr__(self, "dp", whole_number(self.dp, "dp", low=1))
        high = self.rows * self.dp - 1
        cells = whole_numbers(self.cell_of_sample, "cell_of_sample", shape=(None,), high=high)
        object.__setattr__(self, "cell_of_sample", cells)

    @classmethod
    def from_cells(cls, cells: Sequence[Sequence[Sequence[int]]], *, size: int | None = None) -> Layout:
        """Build a layout from ``cells[r][d]``, lists of sample ids.

        Parameters
        ----------
        cells : nested sequence
            R rows of D cells.
        size : int, optional
            N; the number of ids given when left out.

        Raises
        ------
        InputError
            For rows of unequal width, and for a sample that is missing, repeated or out of range.
        """
        wanted = "cells[r][d] to be a list of sample ids"
        grid = [nested(row, f"cells[{r}]", wanted) for r, row in enumerate(nested(cells, "cells", wanted))]
        rows, dp = len(grid), len(grid[0]) if grid else 0
        for r, row in enumerate(grid):
            if len(row) != dp:
                raise InputError(f"{dp} cells in every row", f"{len(row)} in row {r}", "cells")
        if rows == 0 or dp == 0:
            raise InputError("at least one row with one cell", "none", "cells")
        count = sum(len(cell) for row in grid for cell in row) if size is None else size
        where = np.full(count, -1, np.int64)
        for r, row in enumerate(grid):
            for d, cell in enumerate(row):
                for i in cell:
                    i = whole_number(i, f"cells[{r}][{d}]", high=max(count - 1, 0))
                    if where[i] >= 0:
                        found = f"sample {i} in cells {divmod(int(where[i]), dp)} and {(r, d)}"
                        raise InputError("every sample exactly once", found, "cells")
                    where[i] = r * dp + d
        if count == 0 or (where < 0).any():
            found = f"sample {int(np.argmax(where < 0))} missing" if count else "no sample"
            raise InputError("every sample exactly once", found, "cells")
        return cls(where, rows, dp)

    @classmethod
    def from_items(cls, problem: Problem, cell_of_item: npt.NDArray[np.integer], rows: int) -> Layout:
        """Build a layout from the flat cell of every item, int (M,)."""
        cells = np.asarray(cell_of_item, np.int64)[problem.items.of_sample]
        return cls(cells, rows, problem.topology.dp)

    def cell_of_item(self, problem: Problem) -> IntArray:
        """Flat cell of every item of `problem`, int64 (M,); the layout must keep `same_cell`."""
        items = problem.items
        return frozen(self.cell_of_sample[items.members[items.offsets[:-1]]])

    @cached_property
    def cells(self) -> Cells:
        """``cells[r][d]``: sorted tuple of sample ids."""
        order = np.argsort(self.cell_of_sample, kind="stable")
        bounds = np.searchsorted(self.cell_of_sample[order], np.arange(self.rows * self.dp + 1))
        flat = [tuple(order[a:b].tolist()) for a, b in pairwise(bounds)]
        return tuple(tuple(flat[r * self.dp : (r + 1) * self.dp]) for r in range(self.rows))

    def permuted_rows(self, order: Sequence[int] | IntArray) -> Layout:
        """Return the layout whose row k is this layout's row ``order[k]``; the score does not change."""
        place = np.argsort(np.asarray(order))
        row, slot = np.divmod(self.cell_of_sample, self.dp)
        return Layout(place[row] * self.dp + slot, self.rows, self.dp)

    def signature(self, problem: Problem) -> bytes:
        """Bytes that are equal for layouts that differ only by the order of rows and of cells inside a shard.

        Under `equal_samples_per_slot` slots keep their identity inside a row, and only rows are sorted.
        """
        fixed = problem.rules.equal_samples_per_slot
        rows = []
        for row in self.cells:
            shards = [tuple(row[d] for d in part) for part in problem.topology.shards]
            rows.append(tuple(cells if fixed else tuple(sorted(cells)) for cells in shards))
        return repr(sorted(rows)).encode()

    def validate(self, problem: Problem) -> Layout:
        """Return the layout, or raise with the first rule that it breaks.

        Raises
        ------
        InputError
            Naming the rule and the row, slot or sample.
        """
        broken = self.broken_rule(problem)
        if broken is not None:
            raise InputError(*broken, where="layout")
        return self

    def broken_rule(self, problem: Problem) -> tuple[str, str] | None:
        """Return what the first broken rule expects and what was found, or None."""
        if self.cell_of_sample.size != problem.window.size:
            return f"{problem.window.size} samples", f"{self.cell_of_sample.size}"
        if self.dp != problem.topology.dp:
            return f"{problem.topology.dp} slots", f"{self.dp}"
        for check in (_rows, _fill, _same_cell, _cap, _max_samples, _row_class, _equal_samples):
            broken = check(self, problem)
            if broken is not None:
                return broken
        return None

    def name_of(self, cell: int) -> str:
        """Say which cell a flat index means: ``row 2, slot 5``."""
        return f"row {cell // self.dp}, slot {cell % self.dp}"


def _rows(layout: Layout, problem: Problem) -> tuple[str, str] | None:
    rules = problem.rules
    if layout.rows * layout.dp > problem.items.size:
        pieces = (
            "samples" if problem.items.size == problem.window.size else "items (same_cell tuples count once)"
        )
        found = f"{problem.items.size} for {layout.rows} rows of {layout.dp} slots"
        return f"at least {layout.rows * layout.dp} {pieces}, none of the cells empty", found
    if layout.rows < rules.min_rows:
        return f"at least min_rows={rules.min_rows} rows", f"{layout.rows}"
    if layout.rows % rules.row_multiple:
        return f"a multiple of row_multiple={rules.row_multiple} rows", f"{layout.rows}"
    return None


def _fill(layout: Layout, problem: Problem) -> tuple[str, str] | None:
    count = np.bincount(layout.cell_of_sample, minlength=layout.rows * layout.dp)
    if count.min() == 0:
        return "no empty cell", f"{layout.name_of(int(np.argmin(count)))} empty"
    return None


def _same_cell(layout: Layout, problem: Problem) -> tuple[str, str] | None:
    items = problem.items
    apart = layout.cell_of_sample != layout.cell_of_item(problem)[items.of_sample]
    if apart.any():
        i = int(np.argmax(apart))
        group = tuple(items.samples_of(int(items.of_sample[i])))
        return f"samples {group} in one cell (same_cell)", f"sample {i} apart"
    return None


def _cap(layout: Layout, problem: Problem) -> tuple[str, str] | None:
    items, cell = problem.items, layout.cell_of_item(problem)
    count = layout.rows * layout.dp
    tokens = np.bincount(cell, weights=items.tokens, minlength=count).astype(np.int64)
    number = np.bincount(cell, minlength=count)
    holds_alone = np.zeros(count, bool)
    holds_alone[cell[items.alone]] = True
    if (holds_alone & (number > 1)).any():
        k = int(np.argmax(holds_alone & (number > 1)))
        return "an oversize sample in a cell of its own", f"{number[k]} items in {layout.name_of(k)}"
    over = (tokens > problem.cell_cap) & ~holds_alone
    if over.any():
        k = int(np.argmax(over))
        return f"at most {problem.cell_cap} tokens in a cell", f"{tokens[k]} in {layout.name_of(k)}"
    return None


def _max_samples(layout: Layout, problem: Problem) -> tuple[str, str] | None:
    limit = problem.rules.max_samples_per_cell
    count = np.bincount(layout.cell_of_sample)
    if limit is not None and count.max() > limit:
        k = int(np.argmax(count))
        return f"at most max_samples_per_cell={limit} samples", f"{count[k]} in {layout.name_of(k)}"
    return None


def _row_class(layout: Layout, problem: Problem) -> tuple[str, str] | None:
    if problem.rules.row_class is None:
        return None
    row, classes = layout.cell_of_item(problem) // layout.dp, problem.items.row_class
    first = np.zeros(layout.rows, np.int64)
    first[row[::-1]] = classes[::-1]
    mixed = classes != first[row]
    if mixed.any():
        m = int(np.argmax(mixed))
        return (
            "samples of one row_class in a row",
            f"classes {first[row[m]]} and {classes[m]} in row {row[m]}",
        )
    return None


def _equal_samples(layout: Layout, problem: Problem) -> tuple[str, str] | None:
    if not problem.rules.equal_samples_per_slot:
        return None
    count = np.bincount(layout.cell_of_sample % layout.dp, minlength=layout.dp)
    if count.min() != count.max():
        low, high = int(np.argmin(count)), int(np.argmax(count))
        found = f"{count[low]} in slot {low} and {count[high]} in slot {high}"
        return "the same number of samples in every slot (equal_samples_per_slot)", found
    return None
