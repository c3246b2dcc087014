"""Arc-flow models of the bins of one class, as plain arrays for a MIP solver.

Guarantees: a flow of value K corresponds to a packing into K bins and back; both graphs hold only positions
that sums of items can reach.

``arcflow`` is the model of Valerio de Carvalho (1999). ``reflect`` is the half-size graph of Delorme and Iori
(2020): a bin is two paths from 0 to the middle, one of which takes a reflected arc.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class FlowModel:
    """A MIP in arrays: minimize ``cost x`` with ``low <= A x <= high``, ``0 <= x``, x whole.

    Attributes
    ----------
    cost : float64[n]
    row, column : int64[nz]
    value : float64[nz]
        The matrix A, by entries.
    low, high : float64[m]
    """

    cost: NDArray[np.float64]
    row: IntArray
    column: IntArray
    value: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


class _Builder:
    """Collects columns over rows that are named on first use."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], int] = {}
        self.cost: list[float] = []
        self.entries: list[tuple[int, int, float]] = []

    def column(self, cost: float, terms: list[tuple[tuple[str, int], float]]) -> None:
        index = len(self.cost)
        self.cost.append(cost)
        for name, value in terms:
            row = self.rows.setdefault(name, len(self.rows))
            self.entries.append((row, index, value))

    def build(self, sizes: list[int], demand: list[int]) -> FlowModel:
        """Flow rows are balanced, size rows meet their demand."""
        low, high = np.zeros(len(self.rows)), np.zeros(len(self.rows))
        need = dict(zip(sizes, demand, strict=True))
        for (kind, key), row in self.rows.items():
            if kind == "size":
                low[row], high[row] = need[key], np.inf
        rows, columns, values = (np.array(part) for part in zip(*self.entries, strict=True))
        return FlowModel(np.array(self.cost), rows, columns, values, low, high)


def arcflow(sizes: IntArray, demand: IntArray, cap: int) -> FlowModel:
    """Build the arc-flow model: a bin is a path from 0 to the capacity whose arcs are items in order.

    Parameters
    ----------
    sizes, demand : int64[m]
        Distinct sizes, decreasing, and how many items have each.
    cap : int
    """
    build = _Builder()
    reached = np.zeros(cap + 1, dtype=np.bool_)
    reached[0] = True
    for size, copies in zip(sizes.tolist(), demand.tolist(), strict=True):
        arcs: set[int] = set()
        heads = np.flatnonzero(reached[: cap + 1 - size]).tolist()
        for _ in range(copies):
            heads = [h for h in heads if h + size <= cap and h not in arcs]
            arcs.update(heads)
            heads = [h + size for h in heads]
            if not heads:
                break
        for tail in sorted(arcs):
            reached[tail + size] = True
            terms = [(("size", size), 1.0), (("node", tail + size), 1.0)]
            if tail:
                terms.append((("node", tail), -1.0))
            build.column(1.0 if tail == 0 else 0.0, terms)
    # whatever is left of a bin is lost: a path may end anywhere
    for node in np.flatnonzero(reached[1:]).tolist():
        build.column(0.0, [(("node", node + 1), -1.0)])
    return build.build(sizes.tolist(), demand.tolist())


def reflect(sizes: IntArray, demand: IntArray, cap: int) -> FlowModel:
    """Build the reflect model, on positions up to half the capacity.

    Parameters
    ----------
    sizes, demand : int64[m]
        Distinct sizes, decreasing, and how many items have each.
    cap : int

    Notes
    -----
    With everything doubled the middle is the whole number ``cap``. A standard arc (d, d + w) stays under it,
    a reflected arc (d, 2 cap - d - w) passes it. A bin is one path with a reflected arc and one without,
    which meet: what ends at a node by standard arcs either goes on or is met by a reflected arc. The arc
    (cap, cap) closes a bin whose two paths both stay in their half.
    """
    build = _Builder()
    reached = np.zeros(cap + 1, dtype=np.bool_)
    reached[[0, cap]] = True
    for size, copies in zip(sizes.tolist(), demand.tolist(), strict=True):
        for tail in _tails(reached, 2 * size, copies, cap):
            end = tail + 2 * size
            if end <= cap:
                reached[end] = True
                build.column(0.0, [(("size", size), 1.0), *_standard(tail, end)])
            elif end <= 2 * cap:
                reached[2 * cap - end] = True
                build.column(1.0, [(("size", size), 1.0), *_reflected(tail, 2 * cap - end)])
    nodes = np.flatnonzero(reached).tolist()
    for node, following in pairwise(nodes):
        build.column(0.0, _standard(node, following))
    build.column(1.0, _reflected(cap, cap))
    return build.build(sizes.tolist(), demand.tolist())


def _tails(reached: NDArray[np.bool_], width: int, copies: int, middle: int) -> list[int]:
    """Positions under the middle where an item of this width may start, up to so many copies in a row."""
    heads = np.flatnonzero(reached[:middle]).tolist()
    tails: set[int] = set()
    for _ in range(copies):
        tails.update(heads)
        heads = [h + width for h in heads if h + width < middle and h + width not in tails]
    return sorted(tails)


def _standard(tail: int, head: int) -> list[tuple[tuple[str, int], float]]:
    return [(("node", head), 1.0), (("node", tail), 1.0 if tail == 0 else -1.0)]


def _reflected(tail: int, head: int) -> list[tuple[tuple[str, int], float]]:
    """Two paths leave position 0 for every reflected arc; the one met at position 0 has no arc."""
    at_head = (("node", head), 1.0 if head == 0 else -1.0)
    at_tail = (("node", tail), 1.0 if tail == 0 else -1.0)
    return _merge([at_head, at_tail, (("node", 0), -2.0)])


def _merge(terms: list[tuple[tuple[str, int], float]]) -> list[tuple[tuple[str, int], float]]:
    total: dict[tuple[str, int], float] = {}
    for name, value in terms:
        total[name] = total.get(name, 0.0) + value
    return [(name, value) for name, value in total.items() if value]
