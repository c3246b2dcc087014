"""Dispatch, recording, refusals and checkpoints of Megatron-Core layers."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("megatron.core")
pytest.importorskip("psutil")
torch = pytest.importorskip("torch")

from routepack_opt.errors import InputError  # noqa: E402
from routepack_opt.runtime.adapters.megatron_checkpoint import logical_state_dict  # noqa: E402
from routepack_opt.runtime.canonical import expert_parts  # noqa: E402
from routepack_opt.runtime.control import MaterializeError  # noqa: E402
from routepack_opt.runtime.dispatch import LayerMap, map_dispatcher, remap_ids, remap_routing  # noqa: E402
from routepack_opt.runtime.recorder import RoutingRecorder  # noqa: E402

from .launch import all_ok, run_ranks  # noqa: E402
from .megatron_job import Case, MegatronJob  # noqa: E402
from .test_megatron import merge  # noqa: E402
from .toy import permutations  # noqa: E402

PLACEMENTS = permutations(2, layers=2)


def test_remap_moves_columns_and_sends_gradients_back_to_logical_ones():
    slots = np.array([2, 0, 3, 1])
    layer_map = LayerMap(slots, torch.device("cpu"))
    probs = torch.rand(5, 4, requires_grad=True)
    chosen = probs > 0.5
    mapped, weights = remap_routing(chosen, probs, layer_map.expert_of_slot)
    for expert, slot in enumerate(slots):
        assert torch.equal(mapped[:, slot], chosen[:, expert])
        assert torch.equal(weights[:, slot], probs[:, expert])
    (weights * torch.arange(4.0)).sum().backward()
    assert torch.equal(probs.grad, torch.tensor(slots, dtype=torch.float32).expand(5, 4))
    ids = torch.tensor([[0, 3], [2, -1]], dtype=torch.int32)
    remapped = remap_ids(ids, layer_map.slot_of_expert)
    assert remapped.tolist() == [[2, 1], [3, -1]]
    assert remapped.dtype == torch.int32
    address = layer_map.slot_of_expert.data_ptr()
    layer_map.commit(np.array([0, 1, 2, 3]))
    assert (layer_map.slot_of_expert.data_ptr(), layer_map.version) == (address, 1)


class Flex:
    """Records what a dispatcher's kernels would be given."""

    def dispatch_preprocess(self, hidden_states, routing_map, probs):
        """Do what a DeepEP dispatcher does: pick the chosen columns."""
        top = routing_map.sum(-1).max().item()
        return probs.masked_fill(~routing_map, 0).topk(top, dim=-1)


def test_a_flex_dispatcher_gets_slots():
    slots = np.array([2, 0, 3, 1])
    dispatcher, layer_map = Flex(), LayerMap(slots, torch.device("cpu"))
    detach = map_dispatcher(dispatcher, layer_map)
    probs = torch.tensor([[0.1, 0.4, 0.2, 0.3]])
    routing = torch.tensor([[False, True, False, True]])
    _, indices = dispatcher.dispatch_preprocess(None, routing, probs)
    assert indices.tolist() == [[0, 1]]
    with pytest.raises(InputError, match="already has one"):
        map_dispatcher(dispatcher, layer_map)
    detach()
    assert dispatcher.dispatch_preprocess(None, routing, probs)[1].tolist() == [[1, 3]]


def observe(rank):
    """Record two identical forwards, one under another placement; then what is refused."""
    job = MegatronJob(Case(recompute=True))
    job.step(0)
    recorder = RoutingRecorder(job.runtime.maps)
    hidden = torch.randn((6, 2, 16), generator=torch.Generator().manual_seed(rank))
    mask = torch.ones((2, 6))
    mask[1, 4:] = 0
    router = job.model.module.blocks[0].router
    picked = []
    handle = router.register_forward_hook(lambda m, args, out: picked.append(out[1].clone()))

    def forward():
        with recorder.padded(mask, sequence_first=True):
            job.model(hidden.requires_grad_()).sum().backward()
        job.model.zero_grad_buffer()

    forward()
    handle.remove()
    tokens = picked[0].view(6, 2, -1)
    want = [tokens[:, 0].sum(0), tokens[:4, 1].sum(0)]
    job.runtime.materializer.materialize(PLACEMENTS[0])
    forward()
    window = recorder.window()
    assert window.lengths.tolist() == [6, 4, 6, 4]
    assert np.array_equal(window.counts[0, 0], want[0])
    assert np.array_equal(window.counts[1, 0], want[1])
    assert np.array_equal(window.counts[:2], window.counts[2:])

    messages = []
    for spoil, mend in (
        (lambda: job.model(hidden).sum().backward(), job.model.zero_grad_buffer),
        (lambda: setattr(job.model.module.blocks[1].experts, "amax", torch.ones(4)), None),
    ):
        spoil()
        with pytest.raises(MaterializeError) as error:
            job.runtime.materializer.materialize(PLACEMENTS[1])
        messages.append(str(error.value))
        if mend:
            mend()
    return messages


def test_recording_recomputation_and_refusals():
    for gradient, forgotten in all_ok(run_ranks(4, observe)):
        assert "zero_grad_buffer()" in gradient
        assert "'amax' of shape (4,)" in forgotten


def checkpoint(rank, folder, experts):
    """Save under one placement, load into a fresh job under another; return both logical states.

    The checkpoint writer of Megatron-Core needs psutil; without it, it waits for ever.
    """
    from megatron.core import dist_checkpointing

    job = MegatronJob(Case(experts))
    job.step(0)
    job.runtime.materializer.materialize(PLACEMENTS[0])
    job.step(1)
    metadata = {"distrib_optim_sharding_type": "dp_reshardable"}
    with pytest.raises(InputError, match="dp_reshardable with layers"):
        logical_state_dict([job.model], job.optimizer, job.runtime, metadata=metadata)
    dist_checkpointing.save(logical_state_dict([job.model], job.optimizer, job.runtime), folder)

    fresh = MegatronJob(Case(experts))
    fresh.step(5)  # moments exist, with other values
    fresh.runtime.materializer.materialize(PLACEMENTS[1])
    for member in fresh.optimizer.chained_optimizers:
        _without_step(member)
    template = logical_state_dict([fresh.model], fresh.optimizer, fresh.runtime, is_loading=True)
    loaded = dist_checkpointing.load(template, folder)
    fresh.model.module.load_state_dict(loaded["model"])
    fresh.optimizer.load_state_dict(loaded["optimizer"])
    parts = expert_parts(fresh.runtime.adapter, fresh.runtime.maps, fresh.runtime.adapter.groups)
    ids = {(part.name, part.expert) for part in parts}
    assert len({name for name, _ in ids}) >= 3 * 2
    return job.logical(), fresh.logical(), job.step(7), fresh.step(7)


def _without_step(member):
    """Torch's Adam keeps its step as a tensor of the state; this release copies it from a dict without it."""
    original = member._set_main_param_and_optimizer_states

    def patched(parameter, tensors):
        group, order = member.model_param_group_index_map[parameter]
        state = member.optimizer.state[member.optimizer.param_groups[group]["params"][order]]
        original(parameter, {"step": state["step"], **tensors})

    member._set_main_param_and_optimizer_states = patched


@pytest.mark.parametrize("experts", ["sequential", pytest.param("te_grouped", marks=pytest.mark.long)])
def test_checkpoints_are_logical_and_load_into_any_placement(tmp_path, experts):
    results = all_ok(run_ranks(4, checkpoint, str(tmp_path), experts, limit=60))
    saved, loaded = (merge(r[i] for r in results) for i in range(2))
    assert saved.keys() == loaded.keys()
    assert {key[0] for key in saved} == {"param", "master", "exp_avg", "exp_avg_sq"}
    for key in saved:
        assert np.array_equal(saved[key], loaded[key]), key
    assert all(abs(r[2] - r[3]) <= 1e-6 for r in results)


def grouped(rank):
    """GroupedMLP keeps a rank's experts in one entry: refused while they are away."""
    job = MegatronJob(Case("grouped", dtype=torch.bfloat16))
    job.step(0)
    logical_state_dict([job.model], job.optimizer, job.runtime)
    job.runtime.materializer.materialize(PLACEMENTS[0])
    with pytest.raises(InputError, match="identity placement first"):
        logical_state_dict([job.model], job.optimizer, job.runtime)
    job.runtime.materializer.materialize(np.tile(np.arange(8), (2, 1)))
    logical_state_dict([job.model], job.optimizer, job.runtime)


@pytest.mark.long
def test_grouped_mlp_is_exported_from_the_identity_only():
    all_ok(run_ranks(4, grouped, limit=60))
