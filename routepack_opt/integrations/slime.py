"""slime: the schedule of data-parallel ranks and microbatches (`slime.utils.dp_schedule.build_dp_schedule`).

Guarantees: the four results have the trainer's shapes, every rank runs the same number of microbatches in
every step, and microbatch r of a step holds row r of its plan on every rank. Steps without a plan keep the
trainer's own schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.integrations.own import Once, swap, upstream
from routepack_opt.integrations.seam import Seam

#: Version whose contract this module was written for.
READ_FROM = "slime 0.3.1 (624b824a)"

Cells = list[list[list[int]]]
Result = tuple[list[list[int]], list[list[list[int]]], list[int], list[int]]
Schedule = Callable[..., Result]


class DpSchedule:
    """Takes the place of `build_dp_schedule`.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    own : callable, optional
        slime's `build_dp_schedule`; imported when first needed.
    """

    def __init__(self, seam: Seam, own: Schedule | None = None) -> None:
        self.seam, self._own = seam, own
        self._seen: dict[str, Sequence[Any]] = {}

    def see(self, routing: Sequence[Any] | None = None, counts: Sequence[Any] | None = None) -> None:
        """Take the routed experts, or the counts, of the samples that are scheduled next, in their order."""
        given = {"routing": routing, "counts": counts}
        self._seen = {name: values for name, values in given.items() if values is not None}

    def __call__(
        self,
        args: Any,
        train_parallel_config: Mapping[str, Any],
        total_lengths: Sequence[int],
        *,
        global_batch_size: int,
        rollout_indices: Sequence[int],
    ) -> Result:
        """Return (partitions, micro_batch_indices, num_microbatches, global_batch_sizes)."""
        own = self._own or upstream("slime.utils.dp_schedule", "build_dp_schedule")
        call = Once(
            lambda: own(
                args,
                train_parallel_config,
                total_lengths,
                global_batch_size=global_batch_size,
                rollout_indices=rollout_indices,
            )
        )
        seen, self._seen = self._seen, {}
        steps = _steps(rollout_indices, global_batch_size)
        if not steps or not args.use_dynamic_batch_size:
            return call()
        seen = {name: values for name, values in seen.items() if len(values) == len(total_lengths)}
        self.seam.begin()
        cells = [
            self._plan(args, train_parallel_config, total_lengths, seen, samples, s, call)
            for s, samples in enumerate(steps)
        ]
        if all(c is None for c in cells):
            return call()
        return _assemble(
            [c if c is not None else _own_cells(call(), s) for s, c in enumerate(cells)],
            [global_batch_size] * len(steps),
        )

    def _plan(
        self,
        args: Any,
        parallel: Mapping[str, Any],
        lengths: Sequence[int],
        seen: Mapping[str, Sequence[Any]],
        samples: list[int],
        step: int,
        call: Once[Result],
    ) -> Cells | None:
        """Return the cells of one step by sample of the batch, or None when it is not planned."""
        position = {sample: i for i, sample in enumerate(samples)}
        found = self.seam.plan(
            [lengths[i] for i in samples],
            dp=parallel["dp_size"],
            capacity=args.max_tokens_per_gpu * parallel["cp_size"],
            form="arrays",
            own=lambda: [[[position[i] for i in cell] for cell in row] for row in _own_cells(call(), step)],
            row_multiple=parallel["microbatch_group_size_per_vp_stage"] if parallel["vpp_size"] > 1 else 1,
            oversize="alone",
            **{name: [np.asarray(values[i]) for i in samples] for name, values in seen.items()},
        )
        if found is None:
            return None
        return [[[samples[i] for i in cell] for cell in row] for row in found.cells]


def _steps(rollouts: Sequence[int], size: int) -> list[list[int]]:
    """Return the samples of every training step; rollouts that fill no step are left out."""
    samples: dict[int, list[int]] = {}
    for i, rollout in enumerate(rollouts):
        samples.setdefault(rollout, []).append(i)
    groups = list(samples.values())
    starts = range(0, len(groups) - size + 1, size)
    return [[i for group in groups[s : s + size] for i in group] for s in starts]


def _own_cells(result: Result, step: int) -> Cells:
    """Return the cells of one step of slime's own schedule."""
    partitions, microbatches, counts, _ = result
    first = sum(counts[:step])
    return [
        [[part[i] for i in batches[m]] for part, batches in zip(partitions, microbatches, strict=True)]
        for m in range(first, first + counts[step])
    ]


def _assemble(steps: list[Cells], sizes: list[int]) -> Result:
    """Lay the cells of all steps out rank by rank."""
    dp = len(steps[0][0])
    partitions: list[list[int]] = [[] for _ in range(dp)]
    microbatches: list[list[list[int]]] = [[] for _ in range(dp)]
    for rows in steps:
        for row in rows:
            for rank, cell in enumerate(row):
                start = len(partitions[rank])
                partitions[rank].extend(cell)
                microbatches[rank].append(list(range(start, start + len(cell))))
    return partitions, microbatches, [len(rows) for rows in steps], sizes


def install(seam: Seam, module: Any = None) -> DpSchedule:
    """Put a planned schedule into slime; call it in the process of the rollout manager.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    module : module, optional
        `slime.ray.rollout`, imported when left out.

    Returns
    -------
    DpSchedule
        What was put in place. It sees the routed experts where slime checks them for replay.
    """
    rollout = module if module is not None else import_module("slime.ray.rollout")
    schedule: DpSchedule = swap(rollout, "build_dp_schedule", lambda own: DpSchedule(seam, own))

    def checked(own: Callable[..., Any]) -> Callable[..., Any]:
        def check(routed_experts: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            result = own(routed_experts, *args, **kwargs)
            schedule.see(routed_experts)
            return result

        return check

    swap(rollout, "validate_rollout_routed_experts_for_replay", checked)
    return schedule
