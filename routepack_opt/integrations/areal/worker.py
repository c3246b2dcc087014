"""The workers of AReaL: minibatch and microbatch splits by the rows that ride on `ppo_update`.

Guarantees: the ranks of a group run the planned rows or, all of them, AReaL's own microbatches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.integrations.own import Groups, swap, upstream
from routepack_opt.integrations.rowids import FIELD, all_agree, read_column, rows_of, tell_own


class _Pass:
    """The planned rows of one `ppo_update` on one rank, taken minibatch by minibatch."""

    def __init__(self, column: IntArray | None) -> None:
        self.column = column
        self.minibatches: list[list[int]] | None = None
        self.next = 0
        self.given_up = False

    def take(self, lens: Sequence[int], spec: Any) -> Groups | None:
        """Return the groups of the next split, or None when it is not the one that was planned."""
        if self.column is None or spec.granularity != 1:
            return None
        if self.minibatches is None:
            windows = np.unique(self.column[:, 0])
            if len(lens) != len(self.column) or (spec.n_mbs or 1) != windows.size:
                return None
            self.minibatches = [np.flatnonzero(self.column[:, 0] == w).tolist() for w in windows]
            return self.minibatches
        if self.next >= len(self.minibatches):
            return None
        mine = self.minibatches[self.next]
        self.next += 1
        rows = rows_of(self.column[mine], int(spec.max_tokens_per_mb))
        fits = (
            rows is not None and len(rows) % (spec.n_mbs_divisor or 1) == 0 and len(rows) >= (spec.n_mbs or 1)
        )
        return rows if fits and len(lens) == len(mine) else None


_pass: ContextVar[_Pass | None] = ContextVar("routepack_areal_pass", default=None)


def _column_of(data: Any, riding: Any) -> IntArray | None:
    """Return the rows of every sequence, or None when they are not those of the trajectories."""
    try:
        repeats = [int(item["attention_mask"].shape[0]) for item in data]
        column = read_column([each[FIELD] for each in riding])
        return None if column is None else np.repeat(column, repeats, axis=0)
    except Exception:  # all_agree tells the other ranks
        return None


def worker_update(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `PPOActor.ppo_update` that takes the rows which ride on the call."""

    def update(self: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        riding = kwargs.pop(FIELD, None)
        planned = None if riding is None else _Pass(_column_of(data, riding))
        token = _pass.set(planned)
        try:
            return own(self, data, *args, **kwargs)
        finally:
            _pass.reset(token)

    return update


def allocate_synced(own: Callable[..., Groups]) -> Callable[..., Groups]:
    """Return a replacement of `allocate_balanced_mbs_synced`, behind minibatch and microbatch splits alike.

    Inside a planned update it returns the planned minibatches, then the rows of each in their order, when all
    ranks of the group can.
    """

    def synced(mb_spec: Any, lens: Any, group: Any = None) -> Groups:
        planned = _pass.get()
        if planned is None or planned.given_up:
            return own(mb_spec, lens, group=group)
        groups = planned.take(lens, mb_spec)
        if all_agree(groups, group) and groups is not None:
            return groups
        tell_own(planned.column)
        planned.given_up = True  # on all ranks; AReaL's own function calls itself by this name
        return own(mb_spec, lens, group=group)

    return synced


def install_worker() -> None:
    """Let this worker run planned rows; call it in every worker, before its engine is made."""
    swap(import_module("areal.utils.data"), "allocate_balanced_mbs_synced", allocate_synced)
    swap(upstream("areal.trainer.ppo.actor", "PPOActor"), "ppo_update", worker_update)
