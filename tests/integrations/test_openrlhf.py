"""OpenRLHF 0.11.2: `balance_experiences(experiences, args)`, `NaiveReplayBuffer.setup_dynamic_batch`.

Contract: one Experience per rank; a rank trains `batch_size / D` of its samples per optimizer step, in order;
two functions of the buffer's module count and cut microbatches, everything else is computed from the cut.
"""

import random

import numpy as np
import pytest
import torch

from integrations.seams import broken, check_grid, counts, lengths, namespace, owns_of, seam
from integrations.upstream import checkout
from routepack_opt.integrations.openrlhf import balance_experiences, setup_dynamic_batch
from routepack_opt.integrations.rowids import FIELD

DP, CAPACITY, WINDOW = 2, 100, 16
ARGS = namespace(
    train=namespace(batch_size=WINDOW, max_tokens_per_gpu=CAPACITY // 2),
    ds=namespace(ring_attn_size=2, tensor_parallel_size=1),
    actor=namespace(num_nodes=1, num_gpus_per_node=2 * DP),
    rollout=namespace(batch_size=24, n_samples_per_prompt=2),
)
STRATEGY = namespace(
    args=ARGS, ds_device_mesh={"dp": namespace(get_group=lambda: None)}, all_reduce=lambda value, op: value
)


class Tools:
    """Experiences of the published shape: a list of samples."""

    @staticmethod
    def split_experience_batch(experience):
        return [namespace(total_length=s.total_length, name=s.name, info=dict(s.info)) for s in experience]

    make_experience_batch = staticmethod(list)


def own_balance(experiences, args):
    """The trainer's dealing: here round robin."""
    samples = [s for part in experiences for s in part]
    return [samples[d::DP] for d in range(DP)]


def experiences(sizes):
    return [[namespace(total_length=n, name=i, info={"reward": 1.0}) for i, n in enumerate(sizes)]]


class Buffer:
    """A replay buffer of the published shape; its two helpers are looked up in its module."""

    def __init__(self, items):
        self.items = items

    def setup_dynamic_batch(self, strategy):
        piece = WINDOW // DP
        self.dynamic_indices = []
        steps = range(0, len(self.items) - piece + 1, piece)
        numbers = [MODULE.get_minimum_num_micro_batch_size([], 0, 0, 0) for _ in steps]
        for start, number in zip(steps, numbers, strict=True):
            parts = MODULE.get_seqlen_balanced_partitions(
                self.items[start : start + piece], number, equal_size=False
            )
            assert len(parts) == number
            self.dynamic_indices.extend([i + start for i in part] for part in parts)


def one_each(samples, number, equal_size):
    return [[i] for i in range(len(samples))]


MODULE = namespace(
    get_minimum_num_micro_batch_size=lambda *args: WINDOW // DP, get_seqlen_balanced_partitions=one_each
)


def run(here, sizes, **more):
    dealt = balance_experiences(here, own_balance, tools=Tools, **more)(experiences(sizes), ARGS)
    buffers = [Buffer(Tools.split_experience_batch(part)) for part in dealt]
    for buffer in buffers:
        setup_dynamic_batch(Buffer.setup_dynamic_batch, MODULE)(buffer, STRATEGY)
    return buffers


def balanced(sizes, number, equal_size):
    """Longest first to the lightest part."""
    parts = [[] for _ in range(number)]
    for i in sorted(range(len(sizes)), key=lambda i: -sizes[i]):
        min(parts, key=lambda part: sum(sizes[k] for k in part)).append(i)
    return parts


def test_the_plan_is_compared_with_the_trainers_microbatches():
    buffer = namespace(
        get_minimum_num_micro_batch_size=lambda sizes, limit, ring, tensor: -(-sum(sizes) // 80),
        get_seqlen_balanced_partitions=balanced,
    )
    here, sizes = seam(DP, CAPACITY), lengths(2 * WINDOW, CAPACITY // 2)
    seen = owns_of(here)
    run(here, sizes, buffer=buffer)
    assert here.outcomes == {"planned": 2}
    for own, plan in zip(seen, here.plans, strict=True):
        assert sorted(i for row in own for cell in row for i in cell) == list(range(WINDOW))
        assert all(len(row) == DP for row in own)
        assert len(own) >= plan.layout.rows
    run(here, sizes)
    assert seen[2:] == [None, None]


def check(buffers, sizes, plans):
    """Microbatch k of all ranks is a row; steps follow each other."""
    start = 0
    for plan in plans:
        grid = [
            [[b.items[i].name for i in b.dynamic_indices[r]] for b in buffers]
            for r in range(start, start + plan.layout.rows)
        ]
        start += plan.layout.rows
        mine = sorted(i for row in grid for cell in row for i in cell)
        local = [[[mine.index(i) for i in cell] for cell in row] for row in grid]
        check_grid(local, [sizes[i] for i in mine], CAPACITY, DP)
        assert [[len(c) for c in row] for row in grid] == [[len(c) for c in row] for row in plan.cells]
    assert all(len(b.dynamic_indices) == start for b in buffers)


def test_rows_survive_the_replay_buffer():
    here, sizes = seam(DP, CAPACITY, ep=2), lengths(48, CAPACITY)
    buffers = run(here, sizes, counts=lambda samples: counts([s.total_length for s in samples]))
    assert here.outcomes == {"planned": 3} and here.plans[0].placement.num_experts == 4
    check(buffers, sizes, here.plans)
    assert all(FIELD not in item.info and item.info["reward"] == 1.0 for b in buffers for item in b.items)
    assert MODULE.get_seqlen_balanced_partitions is one_each  # put back
    for w in range(3):  # every optimizer step keeps its samples
        step = {item.name for b in buffers for item in b.items[8 * w : 8 * w + 8]}
        assert step == set(range(16 * w, 16 * w + 16))


@pytest.mark.parametrize("size", [40, 47])
def test_batches_that_are_no_whole_steps_stay_as_they_are(size):
    here = seam(DP, CAPACITY)
    buffers = run(here, [9] * size)
    assert here.outcomes == {"own": 1} and [item.name for item in buffers[1].items][:2] == [1, 3]
    assert all(len(each) == 1 for each in buffers[0].dynamic_indices)


def test_faults_run_the_trainers_own():
    buffers = run(broken(DP, CAPACITY), [9] * 16)
    assert [item.name for item in buffers[0].items] == list(range(0, 16, 2))
    assert buffers[0].dynamic_indices == [[i] for i in range(8)]


def test_a_shuffled_buffer_runs_the_trainers_own():
    dealt = balance_experiences(seam(DP, CAPACITY), own_balance, tools=Tools)(
        experiences(lengths(32, CAPACITY)), ARGS
    )
    items = Tools.split_experience_batch(dealt[0])
    random.Random(0).shuffle(items)
    buffer = Buffer(items)
    setup_dynamic_batch(Buffer.setup_dynamic_batch, MODULE)(buffer, STRATEGY)
    assert buffer.dynamic_indices == [[i] for i in range(16)]


def test_two_drivers_deal_alike():
    sizes = lengths(32, CAPACITY)
    first, second = (run(seam(DP, CAPACITY), sizes) for _ in range(2))
    assert [b.dynamic_indices for b in first] == [b.dynamic_indices for b in second]


@pytest.fixture
def real():
    parts = ("trainer.ppo_utils.experience", "trainer.ppo_utils.replay_buffer", "utils.seqlen_balancing")
    names = [f"openrlhf.{part}" for part in parts]

    def pad(sequences, side="left", value=0, stack=False):
        width = max(s.shape[-1] for s in sequences)
        padded = [torch.nn.functional.pad(s, (0, width - s.shape[-1]), value=value) for s in sequences]
        return torch.stack(padded) if stack else torch.cat(padded)

    with checkout(
        "openrlhf", "openrlhf", names, {"openrlhf.utils.utils": {"zero_pad_sequences": pad}}
    ) as load:
        yield [load(name) for name in names]


def test_the_real_dealing_and_buffer_run_planned_rows(real, monkeypatch):
    experience, buffer, _ = real
    monkeypatch.setattr(torch.cuda, "current_device", lambda: torch.device("cpu"))
    monkeypatch.setattr(buffer.dist, "get_world_size", lambda group=None: DP)
    monkeypatch.setattr(buffer.dist, "all_reduce", lambda tensor, op=None, group=None: None)
    sizes = lengths(48, CAPACITY)
    width = max(sizes)
    mask = (torch.arange(width)[None, :] < torch.tensor(sizes)[:, None]).long()
    whole = experience.Experience(
        sequences=torch.arange(48)[:, None] * mask,
        attention_mask=mask,
        action_mask=mask.bool(),
        total_length=torch.tensor(sizes),
        info={"reward": torch.ones(48)},
    )
    here = seam(DP, CAPACITY)
    dealt = balance_experiences(here, experience.balance_experiences, tools=experience)([whole], ARGS)
    assert here.outcomes == {"planned": 3} and len(dealt) == DP

    def buffers_of(parts):
        made = []
        for part in parts:
            one = object.__new__(buffer.NaiveReplayBuffer)
            one.cpu_offload, one.limit, one.items, one.dynamic_batch, one.packing_samples = (
                True,
                0,
                [],
                True,
                False,
            )
            one.append(part)
            setup_dynamic_batch(buffer.NaiveReplayBuffer.setup_dynamic_batch, buffer)(one, STRATEGY)
            for item in one.items:
                item.name = int(item.sequences.max())
            made.append(one)
        return made

    buffers = buffers_of(dealt)
    check(buffers, sizes, here.plans)
    for one in buffers:
        assert np.isclose(sum(one.dynamic_sample_loss_scale), 3.0) and sum(one.dynamic_optimizer_step) == 3
        assert len(one) == len(one.dynamic_indices)
        one.collate_fn([one[0]])
    plain = buffers_of(experience.balance_experiences([whole], ARGS))
    for w in range(3):
        step = lambda made: {item.name for b in made for item in b.items[8 * w : 8 * w + 8]}  # noqa: B023, E731
        assert step(buffers) == step(plain)
