"""A toy MoE job in plain torch: EP x lanes, fused experts, and a toy distributed optimizer as an adapter."""

from __future__ import annotations

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from routepack_opt.runtime.adapters.plain import ExpertLayer, TorchAdapter
from routepack_opt.runtime.control import Control
from routepack_opt.runtime.dispatch import LayerMap
from routepack_opt.runtime.materialize import Groups, Materializer
from routepack_opt.runtime.movement import TensorSpec
from routepack_opt.runtime.state import ExpertTensor, full_ranges

EXPERTS = 8


def groups(ranks, lanes):
    """Process groups of a mesh whose global rank is lane * ranks + rank."""
    me = dist.get_rank()
    mine = Groups()
    for lane in range(lanes):
        members = [lane * ranks + rank for rank in range(ranks)]
        group = dist.new_group(members)
        mine = Groups(group, mine.lanes) if me in members else mine
    for rank in range(ranks):
        members = [lane * ranks + rank for lane in range(lanes)]
        group = dist.new_group(members)
        mine = Groups(mine.ranks, group) if me in members else mine
    return mine


def permutations(count, layers, experts=EXPERTS, seed=0):
    """Successive placements [layers, experts], no step between two of them an involution."""
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    placements, last = [], np.tile(np.arange(experts), (layers, 1))
    while len(placements) < count:
        new = np.stack([rng.permutation(experts) for _ in range(layers)])
        step = [new[layer][np.argsort(last[layer])] for layer in range(layers)]
        if all((s[s] != np.arange(experts)).any() for s in step):
            placements.append(new)
            last = new
    return placements


class Experts(nn.Module):
    """Fused experts with a bias and an int8 buffer; values tell layer, logical expert and element."""

    def __init__(self, layer, held, dtype=torch.float32):
        super().__init__()
        ids = torch.as_tensor(held, dtype=torch.float32)

        def values(*shape):
            size = int(np.prod(shape))
            return (ids[:, None] * size + torch.arange(size) + 1000 * layer).view(len(held), *shape)

        self.up = nn.Parameter(values(6, 4).to(dtype))
        self.down = nn.Parameter(values(4, 3).to(dtype))
        self.bias = nn.Parameter(values(5).to(dtype))
        self.register_buffer("scale", (ids[None, :] + torch.arange(3)[:, None]).to(torch.int8))


AXES = {"up": 0, "down": 0, "bias": 0, "scale": 1}


class Job:
    """Two layers of experts, AdamW, maps and a materializer on one rank."""

    def __init__(self, ranks, lanes, layers=2, staging=1 << 20, dtype=torch.float32, timeout=5.0):
        self.groups = groups(ranks, lanes)
        _, _, rank, self.lane = self.groups.place()
        self.local = EXPERTS // ranks
        first = rank * self.local
        self.first = first
        self.modules = [Experts(layer, range(first, first + self.local), dtype) for layer in range(layers)]
        self.optimizer = torch.optim.AdamW([p for m in self.modules for p in m.parameters()], lr=1e-2)
        self.experts = [ExpertLayer(i, f"layers.{i}.experts", m, AXES) for i, m in enumerate(self.modules)]
        self.adapter = TorchAdapter(self.experts, self.optimizer, self.groups)
        self.maps = {i: LayerMap(np.arange(EXPERTS), torch.device("cpu")) for i in range(layers)}
        self.control = Control(timeout=timeout)
        self.materializer = Materializer(
            self.adapter, self.maps, self.groups, self.control, staging_bytes=staging
        )

    def step(self, seed=0):
        """Give every logical expert its own gradient and step."""
        for layer, module in enumerate(self.modules):
            expert_of_slot = self.maps[layer].expert_of_slot[self.first : self.first + self.local]
            for index, p in enumerate(module.parameters()):
                noise = torch.Generator().manual_seed(seed * 100 + layer * 10 + index)
                grad = torch.randn((EXPERTS, *p.shape[1:]), generator=noise)
                p.grad = grad[expert_of_slot].to(p.dtype)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def tensors(self):
        """All expert-indexed tensors, expert axis first, by layer and name."""
        found = {}
        for layer, module in enumerate(self.modules):
            for name, axis in AXES.items():
                tensor = getattr(module, name)
                found[layer, name] = tensor.detach().movedim(axis, 0)
                for key, value in self.optimizer.state.get(tensor, {}).items():
                    if value.dim():
                        found[layer, f"{name}/{key}"] = value
        return found

    def logical(self):
        """Every tensor by logical expert id: {(layer, name, expert): values}."""
        result = {}
        for (layer, name), tensor in self.tensors().items():
            ids = self.maps[layer].expert_of_slot[self.first : self.first + self.local].tolist()
            result.update(
                {
                    (layer, name, expert): row.float().numpy().copy()
                    for expert, row in zip(ids, tensor, strict=True)
                }
            )
        return result

    def addresses(self):
        """What must never change."""
        return {key: (t.data_ptr(), tuple(t.shape), t.stride()) for key, t in self.tensors().items()}


class ShardedState:
    """A toy distributed optimizer: parameters whole on every lane, masters cut at arbitrary places."""

    def __init__(self, job, cuts):
        self.job, self.layers, self.cuts = job, [0], cuts
        _, lanes, rank, lane = job.groups.place()
        self.full = torch.arange(job.local * 10.0).view(job.local, 10) + 100 * rank
        self.held = np.zeros((lanes, job.local, 2), dtype=np.int64)
        for slot in range(job.local):
            edges = [0, *cuts[slot], 10]
            self.held[:, slot] = [(edges[d], edges[d + 1]) for d in range(lanes)]
        self.shards = [self.full[s, slice(*self.held[lane, s])].clone() for s in range(job.local)]

    def check(self):
        """Always at a boundary."""

    def synchronize(self):
        """Nothing."""

    def shared(self):
        """Nothing."""
        return b""

    def tensors(self, layer):
        """One replicated and one partitioned tensor."""
        lanes = self.held.shape[0]
        whole = TensorSpec("param", 4, 10, full_ranges(lanes, self.job.local, 10))
        shards = tuple(s if s.numel() else None for s in self.shards)
        return [
            ExpertTensor(whole, tuple(self.full)),
            ExpertTensor(TensorSpec("master", 4, 10, self.held), shards),
        ]
