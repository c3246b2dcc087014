"""Megatron-Core: a packing scheduler for `megatron.core.datasets.data_schedule`.

Guarantees: every rank returns the same groups, planned or not; row r on a data-parallel slot is one list on
all context-parallel ranks of that slot; what cannot be planned is scheduled by the class derived from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from routepack_opt.errors import InputError
from routepack_opt.integrations.own import Once, upstream
from routepack_opt.integrations.seam import Seam
from routepack_opt.planner.agreement import Gather
from routepack_opt.plans import Plan

#: Version whose contract this module was written for; no release up to 0.19.2 has the scheduler.
READ_FROM = "Megatron-LM d98e8a64 (core 0.20.0)"

Groups = list[list[list[int]]]

_NAME = "RoutePackScheduler"


def packing_scheduler(
    seam: Seam,
    base: type | None = None,
    *,
    gather: Gather | None = None,
    rank: int = 0,
    counts: Callable[[Sequence[int]], Any] | None = None,
    routing: Callable[[Sequence[int]], Any] | None = None,
) -> type:
    """Return a scheduler class to put into `scheduler_map`.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    base : type, optional
        The scheduler to derive from and to fall back to; `DpBalancedScheduler` when left out.
    gather : callable, optional
        All-gather of bytes over all ranks that schedule, those of every pipeline stage, such as
        :func:`routepack_opt.integrations.collective.gather_over`. Rank 0 plans and all take its plan.
    rank : int
        This rank in that group.
    counts, routing : callable, optional
        Take the ids and return their counts, or their replay; needed on the rank that plans.

    Raises
    ------
    InputError
        Without `gather` every rank plans for itself, so the search must be reproducible: it needs
        ``search.proposals`` and no deadline.
    """
    if gather is None:
        _check_reproducible(seam)
    parent: Any = base or upstream("megatron.core.datasets.data_schedule", "DpBalancedScheduler")

    class RoutePackScheduler(parent):  # type: ignore[misc]
        """Schedules samples by plan."""

        def get_groups_and_subsamples(self, sample_id_seqlens: Sequence[tuple[int, int]]) -> Groups:
            """Return ``[row][dcp_rank]`` lists of sample ids."""
            call: Once[Groups] = Once(lambda: parent.get_groups_and_subsamples(self, sample_id_seqlens))
            ids = [int(sample) for sample, _ in sample_id_seqlens]
            found = None
            if gather is None or rank == 0:
                found = _plan(seam, self, sample_id_seqlens, call, counts, routing)
            if gather is not None:
                found = _agreed(seam, seam.planner.agree(found, gather))
            return call() if found is None else _groups(found, ids, self.cp_size)

    return RoutePackScheduler


def _check_reproducible(seam: Seam) -> None:
    """Refuse a search whose plans may differ between ranks that plan for themselves."""
    search = seam.planner.config.search
    if search.proposals is None or search.deadline is not None:
        found = f"deadline {search.deadline}, proposals {search.proposals}"
        remedy = (
            "Give gather and rank, so that one rank plans; or set deadline to null and proposals to a number"
        )
        raise InputError("a plan that is the same on all ranks", found, "search", remedy)


def _plan(
    seam: Seam,
    scheduler: Any,
    samples: Sequence[tuple[int, int]],
    call: Once[Groups],
    counts: Callable[[Sequence[int]], Any] | None,
    routing: Callable[[Sequence[int]], Any] | None,
) -> Plan | None:
    """Plan a global batch for a scheduler's slots, cap and multiples."""
    ids = [int(sample) for sample, _ in samples]
    seam.begin()
    return seam.plan(
        [int(length) for _, length in samples],
        dp=scheduler.dp_size,
        capacity=scheduler.max_seqlen_per_dp_cp_rank * scheduler.cp_size,
        counts=None if counts is None else lambda: counts(ids),
        routing=None if routing is None else lambda: routing(ids),
        own=lambda: _slots(call(), ids, scheduler.cp_size),
        row_multiple=scheduler.microbatch_group_size_per_vp_stage or 1,
        max_samples_per_cell=getattr(scheduler, "max_num_seqs", None),
    )


def _agreed(seam: Seam, plan: Plan) -> Plan | None:
    """Keep the plan that all ranks agreed on, wherever it was made."""
    seam.plans = [plan]
    return plan if plan.rung not in ("own", "none") else None


def _groups(plan: Plan, ids: list[int], cp: int) -> Groups:
    """Return the cells of a plan by id, once for every context-parallel rank of their slot."""
    return [[[ids[i] for i in cell] for cell in row for _ in range(cp)] for row in plan.cells]


def _slots(groups: Groups, ids: list[int], cp: int) -> Groups:
    """Return the cells of the trainer's own groups by position."""
    position = {sample: i for i, sample in enumerate(ids)}
    return [[[position[i] for i in cell] for cell in row[::cp]] for row in groups]


def install(seam: Seam, scheduler: str = "DP_BALANCED", **options: Any) -> type:
    """Put a planned scheduler into Megatron-Core's `scheduler_map`; call it on every rank that schedules.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    scheduler : str
        Name of the scheduler to take the place of, which is fallen back to.
    **options
        Of :func:`packing_scheduler`.

    Returns
    -------
    type
        The scheduler that is now in the map.
    """
    module = import_module("megatron.core.datasets.data_schedule")
    key = module.PackingSchedulerEnum[scheduler]
    if module.scheduler_map[key].__name__ != _NAME:
        module.scheduler_map[key] = packing_scheduler(seam, module.scheduler_map[key], **options)
    found: type = module.scheduler_map[key]
    return found
