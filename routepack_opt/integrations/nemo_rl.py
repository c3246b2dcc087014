"""NeMo RL: sequence packing in `BatchedDataDict.shard_by_batch_size`.

Guarantees: batches that carry routed experts are packed by plan, bin k to rank k % D as the trainer deals
them, and rows stay rows: sorting a rank's microbatches by size is replaced by sorting whole rows. All other
calls are the trainer's own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.integrations.own import swap
from routepack_opt.integrations.seam import Seam
from routepack_opt.integrations.sequence_packers import planned_packer

__all__ = ["READ_FROM", "get_packer", "install", "planned_packer", "shard_by_batch_size"]

#: Version whose contract this module was written for.
READ_FROM = "NeMo RL 7ea279ab (2026-08-22)"

ROUTED = "routed_experts"


class _Batch:
    """The batch that is being sharded, chunk by chunk."""

    def __init__(self, data: Any, size: int, packing: Any, order: str) -> None:
        self.data, self.size, self.order = data, size, order
        self.key, self.multiple = packing["input_lengths_key"], packing["sequence_length_pad_multiple"]
        self.chunk = 0

    def facts(self, padded: Any) -> dict[str, Any]:
        """Return raw lengths, routing and rules of the next chunk."""
        chunk = slice(self.chunk * self.size, self.chunk * self.size + len(padded))
        self.chunk += 1
        lengths, routed = np.asarray(self.data[self.key])[chunk], self.data[ROUTED][chunk]
        mask = np.arange(routed.shape[1])[None, :] < lengths[:, None]  # the trainer pads on the right
        return {
            "lengths": lengths.tolist(),
            "routing": {ROUTED: routed, "attention_mask": mask},
            "form": "padded",
            "length_multiple": int(self.multiple),
            "row_order": self.order,
        }


_batch: ContextVar[_Batch | None] = ContextVar("routepack_nemo_rl_batch", default=None)


def get_packer(seam: Seam, own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of `get_packer`: a planned packer inside a planned sharding, else the own one."""

    def get(*args: Any, **kwargs: Any) -> Any:
        packer, batch = own(*args, **kwargs), _batch.get()
        return packer if batch is None else planned_packer(seam, packer, batch.facts)

    return get


def shard_by_batch_size(seam: Seam, own: Callable[..., Any]) -> Callable[..., Any]:
    """Return a replacement of the method `BatchedDataDict.shard_by_batch_size`.

    Parameters
    ----------
    seam : Seam
        Where to plan; its model says how the routed experts are read.
    own : callable
        The trainer's method. Its module's `get_packer` must have been replaced as well.
    """

    def shard(
        self: Any,
        shards: int,
        batch_size: int | None = None,
        allow_uneven_shards: bool = False,
        dynamic_batching_args: Any = None,
        sequence_packing_args: Any = None,
    ) -> Any:
        packing = sequence_packing_args
        planned = packing is not None and ROUTED in self.data
        token = None
        if planned:
            total = len(self.data[packing["input_lengths_key"]])
            order = "largest_first" if packing.get("microbatch_order") == "largest_first" else "none"
            seam.begin()
            token = _batch.set(_Batch(self.data, batch_size or total, packing, order))
            packing = {**packing, "microbatch_order": "packer"}
        try:
            return own(
                self,
                shards,
                batch_size=batch_size,
                allow_uneven_shards=allow_uneven_shards,
                dynamic_batching_args=dynamic_batching_args,
                sequence_packing_args=packing,
            )
        finally:
            if token is not None:
                _batch.reset(token)

    return shard


def install(seam: Seam, module: Any = None) -> None:
    """Put planned packing into NeMo RL; call it in the driver.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    module : module, optional
        `nemo_rl.distributed.batched_data_dict`, imported when left out.
    """
    batches = module if module is not None else import_module("nemo_rl.distributed.batched_data_dict")
    swap(batches, "get_packer", lambda own: get_packer(seam, own))
    swap(batches.BatchedDataDict, "shard_by_batch_size", lambda own: shard_by_batch_size(seam, own))
