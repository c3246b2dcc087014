"""Real Megatron-Core layers, DDP and distributed optimizer: move at every step, compare with never moving."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("megatron.core")
torch = pytest.importorskip("torch")

from .launch import all_ok, run_ranks  # noqa: E402
from .megatron_job import Case, MegatronJob  # noqa: E402
from .toy import permutations  # noqa: E402


def train(rank, case, placements, moving):
    """Step, then move, `len(placements)` times; return losses, state at both ends, and what moved."""
    job = MegatronJob(case, moving)
    losses, reports = [job.step(0)], []
    addresses, dense = job.addresses(), job.dense_state()
    assert dense
    for number, placement in enumerate(placements, start=1):
        if moving:
            before = job.logical()
            router = job.dense_state()
            reports.append(job.runtime.materializer.materialize(placement))
            if number == 1:
                after = job.logical()
            assert all(np.array_equal(router[k], v) for k, v in job.dense_state().items())
            assert job.addresses() == addresses
            if number == 1:
                first = (before, after)
        losses.append(job.step(number))
    return losses, job.logical(), (first if moving else None), job.dense_state(), reports


def merge(parts):
    """Assemble the lanes' pieces: {key: whole flat array}, each element present, replicas equal."""
    pieces = {}
    for part in parts:
        for key, (offset, values) in part.items():
            pieces.setdefault(key, []).append((offset, values))
    whole = {}
    for key, found in pieces.items():
        size = max(offset + len(values) for offset, values in found)
        array = np.full(size, np.nan)
        for offset, values in found:
            seen = array[offset : offset + len(values)]
            assert np.all(np.isnan(seen) | (seen == values)), key
            array[offset : offset + len(values)] = values
        assert not np.isnan(array).any(), key
        whole[key] = array
    return whole


def compare(case, steps, world=4, seed=0):
    """Run moved and control; return the largest differences of losses and of each kind of state."""
    placements = permutations(steps, case.layers, case.num_experts, seed)
    moved = all_ok(run_ranks(world, train, case, placements, True, limit=240))
    still = all_ok(run_ranks(world, train, case, placements, False, limit=240))
    before, after = (merge(r[2][i] for r in moved) for i in range(2))
    assert before.keys() == after.keys()
    for key in before:
        assert np.array_equal(before[key], after[key]), key
    end, control = merge(r[1] for r in moved), merge(r[1] for r in still)
    assert end.keys() == control.keys()
    kinds = {key[0] for key in end}
    assert kinds == {"param", "master", "exp_avg", "exp_avg_sq"}
    worst = {k: max(np.abs(end[key] - control[key]).max() for key in end if key[0] == k) for k in kinds}
    worst["loss"] = max(
        abs(a - b) for m, s in zip(moved, still, strict=True) for a, b in zip(m[0], s[0], strict=True)
    )
    worst["dense"] = max(
        np.abs(m[3][k] - s[3][k]).max() for m, s in zip(moved, still, strict=True) for k in m[3]
    )
    return worst, moved, still


def test_twenty_steps_with_a_new_placement_each_match_the_never_moved_control():
    worst, moved, still = compare(Case(), steps=20)
    print(worst)
    assert max(worst.values()) <= 2e-6
    assert still[0][0][0] > still[0][0][-1]
