"""The controller of AReaL: dispatch by plan, with the rows riding on `ppo_update`.

Guarantees: every minibatch trains the trajectories that AReaL would have put into it; the sequences of a
trajectory, and of a dispatch group, stay in one cell.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.integrations.areal.allocator import Allocate
from routepack_opt.integrations.dispatch import Slots, plan_dispatch
from routepack_opt.integrations.own import Groups, swap, two_stages, upstream
from routepack_opt.integrations.rowids import FIELD
from routepack_opt.integrations.seam import Seam

_NO_CAP = 10**12  # what AReaL splits minibatches with


@dataclass(frozen=True, eq=False)
class _Handed:
    """A planned dispatch that the controller is about to make."""

    items: Any
    groups: Groups


_handed: ContextVar[_Handed | None] = ContextVar("routepack_areal_dispatch", default=None)


def dispatch_tensors(own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `_dispatch_tensors`, which deals trajectories out as planned."""

    def dispatch(item_list: Any, dp_size: int, group_size: int = 1) -> tuple[list[list[Any]], Groups]:
        handed = _handed.get()
        if handed is None or handed.items is not item_list or len(handed.groups) != dp_size:
            return own(item_list, dp_size, group_size=group_size)  # type: ignore[no-any-return]
        return [[item_list[i] for i in part] for part in handed.groups], handed.groups

    return dispatch


def sequence_lengths(item: Any) -> list[int]:
    """Return the tokens of every sequence of a trajectory, by its attention mask."""
    return [int(n) for n in np.asarray(item["attention_mask"]).sum(axis=-1).reshape(-1)]


def controller_update(
    seam: Seam,
    own: Callable[..., Any],
    own_dispatch: Callable[..., Any],
    *,
    minibatches: int = 1,
    lengths: Callable[[Any], list[int]] = sequence_lengths,
    counts: Callable[[Any], Any] | None = None,
    own_allocate: Allocate | None = None,
) -> Callable[..., Any]:
    """Return a replacement of `PPOActorController.ppo_update`.

    Parameters
    ----------
    seam, own, own_dispatch : Seam and callables
        Where to plan; the controller's method; AReaL's `_dispatch_tensors`.
    minibatches : int
        `ppo_n_minibatches`, the optimizer steps of an update.
    lengths : callable
        Takes a trajectory and returns its sequences' tokens; give one where the controller holds handles.
    counts : callable, optional
        Takes the trajectories and returns the counts of all their sequences [N, L, E].
    own_allocate : callable, optional
        `ffd_allocate`, which AReaL splits minibatches and microbatches with.
    """

    def planned(data: Any, group: int) -> tuple[Groups, IntArray] | None:
        try:
            split = own_allocate or upstream("areal.utils.seqpack", "ffd_allocate")
            parts = own_dispatch(data, seam.planner.config.topology.dp, group_size=group)[1]
            units = _Units([lengths(item) for item in data], parts, group)
            return _plan(seam, units, minibatches, None if counts is None else counts(data), split)
        except Exception as error:
            seam.fail(error)
            return None

    def update(self: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        seam.begin()
        found = planned(data, int(kwargs.get("group_size", 1)))
        if found is None:
            return own(self, data, *args, **kwargs)
        parts, column = found
        token = _handed.set(_Handed(data, parts))
        try:
            return own(self, data, *args, **{FIELD: _ride(column)}, **kwargs)
        finally:
            _handed.reset(token)

    return update


def _ride(column: IntArray) -> list[dict[str, Any]]:
    """Return the rows in the shape of trajectories, so that the controller deals them out with the data."""
    import torch

    return [{FIELD: torch.as_tensor(row.copy())} for row in column]


class _Units:
    """What AReaL never parts at dispatch: `group` consecutive trajectories with all their sequences."""

    def __init__(self, sizes: list[list[int]], groups: Groups, group: int) -> None:
        self.tokens = [n for each in sizes for n in each]
        self.first = np.concatenate([[0], np.cumsum([len(each) for each in sizes])]).tolist()
        self.owner = np.repeat(np.arange(len(sizes)), [len(each) for each in sizes])
        self.members: list[list[int]] = []
        self.slots: list[list[int]] = []
        for part in groups:
            start = len(self.members)
            for k in range(0, len(part), group):
                self.members.append([s for i in part[k : k + group] for s in self.sequences(i)])
            self.slots.append(list(range(start, len(self.members))))

    def sequences(self, item: int) -> range:
        """Return the sequences of a trajectory."""
        return range(self.first[item], self.first[item + 1])

    def weight(self, unit: int) -> int:
        """Return the tokens of a unit."""
        return sum(self.tokens[s] for s in self.members[unit])

    def together(self, window: list[int]) -> dict[str, Any]:
        """Return the rule that keeps the units of a window whole."""
        place = {sequence: k for k, sequence in enumerate(window)}
        several = [unit for unit in self.members if len(unit) > 1 and unit[0] in place]
        return {"same_cell": tuple(tuple(place[s] for s in unit) for unit in several)}


def _plan(
    seam: Seam, units: _Units, minibatches: int, counts: Any, split: Allocate
) -> tuple[Groups, IntArray] | None:
    """Return the trajectories of every rank, and each one's row."""
    config = seam.planner.config
    cut = two_stages(units.slots, partial(_split, split, units.weight, _NO_CAP, 1), minibatches)
    if cut is None or len(cut) != minibatches:
        seam.refuse("the ranks cannot be cut into minibatches alike")
        return None
    steps = [[[s for u in slot for s in units.members[u]] for slot in step] for step in cut]

    def own(slots: Slots, tokens: list[int]) -> Any:
        pack = partial(_split, split, tokens.__getitem__, config.capacity, config.rules.row_multiple)
        return two_stages(slots, pack, config.rules.min_rows)

    found = plan_dispatch(
        seam,
        units.tokens,
        steps,
        counts=counts,
        own=own,
        rules_of=units.together,
        equal_samples_per_slot=all(len({len(slot) for slot in step}) == 1 for step in steps),
    )
    if found is None:
        return None
    parts = [list(dict.fromkeys(units.owner[slot].tolist())) for slot in found.slots]
    return parts, found.column[units.first[:-1]]


def _split(
    split: Allocate,
    weight: Callable[[int], int],
    capacity: int,
    multiple: int,
    slot: Sequence[int],
    least: int,
) -> Groups:
    """Return what AReaL splits one rank's samples into, in its order."""
    groups = split([weight(i) for i in slot], capacity, min_groups=least, n_groups_divisor=multiple)
    return sorted(sorted(int(i) for i in group) for group in groups)


def install_controller(seam: Seam, **options: Any) -> None:
    """Put planned dispatch into AReaL's controller; `options` are those of :func:`controller_update`."""
    module = import_module("areal.infra.controller.train_controller")
    own_dispatch = swap(module, "_dispatch_tensors", dispatch_tensors)
    controller = upstream("areal.trainer.ppo.actor", "PPOActorController")
    swap(controller, "ppo_update", lambda own: controller_update(seam, own, own_dispatch, **options))
