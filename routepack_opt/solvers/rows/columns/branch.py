"""Branch and price: which pattern holds the largest item that is left.

Guarantees: ``infeasible`` means that every packing was excluded, node by node, by a whole-number dual bound
or by trying all patterns that its slack allows; anything cut short is ``unknown``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from routepack_opt.solvers.rows.columns.dive import dive, finish
from routepack_opt.solvers.rows.columns.enumeration import LARGEST_TABLE, list_patterns
from routepack_opt.solvers.rows.columns.generate import generate
from routepack_opt.solvers.rows.columns.master import IntArray, Sizes

MOST_CHILDREN = 20_000


class _CutShortError(Exception):
    """The deadline passed, or a node has too many patterns to branch on."""


@dataclass
class BranchAndPrice:
    """A search for a packing into a given number of bins.

    Some packing (if there is any) gives the largest item a maximal pattern: items moved into its bin leave
    no other bin fuller. So the children of a node are the maximal patterns that hold its largest item and
    weigh enough under the node's dual, heaviest first.

    Parameters
    ----------
    deadline : float
    clock : callable
    """

    deadline: float
    clock: Callable[[], float] = time.monotonic
    nodes: int = 0
    _failed: set[bytes] = field(default_factory=set)

    def search(self, sizes: Sizes, patterns: list[IntArray], count: int) -> tuple[str, list[IntArray] | None]:
        """Search for a packing: ``feasible`` with its patterns, ``infeasible`` or ``unknown``."""
        if sizes.size.size * (sizes.cap + 1) > LARGEST_TABLE:
            return "unknown", None
        try:
            found = self._node(sizes, patterns, count)
        except _CutShortError:
            return "unknown", None
        return ("infeasible", None) if found is None else ("feasible", found)

    def _node(self, left: Sizes, patterns: list[IntArray], count: int) -> list[IntArray] | None:
        if not left.demand.any():
            return []
        key = left.demand.tobytes()
        if count <= 0 or key in self._failed:
            return None
        self.nodes += 1
        columns = generate(left, patterns, count + 1, self.deadline, self.clock)
        if columns.bins > count:
            self._failed.add(key)
            return None
        if self.clock() >= self.deadline:
            raise _CutShortError
        quick = finish(left, count, proposals=3_000, seed=self.nodes)
        if quick is None and self.nodes % 8 == 1:
            quick = dive(left, columns, count, self.deadline, None, self.clock)
        if quick is not None:
            return quick
        for pattern in self._children(left, columns.bound.weights, columns.bound.k, count):
            found = self._node(left.less(pattern), columns.master.patterns, count - 1)
            if found is not None:
                return [pattern, *found]
        self._failed.add(key)
        return None

    def _children(self, left: Sizes, weights: IntArray, k: int, count: int) -> list[IntArray]:
        """Maximal patterns with the largest item that the slack of the node allows, heaviest first."""
        least = k - (count * k - int((weights * left.demand).sum()))
        largest = int(np.flatnonzero(left.demand)[0])
        rows = list_patterns(left, weights, least, MOST_CHILDREN, largest)
        if rows is None:
            raise _CutShortError
        dense = [np.bincount(row[row >= 0], minlength=left.size.size).astype(np.int64) for row in rows]
        return sorted(dense, key=lambda pattern: (-int(weights @ pattern), -int(left.size @ pattern)))
