"""Stage, vote, commit on real gloo ranks: plain torch experts and a toy distributed optimizer."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from routepack_opt.runtime.adapters.plain import ExpertLayer  # noqa: E402
from routepack_opt.runtime.canonical import canonical_state_dict, load_canonical  # noqa: E402
from routepack_opt.runtime.materialize import Materializer  # noqa: E402

from .launch import all_ok, run_ranks  # noqa: E402
from .toy import AXES, EXPERTS, Job, ShardedState, permutations  # noqa: E402


def merge(parts):
    """Join the ranks' logical views; a logical expert must be on one rank of each lane, with equal values."""
    whole = {}
    for part in parts:
        for key, value in part.items():
            assert key not in whole or np.array_equal(whole[key], value), key
            whole[key] = value
    return whole


def train(rank, ranks, lanes, placements, staging, dtype):
    job = Job(ranks, lanes, staging=staging, dtype=dtype)
    job.step(99)
    before, addresses, reports = job.logical(), job.addresses(), []
    for number, placement in enumerate(placements):
        reports.append(job.materializer.materialize(placement))
        assert job.addresses() == addresses
        assert all((job.materializer.placement[k] == placement[k]).all() for k in (0, 1))
        if number == 0:
            moved = job.logical()
        job.step(number)
    return before, moved, job.logical(), reports


@pytest.mark.parametrize(
    ("ranks", "lanes", "staging", "dtype"),
    [(2, 2, 1 << 20, torch.float32), (4, 1, 6000, torch.float32), (2, 1, 1 << 20, torch.bfloat16)],
)
def test_training_goes_on_as_if_nothing_had_moved(ranks, lanes, staging, dtype):
    placements = permutations(4, layers=2)
    world = ranks * lanes
    moved = all_ok(run_ranks(world, train, ranks, lanes, placements, staging, dtype))
    still = all_ok(
        run_ranks(world, train, ranks, lanes, [np.tile(np.arange(EXPERTS), (2, 1))] * 4, staging, dtype)
    )
    whole = [merge(r[stage] for r in moved) for stage in range(3)]
    control = merge(r[2] for r in still)
    assert whole[0].keys() == whole[1].keys() == control.keys()
    assert len(control) == 2 * EXPERTS * (3 * 3 + 1)
    for key in control:
        assert np.array_equal(whole[0][key], whole[1][key]), key
        assert np.array_equal(whole[2][key], control[key]), key
    for report in moved[0][3]:
        assert 0 < report.staging_peak <= staging
        assert report.bytes_across_lanes == 0
    assert all(r.transfers == 0 for r in still[0][3])
    expert = sum(n * 3 for n in (24, 12, 5)) * dtype.itemsize + 3
    step = placements[1][:, :] // (EXPERTS // ranks) != placements[0] // (EXPERTS // ranks)
    assert moved[0][3][1].bytes_across_ranks == int(step.sum()) * expert * lanes


def shard(rank, cuts, placements):
    job = Job(2, 2)
    adapter = ShardedState(job, cuts)
    materializer = Materializer(adapter, {0: job.maps[0]}, job.groups, job.control, staging_bytes=4096)
    pointers = [s.data_ptr() for s in adapter.shards]
    reports = []
    for placement in placements:
        reports.append(materializer.materialize(placement))
        expert_of_slot = np.argsort(placement[0])
        for slot, shard in enumerate(adapter.shards):
            expert = int(expert_of_slot[job.first + slot])
            origin = torch.arange(10.0) + 10 * (expert % job.local) + 100 * (expert // job.local)
            assert torch.equal(adapter.full[slot], origin)
            assert torch.equal(shard, origin[slice(*adapter.held[job.lane, slot])])
    assert pointers == [s.data_ptr() for s in adapter.shards]
    return [(r.bytes_across_ranks, r.bytes_across_lanes) for r in reports]


def test_ranges_that_lanes_cut_anywhere_are_repartitioned():
    cuts = [[0], [3], [10], [5]]
    results = all_ok(run_ranks(4, shard, cuts, permutations(3, layers=1)))
    assert all(r == results[0] for r in results)
    assert all(across > 0 for _, across in results[0])


def export(rank):
    """Gather canonical tensors over two ranks, change the live ones, load the canonical ones again."""
    job = Job(2, 2)
    model = torch.nn.ModuleList(job.modules)
    experts = [ExpertLayer(layer, str(layer), module, AXES) for layer, module in enumerate(job.modules)]
    first = canonical_state_dict(model, experts, job.maps, job.groups)
    for placement in permutations(2, layers=2):
        job.materializer.materialize(placement)
        state = canonical_state_dict(model, experts, job.maps, job.groups)
        assert state.keys() == first.keys() == dict(model.state_dict()).keys()
        assert all(torch.equal(state[key], first[key]) for key in first)
        assert not torch.equal(model.state_dict()["0.up"], first["0.up"][job.first : job.first + job.local])
    before = job.logical()
    with torch.no_grad():
        for tensor in model.state_dict().values():
            tensor.zero_()
    load_canonical(model, state, experts, job.maps, job.groups)
    after = job.logical()
    assert all(np.array_equal(before[key], after[key]) for key in before)


def test_export_gathers_the_ranks_and_loads_into_the_committed_placement():
    all_ok(run_ranks(4, export))
