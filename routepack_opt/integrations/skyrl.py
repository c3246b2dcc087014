"""SkyRL: staging of mini-batches on the driver, token-based microbatches on the workers, packing for SFT.

Guarantees: every mini-batch holds the samples that it holds without a plan, the same number on every rank;
the workers run the planned rows without padding microbatches or, all of them, their own microbatches.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.integrations.dispatch import Slots, plan_dispatch, step_windows
from routepack_opt.integrations.own import COMPARED, Groups, swap
from routepack_opt.integrations.rowids import FIELD, WIDTH, all_agree, rows_of, tell_own
from routepack_opt.integrations.seam import Seam
from routepack_opt.integrations.sequence_packers import planned_packer

#: Version whose contract this module was written for.
READ_FROM = "SkyRL 0.3.0 and a9564572 (2026-08-21)"

ROUTED = "rollout_expert_indices"
_PACKING = "skyrl.train.dataset.bin_packing"


def stage_chunks(
    seam: Seam, own: Callable[..., Any], *, packer: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """Return a replacement of `MeshDispatch.stage_chunks`.

    Parameters
    ----------
    seam : Seam
        Where to plan; with its model, `rollout_expert_indices` is read.
    own : callable
        The trainer's method, which cuts every mini-batch into equal chunks.
    packer : callable, optional
        The trainer's `make_seq_packer`, to compare with its own microbatches where ranks have the same number
        of them: padding microbatches are no cells. Without it there is no comparison.
    """

    def stage(dp_size: int, data: Any, mini_batch_boundaries: Any) -> Any:
        seam.begin()
        try:
            planned = _planned(seam, dp_size, data, mini_batch_boundaries, packer)
        except Exception as error:
            seam.fail(error)
            planned = data
        return own(dp_size, planned, mini_batch_boundaries)

    return stage


def _planned(seam: Seam, dp: int, data: Any, boundaries: Any, packer: Callable[..., Any] | None) -> Any:
    """Return the batch with every planned mini-batch reordered in its place, and the column of rows."""
    import torch

    mask = np.asarray(data["attention_mask"])
    lengths = mask.sum(axis=1)
    order, column = np.arange(len(lengths)), np.zeros((len(lengths), WIDTH), np.int64)
    for start, end in boundaries:
        steps = step_windows(end - start, end - start, dp)
        found = plan_dispatch(
            seam,
            lengths[start:end].tolist(),
            steps,
            routing=_routing(data, mask, start),
            own=None if packer is None else partial(_own_cells, packer, seam.planner.config.capacity),
            form="padded",
            oversize="alone",
        )
        if found is not None:
            order[start:end] = start + np.asarray(found.order)
            column[start:end] = found.column[found.order]
    if not column.any():
        return data
    index = torch.as_tensor(order)
    moved = type(data)({key: None if value is None else value[index] for key, value in data.items()})
    moved[FIELD] = torch.as_tensor(column)
    moved.metadata = data.metadata
    return moved


def _own_cells(
    packer: Callable[..., Any], capacity: int, slots: Slots, tokens: list[int]
) -> list[Groups] | None:
    """Return the cells that the workers would run, or None where some ranks would run padding."""
    if len(tokens) > COMPARED:
        return None
    packed = [packer("balanced", capacity).pack([tokens[i] for i in slot]) for slot in slots]
    if len({len(groups) for groups in packed}) != 1:
        return None
    rows = zip(*packed, strict=True)
    return [[[slot[k] for k in cell] for slot, cell in zip(slots, row, strict=True)] for row in rows]


def _routing(data: Any, mask: Any, start: int) -> Callable[[list[int]], Any] | None:
    if data.get(ROUTED) is None:
        return None
    return lambda part: {
        "routed_experts": np.asarray(data[ROUTED])[[start + i for i in part]],
        "attention_mask": mask[[start + i for i in part]],
    }


def token_batches(base: type) -> type:
    """Return a subclass of `TokenBasedBatchIterator` that runs planned rows.

    Parameters
    ----------
    base : type
        The trainer's iterator; what it packs stays where a rank has no whole rows.
    """
    parent: Any = base

    class PlannedBatches(parent):  # type: ignore[misc]
        """Microbatches in planned rows."""

        def __init__(self, data: Any, max_tokens_per_microbatch: int) -> None:
            super().__init__(data, max_tokens_per_microbatch)
            rows = rows_of(data.get(FIELD))
            if all_agree(rows) and rows is not None:
                self._microbatches = rows
                self._num_padding_microbatches = 0
            else:
                tell_own(data.get(FIELD))

    return PlannedBatches


def make_seq_packer(seam: Seam, own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the collator's `make_seq_packer`, which packs a whole SFT batch at once."""

    def make(*args: Any, **kwargs: Any) -> Any:
        return planned_packer(seam, own(*args, **kwargs))

    return make


def install_driver(seam: Seam) -> None:
    """Put planned staging into SkyRL; call it in the process of the trainer."""
    dispatch = import_module("skyrl.backends.skyrl_train.distributed.dispatch").MeshDispatch
    packer = import_module(_PACKING).make_seq_packer
    swap(dispatch, "stage_chunks", lambda own: staticmethod(stage_chunks(seam, own, packer=packer)))


def install_worker() -> None:
    """Let this worker run planned rows; call it in every worker."""
    swap(
        import_module("skyrl.backends.skyrl_train.workers.worker_utils"),
        "TokenBasedBatchIterator",
        token_batches,
    )
