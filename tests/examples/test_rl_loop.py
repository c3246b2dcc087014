"""The example loop on real gloo ranks: what it promises holds, and breaking the contract is noticed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).resolve().parents[2]
LOOP = ROOT / "examples" / "rl_loop"
sys.path.insert(0, str(LOOP))

from loop import Loop  # noqa: E402
from main import parse  # noqa: E402
from model import build_model  # noqa: E402
from rollout import roll_out, with_advantages  # noqa: E402
from training import own_layout, run_rows  # noqa: E402

from routepack_opt.runtime.canonical import load_safetensors  # noqa: E402
from tests.runtime.launch import all_ok, run_ranks  # noqa: E402


def test_the_loop_trains_the_same_and_moves_experts(tmp_path):
    weights = tmp_path / "weights.safetensors"
    command = [sys.executable, str(LOOP / "main.py"), "--steps", "2", "--json", "--checkpoint", str(weights)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert [report["step"] for report in reports] == [0, 1]
    for report in reports:
        assert report["rows_status"] == "certified"
        assert report["rung"] == "annealed"
        assert report["experts_moved"] > 0
        assert report["planned_joint"] < report["own_joint"]
        assert report["loss_difference"] < 1e-6
        assert report["gradient_difference"] < 1e-5
        assert report["load_error"] == 0
        assert report["sync_difference"] < 1e-5
    restored, state = build_model(seed=5), load_safetensors(weights)
    restored.load_state_dict(state)  # every name, every expert, whatever the last placement was
    first = build_model(seed=0).state_dict()
    assert any(not torch.equal(first[name], state[name]) for name in first)


def losses_of_layouts(rank):
    """Loss of one window in three layouts, then with the contract broken in three ways."""
    loop = Loop(parse(["--prompts", "4", "--capacity", "80"]))
    options, group = loop.options, loop.group
    samples, window = roll_out(loop.model, loop.runtime.maps, options.prompts, options.answers, 3, group)
    own = own_layout(window.lengths.tolist(), options.capacity, loop.ranks)
    plan = loop.plan(window, own)

    def loss(cells, of=samples):
        value = run_rows(loop.model, of, cells, group)
        loop.optimizer.zero_grad()
        return value

    turned = [list(reversed(row)) for row in reversed(own)]
    kept = {"own": loss(own), "turned": loss(turned)}
    loop.runtime.materializer.materialize(plan.placement)
    kept["planned"] = loss(plan.cells)

    per_cell = list(samples)
    for row in plan.cells:
        for cell in row:  # a baseline over whatever happens to share a microbatch
            regrouped = [type(samples[i])(**{**vars(samples[i]), "prompt_id": 0}) for i in cell]
            for i, sample in zip(cell, with_advantages(regrouped), strict=True):
                per_cell[i] = sample
    broken = {"a baseline per cell": loss(plan.cells, per_cell), "a row dropped": loss(plan.cells[1:])}
    for layer_map in loop.runtime.maps.values():
        layer_map.commit(torch.arange(len(layer_map.slot_of_expert)).numpy())
    broken["experts moved, not the routing"] = loss(plan.cells)
    loop.close()
    return kept, broken


def test_the_loss_does_not_know_the_layout_and_violations_show():
    kept, broken = all_ok(run_ranks(2, losses_of_layouts))[0]
    assert max(kept.values()) - min(kept.values()) < 1e-6, kept
    for violation, value in broken.items():
        assert abs(value - kept["own"]) > 1e-4, violation
