"""QualityDiversitySelect: a population that is good and spread out.

Guarantees: all arithmetic is on integers but one IEEE division per feature, so the same members are chosen on
every host; the first member has the best score; ties break by the lowest index.

Distances and gaps are whole multiples of 1 / ONE.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.problem import Problem
from routepack_opt.solvers.seeding._kernels.distance import common_pairs
from routepack_opt.solvers.seeding.candidates import Seed

ONE = 1 << 20
PROJECTIONS = 8
_WEIGHT = 8  # projections are whole numbers from -8 to 8
_SKETCH_ENTROPY = 0x51CED  # fixed: the same projections for every problem


def quality_diversity_select(
    problem: Problem, pool: Sequence[Seed], population: int, eta: int = 16
) -> list[Seed]:
    """Choose up to `population` seeds of a pool (QualityDiversitySelect, Algorithm 2 line 13).

    First the best score; then, again and again, the seed x that maximizes
    ``min over chosen y of d(x, y) - eta * delta0(x)``, where delta0 is the gap of the primary score to the
    best, relative to the best, and d is :meth:`Space.distances`.

    Parameters
    ----------
    problem : Problem
        Topology, for rows.
    pool : sequence of Seed
        Canonically distinct seeds.
    population : int
        Most seeds to return.
    eta : int
        Weight of quality against distance.

    Returns
    -------
    list of Seed
        In the order of choice.
    """
    seeds = list(pool)
    if not seeds:
        return []
    best = min(range(len(seeds)), key=lambda k: seeds[k].score.components)
    floor = seeds[best].score.primary
    penalty = [eta * ((s.score.primary - floor) * ONE // max(floor, 1)) for s in seeds]
    chosen, left = [best], [k for k in range(len(seeds)) if k != best]
    nearest = None
    space = Space(problem, seeds)
    while left and len(chosen) < population:
        step = space.distances(chosen[-1])
        nearest = step if nearest is None else np.minimum(nearest, step)
        pick = max(left, key=lambda k: (int(nearest[k]) - penalty[k], -k))
        chosen.append(pick)
        left.remove(pick)
    return [seeds[k] for k in chosen]


class Space:
    """Cached sketches of a pool, and the distances between its members.

    Parameters
    ----------
    problem : Problem
        Topology.
    seeds : sequence of Seed
        The pool, all of the same number of rows.
    """

    def __init__(self, problem: Problem, seeds: Sequence[Seed]) -> None:
        cells = np.stack([s.cell_of_item for s in seeds])
        self._labels = (cells, cells // problem.topology.dp)
        self._pairs = [[_pairs(row) for row in labels] for labels in self._labels]
        self._order = np.argsort(cells, axis=1, kind="stable")
        self._sketches = np.stack([sketch(s.features) for s in seeds])

    def distances(self, k: int) -> IntArray:
        """Return the distance of every member to member k: d of Algorithm 2, int64 (size of the pool,).

        The sum of three parts, each at most about ONE: cell co-assignment and row co-assignment (one minus
        the share of common pairs, Dice), and the sliced-Wasserstein distance of the row profiles.
        """
        size = self._order.shape[0]
        total = np.abs(self._sketches - self._sketches[k]).sum(axis=(1, 2))
        total //= PROJECTIONS * self._sketches.shape[2]
        for labels, pairs in zip(self._labels, self._pairs, strict=True):
            seen = np.zeros(int(labels.max()) + 1, np.int64)
            for x in range(size):
                both = pairs[k] + pairs[x]
                if both:
                    shared = common_pairs(self._order[k], labels[k], labels[x], seen)
                    total[x] += ONE - 2 * shared * ONE // both
        return np.asarray(total, np.int64)


def _pairs(labels: IntArray) -> int:
    """Pairs of items with the same label."""
    size = np.bincount(labels)
    return int((size * (size - 1) // 2).sum())


def sketch(features: IntArray) -> IntArray:
    """Sorted projections of the row profile: phi_k = sort(H u_k), int64 (PROJECTIONS, R).

    H holds the features divided by their mean over rows, in fixed point; u_k are fixed whole numbers. A
    distance of ONE means that the rows differ by as much as their mean in every projected direction.
    """
    rows, width = features.shape
    total = np.maximum(features.sum(axis=0), 1)
    scaled = np.floor(features / total * (rows * 4096.0)).astype(np.int64)
    weights = projections(width)
    scale = np.maximum(np.abs(weights).sum(axis=1), 1)
    values = (scaled[:, :, None] * weights.T[None]).sum(axis=1) * (ONE // 4096) // scale
    return np.sort(values, axis=0).T.copy()


def projections(width: int) -> IntArray:
    """Return the fixed projections u_k, int64 (PROJECTIONS, width) with entries from -8 to 8."""
    words = np.random.PCG64(np.random.SeedSequence(_SKETCH_ENTROPY)).random_raw(PROJECTIONS * width)
    return ((words >> np.uint64(32)) % np.uint64(2 * _WEIGHT + 1)).astype(np.int64).reshape(
        -1, width
    ) - _WEIGHT
