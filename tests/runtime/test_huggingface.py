"""Real Hugging Face classes: recorded, moved, trained and exported on one process."""

from __future__ import annotations

import copy

import numpy as np
import pytest

pytest.importorskip("transformers")
torch = pytest.importorskip("torch")

from routepack_opt.errors import InputError  # noqa: E402
from routepack_opt.runtime.adapters.huggingface import attach, find_experts  # noqa: E402
from routepack_opt.runtime.canonical import (  # noqa: E402
    canonical_state_dict,
    expert_parts,
    load_canonical,
    load_safetensors,
    save_safetensors,
)
from routepack_opt.runtime.control import MaterializeError  # noqa: E402
from routepack_opt.runtime.materialize import Groups  # noqa: E402
from routepack_opt.runtime.recorder import RoutingRecorder  # noqa: E402

from .hf_models import build  # noqa: E402
from .toy import permutations  # noqa: E402

FAST = ["qwen3_moe", "gpt_oss", "deepseek_v3", "bailing_hybrid"]
LONG = ["mixtral", "olmoe", "glm4_moe"]
FAMILIES = [*FAST, *(pytest.param(name, marks=pytest.mark.long) for name in LONG)]


def inputs(seed):
    """Two padded samples of 9 and 6 tokens."""
    ids = torch.randint(1, 64, (2, 9), generator=torch.Generator().manual_seed(seed))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0
    return ids, mask


def step(model, optimizer, seed):
    """One step; return the logits and the gradients by name."""
    ids, mask = inputs(seed)
    logits = model(ids, attention_mask=mask).logits
    logits.float().log_softmax(-1)[..., 1].mean().backward()
    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
    optimizer.step()
    optimizer.zero_grad()
    return logits.detach(), grads


def logical(runtime, groups=None):
    """{(tensor, layer, expert): values}, from the canonical view."""
    parts = expert_parts(runtime.adapter, runtime.maps, groups or Groups())
    return {(p.name, p.layer, p.expert): p.view.detach().clone() for p in parts}


@pytest.mark.parametrize("family", FAMILIES)
def test_moved_models_train_like_the_control(family, tmp_path):
    model, control = build(family), build(family)
    optimizer, other = (torch.optim.AdamW(m.parameters(), lr=1e-3) for m in (model, control))
    runtime = attach(model, optimizer, staging_bytes=1 << 20)
    plain = attach(control, other, staging_bytes=0)
    pointers = {n: p.data_ptr() for n, p in model.named_parameters()}
    layers = len(runtime.maps)
    moved_keys = {f"{e.name}.{n}" for e in runtime.adapter.experts for n in e.axes}
    for number, placement in enumerate(permutations(3, layers)):
        logits, grads = step(model, optimizer, number)
        want, want_grads = step(control, other, number)
        assert torch.allclose(logits, want, atol=2e-4), (logits - want).abs().max()
        for name in grads.keys() - moved_keys:
            assert torch.allclose(grads[name], want_grads[name], atol=2e-4), name
        before = logical(runtime)
        runtime.materializer.materialize(placement)
        after = logical(runtime)
        assert before.keys() == after.keys()
        assert all(torch.equal(before[k], after[k]) for k in before)
        assert any(key[0].endswith("/exp_avg_sq") for key in after)
        assert pointers == {n: p.data_ptr() for n, p in model.named_parameters()}
    end, want = logical(runtime), logical(plain)
    assert all(torch.allclose(end[k], want[k], atol=3e-3) for k in end)
    ids, mask = inputs(9)
    with torch.no_grad():
        moved = model(ids, attention_mask=mask).logits
        assert torch.allclose(moved, control(ids, attention_mask=mask).logits, atol=3e-3)
        runtime.detach()
        assert not torch.allclose(moved, model(ids, attention_mask=mask).logits, atol=0.05)


def test_export_is_canonical_and_loads_into_any_placement(tmp_path):
    model = build("gpt_oss")
    original = copy.deepcopy(model.state_dict())
    runtime = attach(model, staging_bytes=1 << 20)
    first, second = permutations(2, len(runtime.maps))
    runtime.materializer.materialize(first)
    assert not torch.equal(
        model.state_dict()["model.layers.0.mlp.experts.down_proj"],
        original["model.layers.0.mlp.experts.down_proj"],
    )
    state = canonical_state_dict(model, runtime.adapter.experts, runtime.maps)
    save_safetensors(tmp_path / "model.safetensors", state)
    loaded = load_safetensors(tmp_path / "model.safetensors")
    assert loaded.keys() == original.keys()
    assert all(torch.equal(loaded[k], original[k]) for k in original)

    fresh = build("gpt_oss", seed=1)
    target = attach(fresh, staging_bytes=1 << 20)
    target.materializer.materialize(second)
    load_canonical(fresh, loaded, target.adapter.experts, target.maps)
    again = canonical_state_dict(fresh, target.adapter.experts, target.maps)
    assert all(torch.equal(again[k], original[k]) for k in original)
    with pytest.raises(InputError, match=r"down_proj.*in the checkpoint"):
        load_canonical(fresh, {}, target.adapter.experts, target.maps)


def test_a_view_is_not_read_across_a_commit():
    model = build("gpt_oss")
    runtime = attach(model, staging_bytes=1 << 20)
    parts = expert_parts(runtime.adapter, runtime.maps, Groups())
    next(parts)
    runtime.materializer.materialize(permutations(1, len(runtime.maps))[0])
    with pytest.raises(InputError, match="commit in between"):
        list(parts)


def quantized(kind):
    """A real quantized experts module with distinct bytes in every tensor."""
    from transformers import AutoConfig

    if kind == "mxfp4":
        from transformers.integrations.mxfp4 import Mxfp4GptOssExperts

        config = AutoConfig.for_model("gpt_oss", num_local_experts=8, hidden_size=32, intermediate_size=32)
        module = Mxfp4GptOssExperts(config)
    else:
        from transformers.integrations.finegrained_fp8 import FP8Experts

        config = AutoConfig.for_model("qwen3_moe", num_experts=8, hidden_size=32, moe_intermediate_size=16)
        module = FP8Experts(config, block_size=(8, 8), activation_scheme="static")
    for index, tensor in enumerate(module.state_dict().values()):
        noise = torch.randint(0, 100, tensor.shape, generator=torch.Generator().manual_seed(index))
        tensor.view(torch.uint8 if tensor.element_size() == 1 else tensor.dtype).copy_(noise)
    return module


@pytest.mark.parametrize("kind", ["fp8", "mxfp4"])
def test_quantized_state_moves_with_its_scales(kind):
    holder = torch.nn.ModuleDict({"experts": quantized(kind)})
    runtime = attach(holder, staging_bytes=1 << 20)
    before = logical(runtime)
    names = {key[0] for key in before}
    assert len(names) == (6 if kind == "fp8" else 4)
    for placement in permutations(3, layers=1):
        runtime.materializer.materialize(placement)
        module = holder["experts"]
        after = logical(runtime)
        assert all(torch.equal(_bytes(before[k]), _bytes(after[k])) for k in before)
        assert torch.equal(
            _bytes(module.down_proj[int(placement[0, 3])]), _bytes(before["experts.down_proj", 0, 3])
        )


def _bytes(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8)


class Hidden:
    """Stands for a quantizer's config object that holds scales."""

    def __init__(self):
        self.inner = {"weight_scale": torch.ones(8, 4)}


def test_what_could_be_forgotten_is_refused_by_name():
    holder = torch.nn.ModuleDict({"experts": quantized("mxfp4")})
    runtime = attach(holder, staging_bytes=1 << 20)
    module, target = holder["experts"], permutations(1, layers=1)[0]

    def refused(match):
        with pytest.raises(MaterializeError, match=match):
            runtime.materializer.materialize(target)

    module.gate_up_proj_precision_config = Hidden()
    refused(r"gate_up_proj_precision_config.inner\['weight_scale'\]")
    module.gate_up_proj_precision_config = None

    module.g1_alphas = torch.ones(8)
    refused("'g1_alphas' of shape")
    del module.g1_alphas

    module.input_scale = torch.tensor(3.0)
    refused("input_scale")
    del module.input_scale

    bias = module.down_proj_bias
    del module.down_proj_bias
    module.register_buffer("down_proj_bias", torch.ones(32).expand(8, 32))
    refused("stride 0")
    module.down_proj_bias = bias.detach().clone()
    runtime.materializer.materialize(target)


def test_unknown_optimizers_and_hidden_copies_are_refused():
    model = build("gpt_oss")

    class Shampoo(torch.optim.SGD):
        pass

    for optimizer, match in (
        (Shampoo(model.parameters(), lr=0.1), "Shampoo"),
        (torch.optim.AdamW([p.detach().clone() for p in model.parameters()]), "another copy"),
        (torch.optim.Adafactor(model.parameters()), "Adafactor"),
    ):
        runtime = attach(model, optimizer, staging_bytes=1 << 20)
        with pytest.raises(MaterializeError, match=match):
            runtime.materializer.materialize(permutations(1, len(runtime.maps))[0])
        runtime.detach()


def test_a_module_is_mapped_once():
    model = build("gpt_oss")
    runtime = attach(model, staging_bytes=1)
    with pytest.raises(InputError, match="already has one"):
        attach(model, staging_bytes=1)
    runtime.detach()
    attach(model, staging_bytes=1)


@pytest.mark.parametrize("family", FAMILIES)
def test_recorded_routing_is_logical_and_leaves_padding_out(family):
    model = build(family)
    runtime = attach(model, staging_bytes=1 << 20)
    recorder = RoutingRecorder(runtime.maps)
    ids, mask = inputs(3)
    chosen = []
    for one in find_experts(model):
        one.module.register_forward_pre_hook(
            lambda m, args, kwargs: chosen.append(
                next(
                    (kwargs[k] for k in ("top_k_index", "router_indices") if k in kwargs),
                    args[1] if len(args) > 1 else None,
                )
            ),
            with_kwargs=True,
            prepend=True,
        )
    with torch.no_grad(), recorder.padded(mask):
        model(ids, attention_mask=mask)
    runtime.materializer.materialize(permutations(1, len(runtime.maps))[0])
    with torch.no_grad(), recorder.padded(mask):
        model(ids, attention_mask=mask)
    window = recorder.window()
    assert window.lengths.tolist() == [9, 6, 9, 6]
    assert np.array_equal(window.counts[:2], window.counts[2:])
    layers = len(runtime.maps)
    for layer in range(layers):
        picked = chosen[layer].view(2, 9, -1)
        for sample, length in enumerate((9, 6)):
            want = torch.bincount(picked[sample, :length].reshape(-1), minlength=8)
            assert window.counts[sample, layer].tolist() == want.tolist()


def test_the_recorder_refuses_what_does_not_fit():
    model = build("gpt_oss")
    runtime = attach(model, staging_bytes=1)
    recorder = RoutingRecorder(runtime.maps)
    ids, _ = inputs(3)
    with pytest.raises(InputError, match="recorded samples"):
        recorder.window()
    with pytest.raises(InputError, match="18"), recorder.packed([9, 8]), torch.no_grad():
        model(ids)
    with pytest.raises(InputError, match=r"layers \[0, 1\] were not"), recorder.packed([9]):
        pass
    with torch.no_grad(), recorder.packed([9, 9]):
        model(ids)
    assert recorder.window().size == 2
