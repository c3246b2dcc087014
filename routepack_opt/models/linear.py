"""A linear model in whole numbers: variables, rows and named objectives, before any solver sees it.

Guarantees: every coefficient and bound is a Python int; the largest absolute sum that any row or objective
can take is below 2^62 (checked by :meth:`LinearModel.check`). CP-SAT and MIP are translations of this one
object, so they solve the same model.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from routepack_opt.errors import InputError

_LIMIT = 2**62
Terms = Iterable[tuple[int, int]]


@dataclass(frozen=True)
class Row:
    """``low <= sum(coefficient * variable) <= high``; None leaves a side open.

    Parameters
    ----------
    family : str
        The rule that the row states; infeasibility is explained in families.
    terms : tuple of (variable, coefficient)
        Distinct variables.
    low, high : int or None
        Sides.
    """

    family: str
    terms: tuple[tuple[int, int], ...]
    low: int | None
    high: int | None


@dataclass
class LinearModel:
    """Variables 0 .. n-1 with names and bounds, rows, and objectives that are single variables.

    Attributes
    ----------
    names : list of str
        Name of every variable.
    bounds : list of (int, int)
        Inclusive range of every variable.
    whole : list of bool
        Whether a MIP must branch on the variable; the others come out whole by themselves at an optimum.
    rows : list of Row
        Constraints.
    """

    names: list[str] = field(default_factory=list)
    bounds: list[tuple[int, int]] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    def variable(self, name: str, low: int, high: int, *, whole: bool = False) -> int:
        """Add a variable and return its index."""
        self.names.append(name)
        self.bounds.append((int(low), int(high)))
        self.whole.append(whole)
        return len(self.names) - 1

    def binary(self, name: str) -> int:
        """Add a 0-1 variable and return its index."""
        return self.variable(name, 0, 1, whole=True)

    def row(self, family: str, terms: Terms, low: int | None = None, high: int | None = None) -> None:
        """Add a row; equal variables are merged, zero terms and rows that always hold are dropped."""
        merged: dict[int, int] = {}
        for index, coefficient in terms:
            merged[index] = merged.get(index, 0) + int(coefficient)
        kept = tuple((index, c) for index, c in merged.items() if c)
        if not kept and (low or 0) <= 0 <= (high or 0):
            return
        self.rows.append(
            Row(family, kept, None if low is None else int(low), None if high is None else int(high))
        )

    def largest_sum(self, terms: Terms) -> int:
        """Largest absolute value that a sum of terms can take along the way."""
        return sum(abs(c) * max(abs(self.bounds[i][0]), abs(self.bounds[i][1])) for i, c in terms)

    def check(self) -> LinearModel:
        """Return the model, or raise when a sum could leave 62 bits.

        Raises
        ------
        InputError
            Naming the family of the row and the sum.
        """
        for row in self.rows:
            worst = max(self.largest_sum(row.terms), abs(row.low or 0), abs(row.high or 0))
            if worst >= _LIMIT:
                remedy = "Use coefficients with fewer digits"
                raise InputError("row sums below 2^62", f"{worst} in a {row.family} row", "model", remedy)
        return self

    def violated(self, values: Sequence[int]) -> Row | None:
        """Return the first row that `values` break, or None; for tests and for hints."""
        for row in self.rows:
            total = sum(c * values[i] for i, c in row.terms)
            if (row.low is not None and total < row.low) or (row.high is not None and total > row.high):
                return row
        return None

    def as_json(self) -> dict[str, Any]:
        """Return the model without names, for another process."""
        rows = [[row.low, row.high, [list(term) for term in row.terms]] for row in self.rows]
        return {"bounds": [list(b) for b in self.bounds], "whole": list(self.whole), "rows": rows}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> LinearModel:
        """Rebuild a model written by :meth:`as_json`."""
        bounds = [(int(low), int(high)) for low, high in data["bounds"]]
        rows = [Row("", tuple((i, c) for i, c in terms), low, high) for low, high, terms in data["rows"]]
        return cls([f"v{k}" for k in range(len(bounds))], bounds, list(data["whole"]), rows)
