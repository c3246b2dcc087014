"""verl 0.9.1 and 1dda039b: both `_balance_batch`, `prepare_micro_batches`, `get_seqlen_balanced_partitions`.

Contract: V0 reorders a batch in place and returns nothing, V1 returns its metadata; dispatch cuts the batch
into D equal parts, a worker cuts its part into mini-batches; a worker's index lists are a partition of its
mini-batch, as many on every rank, a multiple of the virtual pipeline's group.
"""

import numpy as np
import pytest
import torch

from integrations.seams import broken, check_grid, counts, lengths, namespace, seam
from integrations.upstream import checkout
from routepack_opt import LayoutRules, MoEModel
from routepack_opt.integrations.rowids import FIELD
from routepack_opt.integrations.verl import (
    balance_batch,
    balance_batch_meta,
    prepare_micro_batches,
    seqlen_balanced_partitions,
)

DP, CAPACITY, WINDOW, MODEL = 2, 100, 16, MoEModel(layers=2, experts=4, top_k=1, dense_layers=())


class Proto:
    """A batch of the published shape."""

    def __init__(self, values):
        self.batch = values

    def reorder(self, indices):
        self.batch = {key: value[indices] for key, value in self.batch.items()}


def proto(sizes, routed=False):
    width, rng = max(sizes), np.random.default_rng(0)
    mask = torch.zeros(len(sizes), width, dtype=torch.long)
    ids = torch.zeros(len(sizes), width, 2, 1, dtype=torch.int16)
    for i, n in enumerate(sizes):
        mask[i, width - n :] = 1
        ids[i, width - n :] = torch.as_tensor(rng.integers(0, 4, (n, 2, 1)))
    values = {"attention_mask": mask, "input_ids": torch.arange(len(sizes))[:, None] * mask}
    return values | ({"routed_experts": ids} if routed else {})


def own_balance(self, batch, metrics, logging_prefix="global_seqlen", keep_minibatch=False):
    """The trainer's balancing: here the batch backwards."""
    batch.reorder(torch.arange(len(batch.batch["attention_mask"])).flip(0))
    metrics["global_seqlen/min"] = 1


TRAINER = namespace(
    config=namespace(
        actor_rollout_ref=namespace(actor=namespace(ppo_mini_batch_size=WINDOW // 2), rollout=namespace(n=2))
    )
)


class Tools:
    """Helpers of the published shape for a dict of tensors."""

    @staticmethod
    def get_non_tensor_data(data, key, default):
        return data.get(key, default)

    @staticmethod
    def index_select_tensor_dict(data, indices):
        return {
            key: value[indices] if isinstance(value, torch.Tensor) else value for key, value in data.items()
        }


def own_prepare(data, dp_group=None, **kwargs):
    """The trainer's microbatches: one sample each."""
    size = len(data["attention_mask"])
    return [Tools.index_select_tensor_dict(data, [i]) for i in range(size)], [[i] for i in range(size)]


def samples(part):
    return [int(row.max()) for row in part["input_ids"]]


def dispatch(values, **more):
    """Cut a batch into equal parts, and each part into mini-batches: [mini-batch][rank]."""
    size = len(values["attention_mask"])
    part, piece = size // DP, WINDOW // DP
    return [
        [
            {key: value[d * part + start : d * part + start + piece] for key, value in values.items()}
            | {"max_token_len_per_gpu": CAPACITY}
            | more
            for d in range(DP)
        ]
        for start in range(0, part, piece)
    ]


def cells_of(values, prepare=None, **more):
    """Return [mini-batch][row][rank], the same number of rows on every rank."""
    prepare = prepare or prepare_micro_batches(own_prepare, Tools)
    result = []
    for step in dispatch(values, **more):
        made = [prepare(part) for part in step]
        assert len({len(lists) for _, lists in made}) == 1
        for part, (batches, lists) in zip(step, made, strict=True):
            assert sorted(i for each in lists for i in each) == list(range(len(part["input_ids"])))
            assert [samples(b) for b in batches] == [[samples(part)[i] for i in each] for each in lists]
        result.append([[samples(batches[r]) for batches, _ in made] for r in range(len(made[0][0]))])
    return result


def members(cells):
    return [{i for row in step for cell in row for i in cell} for step in cells]


def check(cells, sizes, plans, **more):
    for step, plan in zip(cells, plans, strict=True):
        mine = sorted(i for row in step for cell in row for i in cell)
        local = [[[mine.index(i) for i in cell] for cell in row] for row in step]
        check_grid(local, [sizes[i] for i in mine], CAPACITY, DP, **more)
        assert len(step) == plan.layout.rows
        counts_of = [sum(len(row[d]) for row in step) for d in range(DP)]
        assert counts_of == [WINDOW // DP] * DP
        # The order of a step's samples is the trainer's, so that only shapes can be compared with the plan.
        shape = lambda grid: [[len(cell) for cell in row] for row in grid]  # noqa: E731
        assert shape(step) == shape(plan.cells)


def test_rows_survive_reordering_dispatch_and_packing():
    here, sizes, metrics = seam(DP, CAPACITY, model=MODEL, ep=2, mask=True), lengths(48, CAPACITY), {}
    batch = Proto(proto(sizes, routed=True))
    assert balance_batch(here, own_balance)(TRAINER, batch, metrics) is None
    assert here.outcomes == {"planned": 3} and here.plans[0].placement.num_layers == 2
    cells = cells_of(batch.batch)
    check(cells, sizes, here.plans)
    backwards = Proto(proto(sizes))
    own_balance(None, backwards, {})
    assert members(cells) == members(cells_of(backwards.batch, own_prepare))  # the steps keep their samples
    assert metrics["routepack/windows_planned"] == 3.0 and metrics["global_seqlen/min"] == 1


def test_the_pipeline_divides_the_rows_and_workers_check_it():
    here, sizes = seam(DP, CAPACITY, LayoutRules(row_multiple=2)), lengths(16, CAPACITY)
    batch = Proto(proto(sizes))
    balance_batch(here, own_balance)(TRAINER, batch, {})
    prepare = prepare_micro_batches(own_prepare, Tools)
    part = dispatch(batch.batch)[0][0]
    assert len(prepare(part, num_batches_divided_by=2)[1]) % 2 == 0
    ones = [[i] for i in range(WINDOW // DP)]
    assert prepare(part, num_batches_divided_by=64)[1] == ones
    assert prepare(part, min_num_micro_batch=64)[1] == ones
    assert prepare(part | {"use_dynamic_bsz": False})[1] == ones
    assert prepare(part | {"max_token_len_per_gpu": CAPACITY // 2})[1] == ones
    assert prepare(part | {"max_token_len_per_gpu": CAPACITY // 2, "sp_size": 2})[1] != ones
    assert prepare(part | {"force_group_size": 8})[1] == ones


@pytest.mark.parametrize("size", [15, 24])
def test_batches_that_are_no_whole_steps_stay_as_they_are(size):
    here, batch = seam(DP, CAPACITY), Proto(proto([9] * size))
    balance_batch(here, own_balance)(TRAINER, batch, {})
    assert here.outcomes == {"own": 1} and FIELD not in batch.batch
    assert samples(batch.batch) == list(range(size))[::-1]


def test_faults_and_prefix_groups_stay_as_they_are():
    for here, trainer in (
        (broken(DP, CAPACITY), TRAINER),
        (seam(DP, CAPACITY), namespace(use_prefix_grouper=True)),
        (seam(DP, CAPACITY), namespace(**vars(TRAINER), _get_dp_size=lambda group, role: 4)),
    ):
        batch, metrics = Proto(proto([9] * 16)), {}
        batch.batch[FIELD] = torch.ones(16, 4)  # of a step before
        balance_batch(here, own_balance)(trainer, batch, metrics)
        assert FIELD not in batch.batch and metrics["routepack/windows_own"] == 1.0
        assert cells_of(batch.batch)[0][0] == [[15], [7]]


def test_shuffled_mini_batches_run_the_trainers_own():
    batch = Proto(proto(lengths(32, CAPACITY)))
    balance_batch(seam(DP, CAPACITY), own_balance)(TRAINER, batch, {})
    part = {key: value[torch.randperm(16)] for key, value in batch.batch.items() if key != "x"}
    mixed = {key: value[::2] for key, value in part.items()} | {"max_token_len_per_gpu": CAPACITY}
    _, lists = prepare_micro_batches(own_prepare, Tools)(mixed)
    assert lists == [[i] for i in range(8)]


class Meta:
    """`KVBatchMeta` of the published shape."""

    def __init__(self, sizes, fields=None):
        self.keys, self.tags = [str(i) for i in range(len(sizes))], [{"seq_len": n} for n in sizes]
        self.partition_id, self.fields = "train", fields

    def reorder(self, indexes):
        self.keys, self.tags = [self.keys[i] for i in indexes], [self.tags[i] for i in indexes]


def balance_meta(here, sizes, own=lambda self, batch, metrics, **kwargs: batch, trainer=TRAINER, **more):
    store, metrics = {}, {}

    def put(keys, partition_id, values):
        assert partition_id == "train"
        store.update(zip(keys, values[FIELD], strict=True))

    meta = balance_batch_meta(here, own, put=put, **more)(trainer, Meta(sizes, ["input_ids"]), metrics)
    return meta, store, metrics


def test_rows_travel_through_the_transfer_queue():
    here, sizes = seam(DP, CAPACITY, ep=2), lengths(32, CAPACITY)
    meta, store, metrics = balance_meta(
        here, sizes, counts=lambda meta: counts([t["seq_len"] for t in meta.tags])
    )
    assert meta.fields == ["input_ids", FIELD] and metrics["routepack/windows_planned"] == 2.0
    assert here.plans[0].placement.num_experts == 4
    values = proto([sizes[int(key)] for key in meta.keys])
    values["input_ids"] = torch.tensor([[int(key)] for key in meta.keys])
    values[FIELD] = torch.stack([store[key] for key in meta.keys])
    check(cells_of(values), sizes, here.plans)


def test_metadata_without_a_plan_is_the_trainers():
    meta, store, metrics = balance_meta(broken(DP, CAPACITY), [9] * 16)
    assert meta.keys == [str(i) for i in range(16)] and not store and meta.fields == ["input_ids"]
    assert metrics["routepack/windows_own"] == 1.0


def test_partitions_are_never_more_uneven():
    def own(seqlen_list, k_partitions, equal_size):
        return [list(range(k, len(seqlen_list), k_partitions)) for k in range(k_partitions)]

    values = torch.tensor([24576 * n + n * n for n in lengths(32, 4000)])
    ours, theirs = seqlen_balanced_partitions(own)(values, 4, True), own(values, 4, True)
    assert {len(part) for part in ours} == {8} and all(part == sorted(part) for part in ours)
    assert max(sum(values[i] for i in part) for part in ours) <= max(
        sum(values[i] for i in part) for part in theirs
    )

    def refuse(*args):
        raise AssertionError("number of items:[2] < k_partitions:[3]")

    with pytest.raises(AssertionError, match="number of items"):
        seqlen_balanced_partitions(refuse)([1, 2], 3, False)


@pytest.fixture
def real():
    parts = "utils.seqlen_balancing utils.tensordict_utils utils.py_functional utils.device protocol"
    parts += (
        " utils.transferqueue_utils utils.attention_utils utils.npu_flash_attn_utils workers.engine.utils"
    )
    parts += " workers.utils.padding trainer.ppo.ray_trainer trainer.ppo.v1.trainer_base"
    stubs = {name: {} for name in ("omegaconf", "torchdata", "tqdm", "hydra")}
    stubs["verl.utils.import_utils"] = {"deprecated": lambda *args, **kwargs: lambda kind: kind}
    stubs["transfer_queue"] = {"KVBatchMeta": Meta, "BatchMeta": type("BatchMeta", (), {})}
    names = [f"verl.{part}" for part in parts.split()]
    with checkout("verl", "verl", names, stubs, needs=["tensordict"]) as load:
        yield load


def test_the_real_driver_dispatch_and_worker_run_planned_rows(real):
    trainer, proto_of = real("verl.trainer.ppo.ray_trainer").RayPPOTrainer, real("verl.protocol").DataProto
    tools, worker = real("verl.utils.tensordict_utils"), real("verl.workers.engine.utils")
    kk = real("verl.utils.seqlen_balancing").get_seqlen_balanced_partitions
    sizes = lengths(48, CAPACITY)
    self = namespace(**vars(TRAINER), actor_rollout_wg=None, _get_dp_size=lambda group, role: DP)
    values = proto(sizes)
    mask = values["attention_mask"]
    values |= {"response_mask": mask[:, -4:], "position_ids": (mask.cumsum(1) - 1).clamp(min=0)}

    def run(balance, prepare):
        """Take the trainer's whole way: balance, drop the padding, cut for ranks, then for mini-batches."""
        batch, metrics = proto_of.from_dict(tensors=dict(values)), {}
        balance(self, batch, metrics)
        data = real("verl.workers.utils.padding").left_right_2_no_padding(batch.to_tensordict())
        tools.assign_non_tensor(data, max_token_len_per_gpu=CAPACITY)
        ranks = []
        for part in tools.chunk_tensordict(data, DP):
            steps = tools.make_iterator(part, WINDOW // DP, epochs=1, seed=1, dataloader_kwargs={})
            ranks.append(
                [[[int(x.max()) for x in b["input_ids"].unbind()] for b in prepare(s)[0]] for s in steps]
            )
        rows = [min(len(rank[w]) for rank in ranks) for w in range(3)]
        return [[[rank[w][r] for rank in ranks] for r in range(rows[w])] for w in range(3)], ranks, metrics

    here = seam(DP, CAPACITY)
    prepare = prepare_micro_batches(worker.prepare_micro_batches)
    cells, ranks, metrics = run(balance_batch(here, trainer._balance_batch, partitions=kk), prepare)
    assert here.outcomes == {"planned": 3} and "global_seqlen/balanced_max" in metrics
    assert [len(step) for step in ranks[0]] == [len(step) for step in ranks[1]]
    check(cells, sizes, here.plans)
    _, theirs, _ = run(trainer._balance_batch, prepare)  # no column: the trainer's own microbatches
    members = [[{i for cell in step for i in cell} for step in rank] for rank in theirs]
    for w, step in enumerate(cells):
        assert {i for row in step for cell in row for i in cell} == members[0][w] | members[1][w]


def test_the_real_metadata_trainer_runs_planned_rows(real):
    base = real("verl.trainer.ppo.v1.trainer_base")
    base.upsample_batch_to_divisible_size = lambda batch, multiple, eos: batch
    kinds = [k for k in vars(base).values() if isinstance(k, type) and "_balance_batch" in vars(k)]
    assert len(kinds) == 1
    group = namespace(_dispatch_info={"actor": [0, 1]})
    self = namespace(
        **vars(TRAINER),
        actor_rollout_wg=group,
        tokenizer=namespace(eos_token_id=0),
        _get_required_batch_multiple=lambda dp: WINDOW,
    )
    here, sizes = seam(DP, CAPACITY), lengths(32, CAPACITY)
    kk = real("verl.utils.seqlen_balancing").get_seqlen_balanced_partitions
    meta, store, _ = balance_meta(here, sizes, kinds[0]._balance_batch, self, partitions=kk)
    assert here.outcomes == {"planned": 2} and len(store) == 32
    values = proto([sizes[int(key)] for key in meta.keys])
    values["input_ids"] = torch.tensor([[int(key)] for key in meta.keys])
    values[FIELD] = torch.stack([store[key] for key in meta.keys])
    check(cells_of(values), sizes, here.plans)


def test_the_real_partitions_are_never_more_even(real):
    kk, values = real("verl.utils.seqlen_balancing").get_seqlen_balanced_partitions, lengths(64, 4000)
    for equal in (True, False):
        ours, theirs = seqlen_balanced_partitions(kk)(values, 8, equal), kk(values, 8, equal)
        assert max(sum(values[i] for i in p) for p in ours) <= max(sum(values[i] for i in p) for p in theirs)
        assert not equal or {len(part) for part in ours} == {8}
