"""The exact score (Eqs. 5-15) and the load metrics of the paper's tables.

Guarantees: scores are exact int64 arithmetic, compared as integers; floats appear only in
:meth:`Score.as_float` and in :func:`load_metrics`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem


@dataclass(frozen=True)
class Score:
    """(max_g U_g, sum_g U_g, max_{r,g} J[r,g]) in units of 1 / denominator, compared lexicographically.

    Parameters
    ----------
    primary, total, row_peak : int
        The three components times the denominator.
    denominator : int
        C^2 S of the problem; scores with different denominators cannot be compared.
    """

    primary: int
    total: int
    row_peak: int
    denominator: int

    @property
    def components(self) -> tuple[int, int, int]:
        """The three integers."""
        return self.primary, self.total, self.row_peak

    def as_float(self) -> tuple[float, float, float]:
        """Return the components in the units of Eqs. 12-15, for reading."""
        return (
            self.primary / self.denominator,
            self.total / self.denominator,
            self.row_peak / self.denominator,
        )

    def _key(self, other: object) -> tuple[int, int, int]:
        if not isinstance(other, Score):
            raise TypeError(f"cannot compare a Score with {type(other).__name__}")
        if other.denominator != self.denominator:
            found = f"{self.denominator} and {other.denominator}"
            raise InputError(
                "scores of one denominator", found, "Score", "Compare plans of the same capacity and stages"
            )
        return other.components

    def __lt__(self, other: object) -> bool:
        return self.components < self._key(other)

    def __le__(self, other: object) -> bool:
        return self.components <= self._key(other)

    def __gt__(self, other: object) -> bool:
        return self.components > self._key(other)

    def __ge__(self, other: object) -> bool:
        return self.components >= self._key(other)


@dataclass(frozen=True, eq=False)
class Loads:
    """What a layout costs, term by term, in scaled integers.

    Attributes
    ----------
    attention : numpy.ndarray of int64, shape (S, R, G)
        Straggler of every stage: C^2 S times the summand of A[r,g].
    expert : numpy.ndarray of int64, shape (R, G)
        C^2 S times E[r,g].
    routed : numpy.ndarray of int64, shape (R, G, L, P)
        W[r,g,l,p], assignments.
    tokens : numpy.ndarray of int64, shape (R, D)
        Aligned tokens of every cell.
    """

    attention: IntArray
    expert: IntArray
    routed: IntArray
    tokens: IntArray

    @property
    def joint(self) -> IntArray:
        """C^2 S times J[r,g], int64 (R, G)."""
        return np.asarray(self.attention.sum(axis=0) + self.expert, np.int64)


def loads_of(problem: Problem, demand: npt.NDArray[Any], layout: Layout) -> Loads:
    """Compute every term of the score.

    Parameters
    ----------
    problem : Problem
        Units and topology.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    layout : Layout
        A complete layout without empty cells.
    """
    items, topology = problem.items, problem.topology
    cell, rows, dp = layout.cell_of_item(problem), layout.rows, layout.dp
    order = np.argsort(cell, kind="stable")
    starts = np.searchsorted(cell[order], np.arange(rows * dp))
    tokens = np.add.reduceat(items.tokens[order], starts).reshape(rows, dp)
    squares = np.add.reduceat(items.squares[order], starts).reshape(rows, dp)
    stages, shards = len(problem.stages), topology.num_shards
    work = problem.linear[:, None, None] * tokens + problem.quadratic[:, None, None] * squares
    attention = np.zeros((stages, rows, shards), np.int64)
    for g, slots in enumerate(topology.shards):
        attention[:, :, g] = work[:, :, list(slots)].max(axis=2) if stages else 0
    routed = _routed(topology.shard_of_slot, demand, cell, rows, dp, shards)
    peaks = routed.max(axis=3).sum(axis=2) if routed.size else np.zeros((rows, shards), np.int64)
    return Loads(attention, peaks * problem.expert_unit, routed, tokens)


def _routed(
    shard_of_slot: IntArray, demand: npt.NDArray[Any], cell: IntArray, rows: int, dp: int, shards: int
) -> IntArray:
    """Sum the demand over the cells of every row-shard: W[r,g,l,p]."""
    from routepack_opt.placement.projection import sum_by_group

    block = (cell // dp) * shards + shard_of_slot[cell % dp]
    return sum_by_group(demand, block, rows * shards).reshape(rows, shards, *demand.shape[1:])


def score_of(problem: Problem, loads: Loads) -> Score:
    """Fold the terms into the lexicographic score."""
    joint = loads.joint
    by_shard = joint.sum(axis=0)
    return Score(int(by_shard.max()), int(by_shard.sum()), int(joint.max()), problem.denominator)


def score(problem: Problem, placement: Placement, cells: Layout | Sequence[Sequence[Sequence[int]]]) -> Score:
    """Score a layout under a placement, exactly (Eqs. 5-15).

    Parameters
    ----------
    problem : Problem
        The window, topology, stages and rules.
    placement : Placement
        Expert slots per layer.
    cells : Layout or nested sequence
        ``cells[r][d]`` lists of sample ids.

    Returns
    -------
    Score

    Raises
    ------
    InputError
        When the cells break a rule of the problem.
    """
    layout = cells if isinstance(cells, Layout) else Layout.from_cells(cells, size=problem.window.size)
    layout.validate(problem)
    return score_of(problem, loads_of(problem, demand_of(problem, placement), layout))


def demand_of(problem: Problem, placement: Placement) -> npt.NDArray[Any]:
    """Project the items of a problem on the EP ranks (Eq. 5): q, whole numbers of shape (M, L, P).

    Raises
    ------
    InputError
        When the placement is of other ranks, layers or experts than the problem.
    """
    if placement.ranks != problem.topology.ep:
        raise InputError(f"{problem.topology.ep} ranks, as topology.ep", f"{placement.ranks}", "placement")
    return placement.demand(problem.item_counts)


def load_metrics(problem: Problem, placement: Placement, loads: Loads) -> dict[str, float]:
    """Metrics of the paper's tables and of Figure 7.

    Parameters
    ----------
    problem : Problem
        Units.
    placement : Placement
        For the global EP-rank CV.
    loads : Loads
        Terms of one layout.

    Returns
    -------
    dict of str to float
        ``joint`` max_g sum_r J; ``attention`` sum_{r,g} A; ``ep_peak_sum`` sum_{r,l} max_{g,p} W;
        ``ep_tail_peak`` max W; ``ep_balance_efficiency`` (Eq. 23, 1 without assignments); ``cv_global`` (Eqs.
        21-22, layers without assignments skipped).
    """
    unit = problem.denominator
    routed = loads.routed
    result = {
        "joint": float(loads.joint.sum(axis=0).max()) / unit,
        "attention": float(loads.attention.sum()) / unit,
        "ep_peak_sum": 0.0,
        "ep_tail_peak": 0.0,
        "ep_balance_efficiency": 1.0,
        "cv_global": global_cv(problem, placement),
    }
    if routed.size:
        peak = int(routed.max(axis=(1, 3)).sum())
        mean = float(routed.sum(axis=3).max(axis=1).sum()) / routed.shape[3]
        result["ep_peak_sum"], result["ep_tail_peak"] = float(peak), float(routed.max())
        result["ep_balance_efficiency"] = mean / peak if peak else 1.0
    return result


def global_cv(problem: Problem, placement: Placement) -> float:
    """CV_global of Eqs. 21-22: mean over layers of the standard deviation over the mean of the rank loads."""
    ratios = []
    for loads in placement.demand(problem.loads[None])[0].astype(np.int64):
        mean = float(loads.sum()) / loads.size
        if mean > 0:
            ratios.append(float(np.sqrt(np.mean((loads - mean) ** 2))) / mean)
    return float(np.mean(ratios)) if ratios else 0.0
