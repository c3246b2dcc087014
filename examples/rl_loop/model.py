"""A tiny mixture-of-experts model whose experts are spread over the ranks of a process group."""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch import Tensor, nn

VOCABULARY, END = 64, 1
CONFIG = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "pad_token_id": 0,
}


def build_model(seed: int) -> nn.Module:
    """Build the whole model with random weights, the same for a seed on every rank."""
    config = transformers.AutoConfig.for_model("qwen3_moe", **CONFIG)
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32, experts_implementation="eager"
    )
    with torch.no_grad():  # wide enough that routing is skewed and experts differ
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(8.0 if "gate.weight" in name else 3.0)
    return model


def spread_experts(model: nn.Module, group: Any) -> None:
    """Keep this rank's slots of every experts module, and make its forward serve the tokens of all ranks."""
    ranks, rank = group.size(), group.rank()
    for module in model.modules():
        if not hasattr(module, "gate_up_proj"):
            continue
        slots = module.num_experts // ranks
        for name in ("gate_up_proj", "down_proj"):
            whole = getattr(module, name).detach()
            setattr(module, name, nn.Parameter(whole[rank * slots : (rank + 1) * slots].clone()))
        module.num_experts = slots
        module.forward = MethodType(_serve_all_ranks(type(module).forward, group), module)


def _serve_all_ranks(local_forward: Any, group: Any) -> Any:
    """Dispatch by all-gather, run the local experts, and return to every rank the sums of its own tokens."""

    def forward(module: nn.Module, hidden: Tensor, slot: Tensor, weight: Tensor) -> Tensor:
        rank, slots = group.rank(), module.num_experts
        sizes = _sizes(len(hidden), group)
        mine = _pad(slot, max(sizes), fill=-1)
        everyone = [torch.empty_like(mine) for _ in sizes]
        dist.all_gather(everyone, mine.contiguous(), group=group)
        local = torch.cat(everyone) - rank * slots
        # An index of `slots` is nobody's expert: the module skips it.
        local = torch.where((local >= 0) & (local < slots), local, slots)
        hidden_all = _Gather.apply(_pad(hidden, max(sizes)), group)
        weight_all = _Gather.apply(_pad(weight, max(sizes)), group)
        partial = local_forward(module, hidden_all, local, weight_all)
        return _ScatterSum.apply(partial, group)[: len(hidden)]

    return forward


class _Gather(torch.autograd.Function):
    """All-gather rows; the gradient of a row is the sum over ranks, delivered to its owner."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _gather_rows(rows, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _scatter_sum(gradient, ctx.group), None


class _ScatterSum(torch.autograd.Function):
    """The transpose of :class:`_Gather`."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return _scatter_sum(rows, group)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _gather_rows(gradient, ctx.group), None


def _gather_rows(rows: Tensor, group: Any) -> Tensor:
    parts = [torch.empty_like(rows) for _ in range(group.size())]
    dist.all_gather(parts, rows.contiguous(), group=group)
    return torch.cat(parts)


def _scatter_sum(rows: Tensor, group: Any) -> Tensor:
    total = rows.contiguous().clone()
    dist.all_reduce(total, group=group)
    return total.chunk(group.size())[group.rank()].clone()


def _sizes(size: int, group: Any) -> list[int]:
    parts = [torch.zeros(1, dtype=torch.int64) for _ in range(group.size())]
    dist.all_gather(parts, torch.tensor([size]), group=group)
    return [int(part) for part in parts]


def _pad(rows: Tensor, size: int, fill: int = 0) -> Tensor:
    return nn.functional.pad(rows, (0, 0, 0, size - len(rows)), value=fill)
