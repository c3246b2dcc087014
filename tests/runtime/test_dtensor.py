"""Experts as DTensors: expert-parallel Shard(0) alone, and under FSDP2 with either way of cutting."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.distributed.device_mesh import init_device_mesh  # noqa: E402
from torch.distributed.fsdp import fully_shard  # noqa: E402
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor  # noqa: E402

from routepack_opt.errors import InputError  # noqa: E402
from routepack_opt.runtime.adapters.dtensor import dtensor_ranges  # noqa: E402
from routepack_opt.runtime.adapters.plain import ExpertLayer, TorchAdapter  # noqa: E402
from routepack_opt.runtime.canonical import canonical_state_dict  # noqa: E402
from routepack_opt.runtime.control import Control  # noqa: E402
from routepack_opt.runtime.dispatch import LayerMap  # noqa: E402
from routepack_opt.runtime.materialize import Groups, Materializer  # noqa: E402

from .launch import all_ok, run_ranks  # noqa: E402
from .toy import permutations  # noqa: E402

EXPERTS = 8


class Experts(nn.Module):
    """Fused experts whose tensors are DTensors on the expert-parallel mesh."""

    def __init__(self, mesh):
        super().__init__()
        for name, shape in (("up", (EXPERTS, 6, 4)), ("down", (EXPERTS, 4, 6))):
            values = torch.randn(shape, generator=torch.Generator().manual_seed(len(name)))
            setattr(self, name, nn.Parameter(distribute_tensor(values, mesh, [Shard(0)])))

    def forward(self, x):
        """Each local expert on its own input [local experts, 4]."""
        up, down = (p.to_local() if isinstance(p, DTensor) else p for p in (self.up, self.down))
        return torch.einsum("eoi,ei->eo", down, torch.einsum("eoi,ei->eo", up, x).tanh())


def build(kind):
    """Mesh, module and groups of a case."""
    if kind == "ep only":
        mesh = init_device_mesh("cpu", (4,), mesh_dim_names=("ep",))
        return Experts(mesh), Groups(mesh.get_group("ep"))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("edp", "ep"))
    module = Experts(mesh["ep"])
    placement = (lambda p: Shard(1)) if kind == "fsdp rows" else None
    fully_shard(module, mesh=mesh["edp"], shard_placement_fn=placement)
    return module, Groups(mesh.get_group("ep"), mesh.get_group("edp"))


def train(rank, kind, placements):
    """Step and move; return the canonical parameters and moments, and check that nothing was replaced."""
    module, groups = build(kind)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    layer = ExpertLayer(0, "experts", module, {"up": 0, "down": 0})
    maps = {0: LayerMap(np.arange(EXPERTS), torch.device("cpu"))}
    adapter = TorchAdapter([layer], optimizer, groups)
    materializer = Materializer(adapter, maps, groups, Control(timeout=20), staging_bytes=1 << 16)
    local = EXPERTS // groups.place()[0]
    first, lane = groups.place()[2] * local, groups.place()[3]

    def step(seed):
        inputs = torch.randn((EXPERTS, 4), generator=torch.Generator().manual_seed(10 * seed + lane))
        module(inputs[maps[0].expert_of_slot[first : first + local]]).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step(0)
    kept = [(id(p), p.to_local().data_ptr()) for p in module.parameters()]
    reports = []
    for number, placement in enumerate(placements, start=1):
        reports.append(materializer.materialize(placement))
        assert kept == [(id(p), p.to_local().data_ptr()) for p in module.parameters()]
        step(number)
    state = canonical_state_dict(module, [ExpertLayer(0, "", module, {"up": 0, "down": 0})], maps)
    result = {name.lstrip("."): tensor for name, tensor in state.items() if name.startswith(".")}
    for name, parameter in module.named_parameters():
        for key in ("exp_avg", "exp_avg_sq"):
            whole = optimizer.state[parameter][key].full_tensor()
            result[f"{name}/{key}"] = whole[maps[0].slot_of_expert]
    return {key: value.detach().numpy() for key, value in result.items()}, reports


@pytest.mark.parametrize("kind", ["ep only", "fsdp experts", "fsdp rows"])
def test_dtensor_experts_train_like_the_control(kind):
    moved = all_ok(run_ranks(4, train, kind, permutations(3, layers=1)))
    still = all_ok(run_ranks(4, train, kind, [np.arange(EXPERTS)[None]] * 3))
    assert moved[0][0].keys() == {"up", "down"} | {
        f"{n}/{k}" for n in ("up", "down") for k in ("exp_avg", "exp_avg_sq")
    }
    for key, value in moved[0][0].items():
        assert np.allclose(value, still[0][0][key], atol=1e-6), key
    assert all(report.bytes_across_ranks > 0 for report in moved[0][1])
    # Cut by experts, a lane owns some slots whole: an expert that changes slots may change lanes.
    assert any(report.bytes_across_lanes for report in moved[0][1]) == (kind == "fsdp experts")


def odd(rank):
    """Placements whose ranges cannot be told are refused."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("edp", "ep"))
    ranks, lanes = mesh.get_group("ep"), mesh.get_group("edp")
    values = torch.zeros(EXPERTS, 6, 4)
    messages = []
    for placements in ([Replicate(), Shard(1)], [Shard(2), Shard(0)], [Shard(0), Shard(0)]):
        tensor = distribute_tensor(values, mesh, placements)
        with pytest.raises(InputError) as error:
            dtensor_ranges(tensor, "experts.up", ranks, lanes)
        messages.append(str(error.value))
    with pytest.raises(InputError) as error:
        dtensor_ranges(distribute_tensor(values, mesh, [Shard(1), Shard(0)]), "experts.up", ranks, None)
    return [*messages, str(error.value)]


def test_other_placements_are_refused_by_name():
    for messages in all_ok(run_ranks(4, odd)):
        assert all(message.startswith("experts.up: expected") for message in messages)
        assert "axis 0 over the expert-parallel group" in messages[0]
        assert "axis 1, or axis 0 inside" in messages[1]
        assert "axis 1, or axis 0 inside" in messages[2]
        assert "mesh axes" in messages[3]
