"""slime 0.3.1: `build_dp_schedule(args, config, lengths, *, global_batch_size, rollout_indices)`.

Contract: four results; per rank, microbatches of local positions that tile the rank's samples; the same
number of microbatches on every rank in every step; a sample over the cap alone in its own.
"""

from itertools import accumulate

import numpy as np
import pytest

from integrations.seams import broken, check_grid, counts, lengths, namespace, seam
from integrations.upstream import checkout
from routepack_opt import MoEModel
from routepack_opt.integrations.slime import DpSchedule, install

DP, CAPACITY = 2, 100
PARALLEL = {"dp_size": DP, "cp_size": 2, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
ARGS = namespace(
    use_dynamic_batch_size=True, max_tokens_per_gpu=CAPACITY // 2, balance_data=False, balance_by_flops=False
)


def cells_of(result):
    """Check the contract and return the cells of every step."""
    partitions, microbatches, numbers, _ = result
    assert all(sum(map(len, part)) == len(p) for part, p in zip(microbatches, partitions, strict=True))
    for part, batches in zip(partitions, microbatches, strict=True):
        assert [i for batch in batches for i in batch] == list(range(len(part)))
        assert len(batches) == sum(numbers)
    ends = list(accumulate(numbers))
    return [
        [
            [[p[i] for i in b[m]] for p, b in zip(partitions, microbatches, strict=True)]
            for m in range(e - n, e)
        ]
        for e, n in zip(ends, numbers, strict=True)
    ]


def fake(args, parallel, sizes, *, global_batch_size, rollout_indices):
    """A schedule of the published shape: one sample per microbatch, dealt round robin, in steps."""
    dp, steps = parallel["dp_size"], len(rollout_indices) // global_batch_size
    parts = [[i for i in range(steps * global_batch_size) if i % dp == d] for d in range(dp)]
    batches = [[[k] for k in range(len(part))] for part in parts]
    return parts, batches, [global_batch_size // dp] * steps, [global_batch_size] * steps


def run(schedule, sizes, size, rollouts=None, parallel=PARALLEL, args=ARGS):
    rollouts = rollouts if rollouts is not None else list(range(len(sizes)))
    return schedule(args, parallel, sizes, global_batch_size=size, rollout_indices=rollouts)


@pytest.fixture
def real():
    names = [
        "slime",
        "slime.utils",
        "slime.utils.dp_schedule",
        "slime.utils.seqlen_balancing",
        "slime.utils.flops_utils",
    ]
    with checkout("slime", "slime", names) as load:
        yield load("slime.utils.dp_schedule").build_dp_schedule


def test_steps_are_planned_and_trailing_rollouts_dropped():
    here, sizes = seam(DP, CAPACITY), lengths(26, CAPACITY)
    result = run(DpSchedule(here, fake), sizes, 12)
    assert result[3] == [12, 12]
    for s, cells in enumerate(cells_of(result)):
        step = [[[i - 12 * s for i in cell] for cell in row] for row in cells]
        check_grid(step, sizes[12 * s : 12 * s + 12], CAPACITY, DP)
        assert [[tuple(cell) for cell in row] for row in step] == [list(row) for row in here.plans[s].cells]


def test_samples_of_one_rollout_share_a_step():
    rollouts = [0, 1, 0, 2, 3, 3, 2, 1]
    result = run(DpSchedule(seam(DP, CAPACITY), fake), [10] * 8, 2, rollouts)
    kept = [{i for row in cells for cell in row for i in cell} for cells in cells_of(result)]
    assert kept == [{0, 1, 2, 7}, {3, 4, 5, 6}]


def test_the_pipeline_divides_the_rows():
    parallel = PARALLEL | {"vpp_size": 2, "microbatch_group_size_per_vp_stage": 3}
    result = run(DpSchedule(seam(DP, CAPACITY), fake), lengths(30, CAPACITY), 30, parallel=parallel)
    assert result[2][0] % 3 == 0


def test_a_sample_over_the_cap_stands_alone():
    sizes = [150, *lengths(11, CAPACITY)]
    here = seam(DP, CAPACITY)
    (cells,) = cells_of(run(DpSchedule(here, fake), sizes, 12))
    check_grid(cells, sizes, CAPACITY, DP, alone={0})
    assert here.outcomes == {"planned": 1}


def test_faults_run_the_own_schedule():
    sizes = lengths(12, CAPACITY)
    theirs = run(fake, sizes, 12)
    assert run(DpSchedule(broken(DP, CAPACITY), fake), sizes, 12) == theirs
    static = namespace(**(vars(ARGS) | {"use_dynamic_batch_size": False}))
    assert run(DpSchedule(seam(DP, CAPACITY), fake), sizes, 12, args=static) == theirs
    here = seam(DP, CAPACITY)
    mixed = cells_of(run(DpSchedule(here, fake), [10] * 4 + [10] * 4, 4))
    assert len(mixed) == 2 and here.outcomes["planned"] == 2


def test_one_unplanned_step_keeps_its_own_cells():
    here = seam(DP, CAPACITY)
    schedule = DpSchedule(here, fake)
    schedule.see(counts=[np.zeros((1, 2))] * 4 + [np.full((1, 2), -1)] * 4)  # counts below zero are refused
    result = run(schedule, [10] * 8, 4)
    assert here.outcomes == {"planned": 1, "own": 1}
    assert cells_of(result)[1] == cells_of(run(fake, [10] * 8, 4))[1]


def test_what_the_trainer_refuses_it_refuses():
    def refuse(*args, **kwargs):
        raise AssertionError("need at least one rollout per step")

    with pytest.raises(AssertionError, match="one rollout per step"):
        run(DpSchedule(seam(DP, CAPACITY), refuse), [5, 5], 4)
    with pytest.raises(AssertionError, match="one rollout per step"):
        run(DpSchedule(seam(DP, CAPACITY), refuse), [5], 1)


def test_routing_is_seen_where_slime_checks_it():
    here = seam(DP, CAPACITY, ep=2, model=MoEModel(layers=2, experts=4, top_k=1, dense_layers=()), mask=True)
    module = namespace(
        build_dp_schedule=fake, validate_rollout_routed_experts_for_replay=lambda routed, args: None
    )
    schedule = install(here, module)
    assert install(here, module) is schedule is module.build_dp_schedule
    sizes = lengths(12, CAPACITY)
    rng = np.random.default_rng(0)
    module.validate_rollout_routed_experts_for_replay(
        [rng.integers(0, 4, (n - 1, 2, 1)) for n in sizes], ARGS
    )
    run(schedule, sizes, 12)
    assert here.plans[0].placement.num_layers == 2
    run(schedule, sizes, 12)  # routing is of one batch only
    assert here.plans[0].placement.num_layers == 0


def test_two_hosts_schedule_alike():
    sizes = lengths(24, CAPACITY)
    assert run(DpSchedule(seam(DP, CAPACITY), fake), sizes, 12) == run(
        DpSchedule(seam(DP, CAPACITY), fake), sizes, 12
    )


@pytest.mark.parametrize("balance", [False])
def test_the_real_schedule_is_never_beaten_by_it(real, balance):
    here, sizes = seam(DP, CAPACITY), lengths(48, CAPACITY)
    args = namespace(**(vars(ARGS) | {"balance_data": balance}))
    theirs = run(real, sizes, 24, args=args)
    cells_of(theirs)
    ours = run(DpSchedule(here, real), sizes, 24, args=args)
    assert here.outcomes == {"planned": 2} and ours[3] == theirs[3]
    assert all(a <= b for a, b in zip(ours[2], theirs[2], strict=True))
    for a, b in zip(cells_of(ours), cells_of(theirs), strict=True):
        assert {i for r in a for c in r for i in c} == {i for r in b for c in r for i in c}


def test_the_real_schedule_answers_when_planning_fails(real):
    sizes = lengths(24, CAPACITY)
    assert run(DpSchedule(broken(DP, CAPACITY), real), sizes, 12) == run(real, sizes, 12)
    # Fewer rows: arrival-order first fit needs three bins, so two rows.
    ours = run(DpSchedule(seam(DP, CAPACITY), real), [10, 50, 60, 50, 5, 5], 6)
    assert ours[2] == [1] and run(real, [10, 50, 60, 50, 5, 5], 6)[2] == [2]


def test_counts_may_be_seen_too():
    sizes = lengths(12, CAPACITY)
    here = seam(DP, CAPACITY, ep=2)
    schedule = DpSchedule(here, fake)
    schedule.see(counts=list(counts(sizes)))
    run(schedule, sizes, 12)
    assert here.plans[0].placement.num_experts == 4
