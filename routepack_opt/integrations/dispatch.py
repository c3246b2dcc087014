"""Plans for trainers that reorder a batch, cut it into equal parts for the ranks, and pack again on each.

Guarantees: every optimizer step trains the samples that it would have trained without a plan; every slot gets
the same number of samples in every step; all windows of a batch are planned, or none is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.integrations.rowids import row_column, slots_of
from routepack_opt.integrations.seam import Seam
from routepack_opt.layout import Layout
from routepack_opt.planner.request import OwnLayout

Slots = Sequence[Sequence[int]]


@dataclass(frozen=True, eq=False)
class Dispatch:
    """How a batch is handed out.

    Attributes
    ----------
    slots : list of D lists of int
        Batch positions of every slot, step by step and row by row.
    column : numpy.ndarray of int64, shape (N, 5)
        Rows by batch position (before reordering), see :mod:`routepack_opt.integrations.rowids`.
    """

    slots: list[list[int]]
    column: IntArray

    @property
    def order(self) -> list[int]:
        """Batch positions slot by slot: reorder the batch so, then cut it into D equal parts."""
        return [i for slot in self.slots for i in slot]


def step_windows(size: int, window: int, dp: int) -> list[list[list[int]]] | None:
    """Return the samples of every optimizer step, slot by slot, in a batch that is cut into equal parts.

    Parameters
    ----------
    size : int
        Samples of the batch; part d of D goes to slot d.
    window : int
        Samples of one optimizer step over all slots; a slot takes its part in consecutive pieces.
    dp : int
        D.

    Returns
    -------
    list of lists of D lists of int, or None
        ``steps[w][d]``, batch positions; None when parts or steps are not equal.
    """
    if window < dp or window % dp or size % window:
        return None
    part, piece = size // dp, window // dp
    return [
        [list(range(d * part + w * piece, d * part + (w + 1) * piece)) for d in range(dp)]
        for w in range(size // window)
    ]


def plan_dispatch(
    seam: Seam,
    lengths: Sequence[int],
    steps: Sequence[Slots] | None,
    *,
    counts: Any = None,
    routing: Callable[[list[int]], Any] | None = None,
    own: Callable[[Slots, list[int]], OwnLayout | None] | None = None,
    rules_of: Callable[[list[int]], dict[str, Any]] | None = None,
    **more: Any,
) -> Dispatch | None:
    """Plan every optimizer step of a batch.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    lengths : sequence of int, length N
        Tokens of every sample of the batch.
    steps : nested sequence, or None
        ``steps[w][d]``, batch positions; None refuses the batch.
    counts : array_like of int, shape (N, L, E), optional
        Routed tokens of the batch.
    routing : callable, optional
        Takes batch positions and returns their replay.
    own : callable, optional
        Takes a step's slots as positions in the step and the step's lengths; returns the cells that the
        trainer would run.
    rules_of : callable, optional
        Takes batch positions and returns rules of that step.
    **more
        For :meth:`Seam.plan`.
    """
    if steps is None:
        seam.refuse("the batch is not cut into equal steps and slots")
        return None
    layouts: list[Layout] = []
    windows = [[i for slot in step for i in slot] for step in steps]
    for window, step in zip(windows, steps, strict=True):
        tokens = [int(lengths[i]) for i in window]
        found = seam.plan(
            tokens,
            dp=len(step),
            counts=None if counts is None else np.asarray(counts)[window],
            routing=None if routing is None else partial(routing, window),
            own=None if own is None else partial(own, _positions(step), tokens),
            **({"equal_samples_per_slot": True} | more | (rules_of(window) if rules_of is not None else {})),
        )
        if found is None or found.layout is None:
            return None
        layouts.append(found.layout)
    return Dispatch(slots_of(layouts, windows), row_column(layouts, windows, lengths))


def _positions(step: Slots) -> list[list[int]]:
    """Return a step's slots as positions in the step, slot after slot."""
    slots, start = [], 0
    for slot in step:
        slots.append(list(range(start, start + len(slot))))
        start += len(slot)
    return slots
