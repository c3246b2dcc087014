"""The driver of verl: `_balance_batch` of the V0 and the V1 trainer.

Guarantees: the trainer's own balancing runs first, so that every optimizer step trains the samples that it
would have trained; a plan only says where in the step they run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.integrations.dispatch import Dispatch, Slots, plan_dispatch, step_windows
from routepack_opt.integrations.own import COMPARED, Groups, swap, two_stages, upstream
from routepack_opt.integrations.rowids import FIELD
from routepack_opt.integrations.seam import Seam

Partitions = Callable[..., Groups]


def balance_batch(
    seam: Seam,
    own: Callable[..., Any],
    *,
    window: int | None = None,
    counts: Callable[[Any], Any] | None = None,
    partitions: Partitions | None = None,
) -> Callable[..., None]:
    """Return a replacement of `RayPPOTrainer._balance_batch` (V0), which reorders a `DataProto` in place.

    Parameters
    ----------
    seam : Seam
        Where to plan; with its model, `batch.batch["routed_experts"]` is read.
    own : callable
        The trainer's method; it always runs first.
    window : int, optional
        Samples of an optimizer step; ``ppo_mini_batch_size * rollout.n`` of the trainer's configuration.
    counts : callable, optional
        Takes the balanced batch and returns counts [N, L, E].
    partitions : callable, optional
        verl's `get_seqlen_balanced_partitions`, to compare with the trainer's own microbatches (for steps of
        up to 1024 samples).
    """

    def balance(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> None:
        own(self, batch, metrics, *args, **kwargs)
        batch.batch.pop(FIELD, None)
        try:
            import torch

            mask = np.asarray(batch.batch["attention_mask"])
            lengths = mask.reshape(len(mask), -1).sum(axis=1)
            found = _plan(
                seam,
                self,
                lengths,
                window,
                partitions,
                counts=None if counts is None else counts(batch),
                routing=_padded_routing(batch.batch, mask),
                form="padded",
            )
            if found is not None:
                batch.reorder(torch.as_tensor(found.order))
                batch.batch[FIELD] = torch.as_tensor(found.column[found.order])
        except Exception as error:
            seam.fail(error)
        metrics.update(seam.metrics())

    return balance


def balance_batch_meta(
    seam: Seam,
    own: Callable[..., Any],
    *,
    window: int | None = None,
    counts: Callable[[Any], Any] | None = None,
    partitions: Partitions | None = None,
    put: Callable[[list[str], str, dict[str, Any]], None] | None = None,
) -> Callable[..., Any]:
    """Return a replacement of the V1 trainer's `_balance_batch`, which returns a `KVBatchMeta`.

    The column goes into the TransferQueue as a field of the samples, by `put(keys, partition, values)` where
    given. The rest is as in :func:`balance_batch`, but that routing is only known where `counts` returns it.
    """
    store = put or _put

    def balance(self: Any, batch: Any, metrics: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        meta = own(self, batch, metrics, *args, **kwargs)
        try:
            import torch

            lengths = np.array([int(tag["seq_len"]) for tag in meta.tags], np.int64)
            read = None if counts is None else counts(meta)
            found = _plan(seam, self, lengths, window, partitions, counts=read)
            if found is not None:
                store(list(meta.keys), meta.partition_id, {FIELD: torch.as_tensor(found.column.copy())})
                if meta.fields is not None and FIELD not in meta.fields:
                    meta.fields = [*meta.fields, FIELD]
                meta.reorder(found.order)
        except Exception as error:
            seam.fail(error)
        metrics.update(seam.metrics())
        return meta

    return balance


def _put(keys: list[str], partition_id: str, values: dict[str, Any]) -> None:
    """Store fields of samples in the TransferQueue."""
    fields = upstream("tensordict", "TensorDict")(values, batch_size=[len(keys)])
    upstream("transfer_queue", "kv_batch_put")(keys=keys, partition_id=partition_id, fields=fields)


def _padded_routing(batch: Any, mask: Any) -> Callable[[list[int]], Any] | None:
    if "routed_experts" not in batch:
        return None
    return lambda part: {"routed_experts": batch["routed_experts"][part], "attention_mask": mask[part]}


def _plan(
    seam: Seam,
    trainer: Any,
    lengths: Any,
    window: int | None,
    partitions: Partitions | None,
    **routing: Any,
) -> Dispatch | None:
    """Plan the batch as the trainer has ordered it: part d of it goes to rank d."""
    seam.begin()
    if getattr(trainer, "use_prefix_grouper", False):
        seam.refuse("prefix grouping keeps prompts together on a rank")
        return None
    if window is None:
        actor = trainer.config.actor_rollout_ref
        window = int(actor.actor.ppo_mini_batch_size) * int(actor.rollout.n)
    config = seam.planner.config
    own = None
    if partitions is not None and window <= COMPARED:
        own = partial(_own_cells, partitions, config.capacity, config.rules.row_multiple)
    steps = step_windows(len(lengths), window, _slots(trainer, config.topology.dp))
    return plan_dispatch(seam, lengths.tolist(), steps, own=own, **routing)


def _slots(trainer: Any, known: int) -> int:
    """Return the data-parallel size of the trainer's actors; what the planner knows where it is not told."""
    group = getattr(trainer, "actor_rollout_wg", None)
    if hasattr(trainer, "_get_dp_size"):
        return int(trainer._get_dp_size(group, "actor"))
    ranks = getattr(group, "_dispatch_info", {}).get("actor")
    return int(max(ranks)) + 1 if ranks else known


def _own_cells(
    partitions: Partitions, capacity: int, multiple: int, slots: Slots, tokens: list[int]
) -> list[Groups] | None:
    """Return the cells that verl's workers would run: even work per microbatch, the largest in the middle."""
    work = [24576 * t + t * t for t in tokens]

    def pack(slot: Sequence[int], rows: int) -> Groups:
        count = max(rows, -(-sum(tokens[i] for i in slot) // capacity))
        count = -(-count // multiple) * multiple
        while True:
            groups = partitions([work[i] for i in slot], count, False)
            if all(sum(tokens[slot[k]] for k in group) <= capacity for group in groups):
                break
            count += multiple
        groups = sorted(groups, key=lambda group: sum(work[slot[k]] for k in group), reverse=True)
        return groups[::2][::-1] + groups[1::2]

    return two_stages(slots, pack)


def install_driver(seam: Seam, **options: Any) -> None:
    """Put planned balancing into verl's trainers; call it in the process of the trainer.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    **options
        Of :func:`balance_batch`: `window`, `counts`.
    """
    more = {"partitions": upstream("verl.utils.seqlen_balancing", "get_seqlen_balanced_partitions")} | options
    trainer = upstream("verl.trainer.ppo.ray_trainer", "RayPPOTrainer")
    swap(trainer, "_balance_batch", lambda own: balance_batch(seam, own, **more))
    newer = import_module("verl.trainer.ppo.v1.trainer_base")
    for kind in vars(newer).values():
        if isinstance(kind, type) and "_balance_batch" in vars(kind):
            swap(kind, "_balance_batch", lambda own: balance_batch_meta(seam, own, **more))
