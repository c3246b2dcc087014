"""A small real MoE of Megatron-Core classes, trained on gloo ranks."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedTensor
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.process_groups_config import ProcessGroupCollection
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.transformer.mlp import MLPSubmodules
from megatron.core.transformer.module import MegatronModule
from megatron.core.transformer.moe import experts as mcore_experts
from megatron.core.transformer.moe.experts import SequentialMLP
from megatron.core.transformer.moe.moe_layer import MoELayer, MoESubmodules
from megatron.core.transformer.transformer_config import TransformerConfig

from routepack_opt.runtime.adapters.megatron import attach
from routepack_opt.runtime.control import Control

from . import cuda_shim, megatron_stand_ins


@dataclass(frozen=True)
class Case:
    """One configuration of the matrix."""

    experts: str = "sequential"
    dispatcher: str = "alltoall"
    ep: int = 2
    tp: int = 1
    etp: int = 1
    dtype: torch.dtype = torch.float32
    top_k: int = 2
    bucket_size: int | None = None
    overlap: bool = False
    layers: int = 2
    clip: float = 1.0
    recompute: bool = False
    staging: int = 1 << 20
    num_experts: int = 8
    world: int = 4


class Model(MegatronModule):
    """MoE layers with residuals and a dense layer at the end."""

    def __init__(self, config, submodules, groups, layers):
        super().__init__(config)
        self.blocks = torch.nn.ModuleList(
            MoELayer(config, submodules, layer_number=i + 1, pg_collection=groups) for i in range(layers)
        )
        self.dense = torch.nn.Linear(config.hidden_size, config.hidden_size).to(config.params_dtype)

    def forward(self, hidden):
        """[sequence, batch, hidden] to the same."""
        for block in self.blocks:
            hidden = hidden + block(hidden)[0]
        return self.dense(hidden)

    def sharded_state_dict(self, prefix="", sharded_offsets=(), metadata=None):
        """Every block under its own name, as a transformer block does it."""
        state = {}
        for index, block in enumerate(self.blocks):
            state.update(block.sharded_state_dict(f"{prefix}blocks.{index}.", sharded_offsets, metadata))
        dense = self.dense.state_dict(prefix=f"{prefix}dense.", keep_vars=True)
        replica = (
            0,
            parallel_state.get_tensor_model_parallel_rank(),
            parallel_state.get_data_parallel_rank(),
        )
        for key, tensor in dense.items():
            state[key] = ShardedTensor.from_rank_offsets(key, tensor, replica_id=replica)
        return state


def config_of(case):
    """The TransformerConfig of a case."""
    extra = {}
    if case.recompute:
        extra = {"recompute_granularity": "selective", "recompute_modules": ["moe"]}
    return TransformerConfig(
        num_layers=case.layers,
        hidden_size=16,
        num_attention_heads=2,
        ffn_hidden_size=24,
        moe_ffn_hidden_size=24,
        num_moe_experts=case.num_experts,
        moe_router_topk=case.top_k,
        moe_router_load_balancing_type="aux_loss",
        moe_aux_loss_coeff=1e-2,
        moe_router_score_function="sigmoid",
        moe_router_enable_expert_bias=True,
        moe_router_dtype="fp32",
        moe_token_dispatcher_type=case.dispatcher,
        moe_grouped_gemm=case.experts != "sequential",
        expert_model_parallel_size=case.ep,
        tensor_model_parallel_size=case.tp,
        expert_tensor_parallel_size=case.etp,
        sequence_parallel=case.tp > 1,
        gated_linear_unit=True,
        activation_func=torch.nn.functional.silu,
        add_bias_linear=False,
        use_cpu_initialization=True,
        bias_activation_fusion=False,
        moe_permute_fusion=False,
        bias_dropout_fusion=False,
        masked_softmax_fusion=False,
        gradient_accumulation_fusion=False,
        params_dtype=case.dtype,
        bf16=case.dtype == torch.bfloat16,
        **extra,
    )


def submodules_of(case):
    """Experts of a case: real classes, on CPU linears where the kernels need a GPU."""
    if case.experts == "sequential":
        inner = MLPSubmodules(linear_fc1=ColumnParallelLinear, linear_fc2=RowParallelLinear)
        return MoESubmodules(experts=_spec(SequentialMLP, inner))
    if case.experts == "te_grouped":
        inner = MLPSubmodules(
            linear_fc1=megatron_stand_ins.ColumnGrouped, linear_fc2=megatron_stand_ins.RowGrouped
        )
        return MoESubmodules(experts=_spec(mcore_experts.TEGroupedMLP, inner))
    return MoESubmodules(experts=_spec(megatron_stand_ins.grouped_mlp(), None))


def _spec(module, submodules):
    from megatron.core.transformer.spec_utils import ModuleSpec

    return ModuleSpec(module=module, submodules=submodules) if submodules else ModuleSpec(module=module)


class MegatronJob:
    """Model, DDP, distributed optimizer and, unless it is a plain control, the runtime."""

    def __init__(self, case, moving=True):
        cuda_shim.install()
        torch.manual_seed(1234)
        if not parallel_state.model_parallel_is_initialized():
            parallel_state.initialize_model_parallel(
                tensor_model_parallel_size=case.tp,
                expert_model_parallel_size=case.ep,
                expert_tensor_parallel_size=case.etp,
            )
        from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed

        model_parallel_cuda_manual_seed(7)
        self.case, config = case, config_of(case)
        groups = ProcessGroupCollection.use_mpu_process_groups()
        model = Model(config, submodules_of(case), groups, case.layers).to(case.dtype)
        self._same_start(model, case)
        ddp = DistributedDataParallelConfig(
            use_distributed_optimizer=True,
            overlap_grad_reduce=case.overlap or case.bucket_size is not None,
            overlap_param_gather=case.overlap,
            bucket_size=case.bucket_size,
        )
        self.model = DistributedDataParallel(config, ddp, model)
        self.optimizer = get_megatron_optimizer(
            OptimizerConfig(
                optimizer="adam",
                lr=1e-2,
                bf16=case.dtype == torch.bfloat16,
                params_dtype=case.dtype,
                use_distributed_optimizer=True,
                clip_grad=case.clip,
                overlap_param_gather=case.overlap,
            ),
            [self.model],
            use_gloo_process_groups=False,
        )
        self.runtime = None
        if moving:
            self.runtime = attach(
                [self.model], self.optimizer, staging_bytes=case.staging, control=Control(timeout=20)
            )
        self.ep_rank = parallel_state.get_expert_model_parallel_rank()
        self.local = case.num_experts // case.ep

    def _same_start(self, model, case):
        """Give every logical expert and every replicated tensor the same values on all ranks."""
        for block in model.blocks:
            block.router.set_layer_number(block.layer_number)
            for name, parameter in block.router.named_parameters():
                _fill(parameter, (block.layer_number, name))
        for name, parameter in model.dense.named_parameters():
            _fill(parameter, ("dense", name))
        rank = parallel_state.get_expert_model_parallel_rank()
        etp = parallel_state.get_expert_tensor_parallel_rank()
        local = case.num_experts // case.ep
        for layer, slot, name, view in expert_views(model, local):
            _fill(view, (layer, rank * local + slot, name, etp))

    def placement_row(self, layer):
        """Slot of each expert, committed."""
        if self.runtime is None:
            return np.arange(self.case.num_experts)
        return self.runtime.materializer.placement[layer]

    def step(self, seed, parts=2):
        """One optimizer step of two microbatches; return the loss."""
        data_rank = parallel_state.get_data_parallel_rank()
        total = 0.0
        self.model.zero_grad_buffer()
        self.optimizer.zero_grad()
        for part in range(parts):
            generator = torch.Generator().manual_seed(1000 * seed + 10 * part + data_rank)
            hidden = torch.randn((12, 1, 16), generator=generator).to(self.case.dtype)
            if self.case.tp > 1:
                hidden = hidden.chunk(self.case.tp)[parallel_state.get_tensor_model_parallel_rank()]
            loss = (self.model(hidden).float() - hidden.float().roll(1, -1)).pow(2).mean()
            loss.backward()
            total += float(loss.detach())
        finalize_model_grads([self.model], None)
        self.optimizer.step()
        self.model.zero_grad_buffer()
        return total

    def logical(self):
        """All state by logical expert: {(kind, layer, name, expert, etp rank): (offset, values)}."""
        etp = parallel_state.get_expert_tensor_parallel_rank()
        result = {}
        for layer, slot, name, view in expert_views(self.model.module, self.local):
            expert = int(np.argsort(self.placement_row(layer))[self.ep_rank * self.local + slot])
            result["param", layer, name, expert, etp] = (0, view.detach().float().numpy().copy())
        return result | self._optimizer_state(etp)

    def _optimizer_state(self, etp):
        """Masters and moments, read straight from the optimizer by parameter, without the adapter."""
        found = {}
        for member in self.optimizer.chained_optimizers:
            for models, shards in zip(
                [*member.model_float16_groups, *member.model_fp32_groups],
                [*member.shard_fp32_from_float16_groups, *member.shard_fp32_groups],
                strict=True,
            ):
                for model, shard in zip(models, shards, strict=True):
                    found[model] = (member._get_model_param_range_map(model)["param"].start, shard, member)
        result = {}
        for layer, slot, name, view in expert_views(self.model.module, self.local):
            owner, start, size = owner_of(self.model.module, layer, slot, name, self.local)
            assert view.numel() == size
            if owner not in found:
                continue
            first, shard, member = found[owner]
            low, high = max(first, start), min(first + shard.numel(), start + size)
            if low >= high:
                continue
            expert = int(np.argsort(self.placement_row(layer))[self.ep_rank * self.local + slot])
            tensors = {"master": shard, **member.optimizer.state.get(shard, {})}
            for key, value in tensors.items():
                if value.dim():
                    part = value.detach()[low - first : high - first].float().numpy().copy()
                    result[key, layer, name, expert, etp] = (low - start, part)
        return result

    def addresses(self):
        """Identity, storage and shape of all that must stay."""
        found = {}
        for name, p in self.model.named_parameters():
            found[name] = (id(p), p.data_ptr(), tuple(p.shape), p.main_grad.data_ptr())
        for i, member in enumerate(self.optimizer.chained_optimizers):
            for j, (shard, state) in enumerate(member.optimizer.state.items()):
                for key, value in state.items():
                    found[i, j, key] = (id(shard), id(value), value.data_ptr())
                found[i, j] = (id(shard), shard.data_ptr())
        return found

    def dense_state(self):
        """Router and dense parameters: never touched."""
        return {
            name: p.detach().float().numpy().copy()
            for name, p in [*self.model.named_parameters(), *self.model.named_buffers()]
            if ".experts." not in name
        }


def _fill(tensor, key):
    generator = torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))
    with torch.no_grad():
        tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.2)


def owner_of(model, layer, slot, name, local):
    """Parameter, first element and size of an expert's tensor, written out per class."""
    experts = model.blocks[layer].experts
    parameters = dict(experts.named_parameters())
    if name in parameters:
        parameter = parameters[name]
        size = parameter.numel() // local
        return parameter, slot * size, size
    for spelled in (f"local_experts.{slot}.{name}", f"{name}{slot}"):
        if spelled in parameters:
            return parameters[spelled], 0, parameters[spelled].numel()
    raise KeyError(name)


def expert_views(model, local):
    """Yield (layer, slot, name, flat view) of every expert tensor."""
    for layer, block in enumerate(model.blocks):
        names = {p for p, _ in block.experts.named_parameters()}
        if any(n.startswith("local_experts") for n in names):
            kinds = ["linear_fc1.weight", "linear_fc2.weight"]
        elif "weight1" in names:
            kinds = ["weight1", "weight2"]
        else:
            kinds = ["linear_fc1.weight", "linear_fc2.weight"]
        for name in kinds:
            for slot in range(local):
                parameter, start, size = owner_of(model, layer, slot, name, local)
                yield layer, slot, name, parameter.detach().view(-1)[start : start + size]
