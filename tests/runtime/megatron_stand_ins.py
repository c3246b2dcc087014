"""CPU stand-ins for the grouped GEMM kernels; the Megatron classes around them are real."""

from __future__ import annotations

import torch
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.parallel_state import (
    get_expert_data_parallel_rank,
    get_expert_model_parallel_rank,
    get_expert_model_parallel_world_size,
)
from torch import nn


class _Grouped(nn.Module):
    """One weight per local expert, named as Transformer Engine names them."""

    def __init__(
        self, num_gemms, input_size, output_size, *, config, is_expert=True, pg_collection=None, **kwargs
    ):
        super().__init__()
        self.num_gemms = num_gemms
        for index in range(num_gemms):
            weight = nn.Parameter(torch.zeros(output_size, input_size, dtype=config.params_dtype))
            weight.allreduce = False
            self.register_parameter(f"weight{index}", weight)

    def forward(self, x, splits):
        """Multiply each expert's rows by its weight."""
        parts = x.split([int(s) for s in splits])
        out = [part @ getattr(self, f"weight{index}").t() for index, part in enumerate(parts)]
        return torch.cat(out), None

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        """Say of each expert's weight which of all experts it is, as Transformer Engine does."""
        ranks, rank = (f() for f in (get_expert_model_parallel_world_size, get_expert_model_parallel_rank))
        state = {}
        for index in range(self.num_gemms):
            offset = (len(sharded_offsets), rank * self.num_gemms + index, ranks * self.num_gemms)
            state[f"{prefix}weight{index}"] = ShardedTensor.from_rank_offsets(
                f"{prefix}weight",
                getattr(self, f"weight{index}"),
                *sharded_offsets,
                offset,
                replica_id=(0, 0, get_expert_data_parallel_rank()),
                prepend_axis_num=len(sharded_offsets) + 1,
            )
        return state


class ColumnGrouped(_Grouped):
    """Stands for TEColumnParallelGroupedLinear."""


class RowGrouped(_Grouped):
    """Stands for TERowParallelGroupedLinear."""


class GroupedGemm:
    """Stands for the grouped_gemm package."""

    @staticmethod
    def assert_grouped_gemm_is_available():
        """It is."""

    class ops:  # noqa: N801
        """Namespace."""

        @staticmethod
        def gmm(a, b, sizes, trans_b=False):
            """Grouped matrix product."""
            parts = a.split([int(s) for s in sizes])
            return torch.cat([p @ (w.t() if trans_b else w) for p, w in zip(parts, b, strict=True)])


def grouped_mlp():
    """Return the legacy class, on top of the stand-in kernels."""
    from megatron.core.transformer.moe import experts

    experts.gg = GroupedGemm
    return experts.GroupedMLP
