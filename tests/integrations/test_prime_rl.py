"""prime-rl 0.8.0 (559b4477): `prepare_batch(rollouts, seq_len, workers, bin_cost, multiple)`: [worker][row].

Contract: as many microbatches for every worker; at each row all workers have one modality; no microbatch over
`seq_len`; the trainer's own functions build the microbatches.
"""

import numpy as np
import pytest

from integrations.seams import broken, check_grid, lengths, namespace, seam
from integrations.upstream import checkout
from routepack_opt import MoEModel
from routepack_opt.integrations.prime_rl import _own_cells, prepare_batch

DP, CAPACITY, MODEL = 2, 100, MoEModel(layers=2, experts=4, top_k=1, dense_layers=())


def cost(sizes):
    return sum(sizes)


class Tools:
    """The trainer's building blocks, of the published shape."""

    @staticmethod
    def prepare_sample(rollout, seq_len):
        return namespace(
            input_ids=rollout.token_ids[:seq_len],
            mm_kwargs=rollout.mm,
            routed_experts=rollout.routed,
            sequence_lengths=[],
        )

    @staticmethod
    def packed_samples_into_micro_bs(samples, seq_len, workers, bin_cost):
        samples.sort(key=lambda sample: -len(sample.input_ids))
        apart = [[s] for s in samples] if any(s.mm_kwargs == "apart" for s in samples) else [samples]
        return [
            namespace(
                input_ids=[t for s in part for t in s.input_ids],
                sequence_lengths=[len(s.input_ids) for s in part],
            )
            for part in apart
        ]

    @staticmethod
    def pad_micro_batch(batch, multiple):
        pad = -len(batch.input_ids) % multiple
        batch.input_ids = batch.input_ids + [-1] * pad
        batch.sequence_lengths[-1] += pad
        return batch


def own(rollouts, seq_len, workers, bin_cost, multiple=1):
    """One sample per microbatch, dealt round robin."""
    samples = [Tools.prepare_sample(r, seq_len) for r in rollouts]
    batches = [
        Tools.pad_micro_batch(Tools.packed_samples_into_micro_bs([s], seq_len, 1, bin_cost)[0], multiple)
        for s in samples
    ]
    return [batches[w::workers] for w in range(workers)]


def rollouts(sizes, mm=None, routed=True):
    rng = np.random.default_rng(0)
    return [
        namespace(
            token_ids=[i] * n,
            mm=mm[i] if mm else None,
            routed=namespace(
                data=rng.integers(0, 4, (n, 2, 1), np.uint8).tobytes(), dtype="uint8", shape=[n, 2, 1]
            )
            if routed
            else None,
        )
        for i, n in enumerate(sizes)
    ]


def cells_of(grid):
    """Samples are known by their token."""
    assert len({len(worker) for worker in grid}) == 1
    return [
        [sorted({t for t in worker[r].input_ids if t >= 0}) for worker in grid] for r in range(len(grid[0]))
    ]


def run(here, samples, multiple=1, packer=own):
    return prepare_batch(here, packer, Tools)(samples, CAPACITY, DP, cost, multiple)


def test_the_grid_is_the_plan():
    here, sizes = seam(DP, CAPACITY, model=MODEL, ep=2, mask=True), lengths(24, CAPACITY)
    cells = cells_of(run(here, rollouts(sizes)))
    check_grid(cells, sizes, CAPACITY, DP)
    assert [[tuple(cell) for cell in row] for row in cells] == [list(row) for row in here.plans[0].cells]
    assert here.plans[0].placement.num_layers == 2


def test_padding_of_a_microbatch_stays_under_the_cap():
    here = seam(DP, CAPACITY)
    grid = run(here, rollouts([50] * 8, routed=False), multiple=8)
    assert here.outcomes == {"planned": 1}
    assert all(
        len(batch.input_ids) % 8 == 0 and len(batch.input_ids) <= CAPACITY
        for worker in grid
        for batch in worker
    )


def test_rows_have_one_modality():
    mm = [{"pixels": 1} if i % 3 == 0 else None for i in range(24)]
    here = seam(DP, CAPACITY)
    cells = cells_of(run(here, rollouts(lengths(24, CAPACITY), mm, routed=False)))
    assert here.outcomes == {"planned": 1}
    assert all(len({mm[i] is None for cell in row for i in cell}) == 1 for row in cells)


def test_samples_that_the_trainer_keeps_apart_run_its_own_packer():
    here = seam(DP, CAPACITY)
    cells = cells_of(run(here, rollouts([5] * 8, ["apart"] * 8, routed=False)))
    assert cells == [[[0], [1]], [[2], [3]], [[4], [5]], [[6], [7]]] and "apart" in here.reason


def test_faults_run_the_own_packer():
    sizes = lengths(8, CAPACITY)
    assert cells_of(run(broken(DP, CAPACITY), rollouts(sizes))) == cells_of(
        own(rollouts(sizes), CAPACITY, DP, cost)
    )
    here = seam(DP, CAPACITY)

    def filled(samples, *args):  # a short batch is filled with copies
        return own([*samples, samples[0]], *args)

    assert len(run(here, rollouts([5]), packer=filled)[1]) == 1 and here.outcomes == {"own": 1}

    def refuse(*args):
        raise ValueError("no advantages")

    with pytest.raises(ValueError, match="no advantages"):
        run(here, rollouts([5]), packer=refuse)


def test_the_own_grid_is_read_back():
    here, sizes = seam(DP, CAPACITY), [50, 50, 50, 50]
    best = lambda samples, *args: [  # noqa: E731
        Tools.packed_samples_into_micro_bs(
            [Tools.prepare_sample(samples[i], CAPACITY) for i in cell], CAPACITY, 1, cost
        )
        for cell in ([0, 1], [2, 3])
    ]
    found = run(here, rollouts(sizes, routed=False), packer=best)
    assert len(found[0]) == 1 and here.plans[0].rows.rows == 1


def test_two_hosts_pack_alike():
    samples = rollouts(lengths(24, CAPACITY))
    assert cells_of(run(seam(DP, CAPACITY), samples)) == cells_of(run(seam(DP, CAPACITY), samples))


@pytest.fixture
def real():
    names = ["prime_rl.trainer.batch", "prime_rl.transports.rollouts.types"]
    with checkout("prime_rl", "src", names, needs=["msgspec"]) as load:
        yield load(names[0]), load(names[1])


@pytest.mark.parametrize("multiple", [1, 8])
def test_the_real_packer_builds_planned_microbatches(real, multiple):
    batch, types = real
    sizes, rng = [n - n % multiple or multiple for n in lengths(40, CAPACITY - 4)], np.random.default_rng(0)
    samples = [
        types.TrainingSample(
            token_ids=[i] * n,
            mask=[True] * n,
            logprobs=[0.0] * n,
            temperatures=[1.0] * n,
            env_name=str(i),
            advantages=[1.0] * n,
            routed_experts=types.RoutedExperts(
                data=rng.integers(0, 4, (n, 2, 1), np.uint8).tobytes(), shape=[n, 2, 1], dtype="uint8"
            ),
        )
        for i, n in enumerate(sizes)
    ]
    here = seam(DP, CAPACITY, model=MODEL, ep=2, mask=True)
    theirs = batch.prepare_batch(samples, CAPACITY, DP, batch.build_bin_cost(None), multiple)
    ours = prepare_batch(here, batch.prepare_batch, batch)(
        samples, CAPACITY, DP, batch.build_bin_cost(None), multiple
    )
    assert here.outcomes == {"planned": 1} and here.plans[0].placement.num_layers == 2
    assert len(ours[0]) == len(ours[1]) <= len(theirs[0])
    check_grid(_own_cells(theirs, [batch.prepare_sample(s, CAPACITY) for s in samples]), sizes, CAPACITY, DP)
    cells = [[sorted({int(e) for e in w[r].env_names if e}) for w in ours] for r in range(len(ours[0]))]
    check_grid(cells, sizes, CAPACITY, DP)
    for worker in ours:
        for each in worker:
            batch._assert_token_arrays_aligned(each)
            assert each.routed_experts.shape[0] == len(each.input_ids) and len(each.input_ids) % multiple == 0
    answer = prepare_batch(broken(DP, CAPACITY), batch.prepare_batch, batch)
    assert answer(samples, CAPACITY, DP, batch.build_bin_cost(None), multiple) == theirs
