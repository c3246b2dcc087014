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
            if not case.overlap:  # a deferred gather brings dense parameters up to date, too
                assert all(np.array_equal(router[k], v) for k, v in job.dense_state().items())
            assert job.addresses() == addresses
            if number == 1:
                first = (before, after)
        losses.append(job.step(number))
    if case.overlap:
        job.model.start_param_sync(force_sync=True)  # else other lanes still hold the last step's parameters
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


def both(rank, case, placements):
    """Train the moved job and the control, one after the other, on the same ranks."""
    return train(rank, case, placements, True), train(rank, case, placements, False)


def _settled(case, state):
    """Leave out what a deferred parameter gather has yet to bring up to date."""
    return {key: value for key, value in state.items() if not (case.overlap and key[0] == "param")}


def compare(case, steps, seed=0):
    """Run moved and control; return the largest differences of losses and of each kind of state."""
    placements = permutations(steps, case.layers, case.num_experts, seed)
    results = all_ok(run_ranks(case.world, both, case, placements, limit=240))
    moved, still = zip(*results, strict=True)
    before, after = (merge(_settled(case, r[2][i]) for r in moved) for i in range(2))
    assert before.keys() == after.keys()
    for key in before:
        assert np.array_equal(before[key], after[key]), key
    assert len({key[0] for key in before}) == (3 if case.overlap else 4)
    end, control = merge(r[1] for r in moved), merge(r[1] for r in still)
    assert end.keys() == control.keys()
    kinds = {key[0] for key in end}
    assert kinds == {"param", "master", "exp_avg", "exp_avg_sq"}
    worst = {k: max(np.abs(end[key] - control[key]).max() for key in end if key[0] == k) for k in kinds}
    pairs = list(zip(moved, still, strict=True))
    worst["loss"] = max(abs(a - b) for m, s in pairs for a, b in zip(m[0], s[0], strict=True))
    worst["dense"] = max(np.abs(m[3][k] - s[3][k]).max() for m, s in pairs for k in m[3])
    return worst, moved, still


def test_twenty_steps_with_a_new_placement_each_match_the_never_moved_control():
    worst, moved, still = compare(Case(), steps=20)
    assert max(worst.values()) <= 2e-6, worst
    assert still[0][0][0] > still[0][0][-1]
    assert all(report.staging_peak > 0 for report in moved[0][4])


B16 = torch.bfloat16
FAST = {
    "te_grouped bf16, buckets that split experts, overlap": Case(
        "te_grouped", dtype=B16, bucket_size=600, overlap=True
    ),
    "grouped bf16, EP4, one transfer per few cycles": Case("grouped", ep=4, dtype=B16, staging=40_000),
    "sequential fp32, allgather, TP2 ETP2": Case(dispatcher="allgather", tp=2, etp=2, top_k=3),
}
LONG = {
    "sequential bf16": Case(dtype=B16),
    "sequential bf16, EP4": Case(dtype=B16, ep=4),
    "sequential bf16, buckets": Case(dtype=B16, bucket_size=500),
    "sequential bf16, overlap": Case(dtype=B16, overlap=True),
    "sequential fp32, buckets, overlap": Case(bucket_size=500, overlap=True),
    "sequential fp32, top 4, clip active": Case(top_k=4, clip=0.01),
    "sequential fp32, recompute": Case(recompute=True),
    "sequential fp32, allgather, top 3": Case(dispatcher="allgather", top_k=3),
    "sequential fp32, TP2 ETP1": Case(tp=2),
    "te_grouped fp32, EP2 EDP3": Case("te_grouped", world=6, bucket_size=600),
    "sequential bf16, EP2 EDP3, overlap": Case(world=6, dtype=B16, top_k=3, overlap=True, bucket_size=500),
    "grouped bf16, EP2 EDP2, buckets": Case("grouped", dtype=B16, bucket_size=500),
    "grouped bf16, EP2 EDP3": Case("grouped", dtype=B16, world=6),
    "te_grouped bf16, EP4": Case("te_grouped", dtype=B16, ep=4),
}


def check_case(name, case):
    worst, moved, _ = compare(case, steps=4)
    print(name, worst)
    # Another order of the same sums: in bf16 a parameter may end one unit in its last place (2^-8) away.
    fp32 = case.dtype == torch.float32
    assert worst.pop("param") <= (3e-6 if fp32 else 2**-7)
    assert max(worst.values()) <= (3e-6 if fp32 else 2e-3), worst
    for report in moved[0][4]:
        assert 0 < report.staging_peak <= case.staging
    assert case.staging == 1 << 20 or any(report.transfers > case.layers for report in moved[0][4])


@pytest.mark.parametrize("name", FAST)
def test_matrix(name):
    check_case(name, FAST[name])


@pytest.mark.long
@pytest.mark.parametrize("name", LONG)
def test_matrix_long(name):
    check_case(name, LONG[name])


def broken(rank):
    """Leave out one part of the move; return final losses, those of the control and the intact run first."""
    case, placements = Case(overlap=True, dtype=B16, layers=1), permutations(2, layers=1)

    def run(sabotage):
        job = MegatronJob(case)
        sabotage(job)
        losses = [job.step(0)]
        for number, placement in enumerate(placements, start=1):
            job.runtime.materializer.materialize(placement)
            losses.append(job.step(number))
        return losses[-1]

    def no_remap(job):
        job.runtime.detach()

    def no_move(job):
        job.runtime.materializer._stage = lambda *a: []

    def no_sync(job):
        job.runtime.adapter.synchronize = lambda: None

    control = MegatronJob(case, moving=False)
    still = [control.step(number) for number in range(3)][-1]
    return [still, *(run(sabotage) for sabotage in (lambda job: None, no_remap, no_move, no_sync))]


def test_leaving_out_the_remap_the_move_or_the_parameter_sync_is_noticed():
    results = np.array(all_ok(run_ranks(4, broken, limit=240)))
    differences = np.abs(results - results[:, :1]).max(axis=0)
    assert differences[1] <= 2e-3
    assert (differences[2:] > 0.02).all(), differences
