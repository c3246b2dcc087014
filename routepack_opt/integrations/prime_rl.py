"""prime-rl: `prepare_batch`, behind the orchestrator's `BatchPacker.pack`.

Guarantees: every worker gets the same number of microbatches and row r on all workers is row r of the plan;
a row holds one modality; microbatches are built, padded and, without a plan, packed by the trainer itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.integrations.own import Once, swap
from routepack_opt.integrations.seam import Seam
from routepack_opt.plans import Plan

#: Version whose contract this module was written for.
READ_FROM = "prime-rl 0.8.0 (559b4477)"


def prepare_batch(seam: Seam, own: Callable[..., Any], tools: Any = None) -> Callable[..., Any]:
    """Return a replacement of `prepare_batch`: [worker][row] microbatches.

    Parameters
    ----------
    seam : Seam
        Where to plan; with its model, the samples' routed experts are read.
    own : callable
        The trainer's function.
    tools : module, optional
        `prime_rl.trainer.batch`, whose `prepare_sample`, `packed_samples_into_micro_bs` and `pad_micro_batch`
        build the microbatches.
    """

    def prepare(
        rollouts: Any, seq_len: int, num_train_workers: int, bin_cost: Any, pad_to_multiple_of: int = 1
    ) -> list[list[Any]]:
        call = Once(lambda: own(rollouts, seq_len, num_train_workers, bin_cost, pad_to_multiple_of))
        seam.begin()
        try:
            batch = tools if tools is not None else import_module("prime_rl.trainer.batch")
            samples = [batch.prepare_sample(rollout, seq_len) for rollout in rollouts]
            found = seam.plan(
                [len(sample.input_ids) for sample in samples],
                dp=num_train_workers,
                capacity=seq_len,
                routing=lambda: _routing(samples),
                form="arrays",
                own=lambda: _own_cells(call(), samples),
                row_class=tuple(_class(sample) for sample in samples),
                cell_multiple=pad_to_multiple_of,
            )
            if found is None:
                return call()  # type: ignore[no-any-return]
            grid = _grid(found, batch, samples, seq_len, bin_cost, pad_to_multiple_of)
            if grid is not None:
                return grid
            seam.refuse("the trainer keeps samples apart whose images do not fit together")
            return call()  # type: ignore[no-any-return]
        except Exception as error:
            seam.fail(error)
            return call()  # type: ignore[no-any-return]

    return prepare


def _grid(
    plan: Plan, batch: Any, samples: Sequence[Any], seq_len: int, bin_cost: Any, multiple: int
) -> list[list[Any]] | None:
    """Build [worker][row] microbatches; None when the trainer does not join the samples of a cell."""
    grid: list[list[Any]] = [[] for _ in plan.cells[0]]
    for row in plan.cells:
        for worker, cell in zip(grid, row, strict=True):
            packed = batch.packed_samples_into_micro_bs([samples[i] for i in cell], seq_len, 1, bin_cost)
            if len(packed) != 1:
                return None
            worker.append(batch.pad_micro_batch(packed[0], multiple))
    return grid


def _class(sample: Any) -> int:
    """Return what must be alike in a row: modality (a rank with images hangs one without), and routing."""
    return 2 * (sample.mm_kwargs is not None) + (sample.routed_experts is not None)


def _routing(samples: Sequence[Any]) -> list[Any] | None:
    """Return the ids of every sample, or None when no sample has any."""
    routed = [sample.routed_experts for sample in samples]
    if all(each is None for each in routed):
        return None
    return [
        None if each is None else np.frombuffer(each.data, each.dtype).reshape(each.shape) for each in routed
    ]


def _own_cells(grid: Sequence[Sequence[Any]], samples: Sequence[Any]) -> list[list[list[int]]]:
    """Return the cells of the trainer's own microbatches, which no longer say whose their tokens are.

    Samples are found by their tokens; two with equal tokens are one as good as the other. Padding, which
    lengthens the last sample of a microbatch, is cut off; copies that only fill up match nothing, and raise.
    """
    known: dict[tuple[int, ...], list[int]] = {}
    for i, sample in enumerate(samples):
        known.setdefault(tuple(sample.input_ids), []).append(i)
    longest_first = sorted({len(tokens) for tokens in known}, reverse=True)

    def ids(batch: Any) -> list[int]:
        cell, start = [], 0
        for length in batch.sequence_lengths:
            tokens = tuple(batch.input_ids[start : start + length])
            start += length
            if tokens not in known:
                tokens = next(tokens[:n] for n in longest_first if n <= length and tokens[:n] in known)
            cell.append(known[tokens].pop())
        return cell

    return [[ids(worker[r]) for worker in grid] for r in range(len(grid[0]))]


def install(seam: Seam) -> None:
    """Put planned packing into prime-rl; call it in the orchestrator's process."""
    packing = import_module("prime_rl.orchestrator.packing")
    swap(packing, "prepare_batch", lambda own: prepare_batch(seam, own))
