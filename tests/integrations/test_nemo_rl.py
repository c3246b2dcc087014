"""NeMo RL 7ea279ab: `SequencePacker._pack_implementation` and `BatchedDataDict.shard_by_batch_size`.

Contract: bin k goes to rank k % D as its microbatch k // D, chunk after chunk; as many bins on every rank;
padded lengths count against the cap; ``largest_first`` would sort each rank's bins by itself.
"""

import numpy as np
import pytest
import torch

from integrations.seams import broken, check_grid, lengths, namespace, seam
from integrations.upstream import checkout
from routepack_opt import MoEModel
from routepack_opt.integrations.nemo_rl import install, planned_packer

DP, CAPACITY, MODEL = 2, 96, MoEModel(layers=2, experts=4, top_k=2, dense_layers=())


class Packer:
    """A packer of the published shape: one bin per sequence."""

    def __init__(self, bin_capacity, collect_metrics=False, min_bin_count=None, bin_count_multiple=None):
        self.bin_capacity, self.collect_metrics = bin_capacity, collect_metrics
        self.min_bin_count, self.bin_count_multiple = min_bin_count, bin_count_multiple

    def _pack_implementation(self, sequence_lengths):
        return [[i] for i in range(len(sequence_lengths))]

    def _adjust_bin_count(self, bins):
        return bins

    def pack(self, sequence_lengths):
        return self._adjust_bin_count(self._pack_implementation(sequence_lengths))


class Batch:
    """A batch of the published shape, sharded as the trainer does it."""

    def __init__(self, data):
        self.data = data

    def shard_by_batch_size(
        self,
        shards,
        batch_size=None,
        allow_uneven_shards=False,
        dynamic_batching_args=None,
        sequence_packing_args=None,
    ):
        args = sequence_packing_args
        packer = MODULE.get_packer(
            args["algorithm"], args["max_tokens_per_microbatch"], False, shards, shards
        )
        sizes, multiple = self.data[args["input_lengths_key"]].tolist(), args["sequence_length_pad_multiple"]
        out = [[] for _ in range(shards)]
        for start in range(0, len(sizes), batch_size or len(sizes)):
            padded = [-(-n // multiple) * multiple for n in sizes[start : start + (batch_size or len(sizes))]]
            bins = packer.pack(sequence_lengths=padded)
            for d in range(shards):
                mine = bins[d::shards]
                if args.get("microbatch_order") == "largest_first":
                    mine = sorted(mine, key=lambda b: sum(padded[i] for i in b), reverse=True)
                out[d].append([[start + i for i in b] for b in mine])
        return out


MODULE = namespace(
    get_packer=lambda algorithm, *args: Packer(*args),
    BatchedDataDict=Batch,
    own_shard=Batch.shard_by_batch_size,
)
PACKING = {
    "algorithm": "modified_first_fit_decreasing",
    "max_tokens_per_microbatch": CAPACITY,
    "input_lengths_key": "input_lengths",
    "input_key": "input_ids",
    "sequence_length_pad_multiple": 8,
}


def data(sizes, routed=True):
    rng = np.random.default_rng(0)
    ids = np.tile(np.arange(2), (len(sizes), max(sizes), 2, 1))
    for i, n in enumerate(sizes):
        ids[i, :n] = np.argsort(rng.random((n, 2, 4)), axis=-1)[..., :2]
    batch = {"input_lengths": torch.tensor(sizes), "input_ids": torch.zeros(len(sizes), max(sizes))}
    return batch | ({"routed_experts": torch.as_tensor(ids.astype(np.int8))} if routed else {})


def uneven(count):
    """Sizes of which one to five fit a bin, so that bins are filled unevenly."""
    return np.random.default_rng(1).integers(16, 90, count).tolist()


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(MODULE, "get_packer", lambda algorithm, *args: Packer(*args))
    monkeypatch.setattr(Batch, "shard_by_batch_size", MODULE.own_shard)

    def put(here):
        install(here, MODULE)
        return here

    return put


def test_a_packer_returns_the_rows_of_the_plan():
    here, sizes = seam(DP, CAPACITY), lengths(24, CAPACITY)
    packer = planned_packer(here, Packer(CAPACITY, min_bin_count=DP, bin_count_multiple=DP))
    bins = packer.pack(sizes)
    check_grid([bins[k : k + DP] for k in range(0, len(bins), DP)], sizes, CAPACITY, DP)
    assert isinstance(packer, Packer)
    assert planned_packer(seam(DP, CAPACITY), Packer(CAPACITY, bin_count_multiple=DP)).pack(sizes) == bins
    assert (
        len(planned_packer(here, Packer(CAPACITY, min_bin_count=8, bin_count_multiple=DP)).pack(sizes)) >= 8
    )


def test_a_packer_without_a_plan_is_the_own_one():
    sizes = lengths(8, CAPACITY)
    assert planned_packer(broken(DP, CAPACITY), Packer(CAPACITY, bin_count_multiple=DP)).pack(sizes) == [
        [i] for i in range(8)
    ]
    failing = planned_packer(seam(DP, CAPACITY), Packer(CAPACITY, bin_count_multiple=DP), lambda _: {}["no"])
    assert len(failing.pack(sizes)) == 8


@pytest.mark.parametrize("order", [None, "largest_first"])
def test_rows_survive_sharding(installed, order):
    here, sizes = installed(seam(DP, CAPACITY, model=MODEL, ep=2)), uneven(64)
    shards = Batch(data(sizes)).shard_by_batch_size(
        DP, batch_size=32, sequence_packing_args=PACKING | {"microbatch_order": order}
    )
    assert here.outcomes == {"planned": 2} and here.plans[0].placement.num_layers == 2
    resorted = False
    for chunk, plan in enumerate(here.plans):
        padded = [-(-n // 8) * 8 for n in sizes[32 * chunk :][:32]]
        rows = [
            [[i - 32 * chunk for i in b] for b in row]
            for row in zip(*(s[chunk] for s in shards), strict=True)
        ]
        assert [[tuple(b) for b in row] for row in rows] == [list(row) for row in plan.cells]
        check_grid(rows, padded, CAPACITY, DP)
        filled = np.array([[sum(padded[i] for i in b) for b in row] for row in rows])
        resorted |= bool((np.diff(filled, axis=0) > 0).any())
        assert order is None or (np.diff(filled.max(axis=1)) <= 0).all()
    assert resorted  # sorting each rank by itself would have moved something


def test_batches_without_routing_are_the_trainers_own(installed):
    here, sizes = installed(seam(DP, CAPACITY, model=MODEL, ep=2)), [10] * 8
    shards = Batch(data(sizes, routed=False)).shard_by_batch_size(DP, sequence_packing_args=PACKING)
    assert shards == [[[[0], [2], [4], [6]]], [[[1], [3], [5], [7]]]] and not here.outcomes


def test_routing_that_cannot_be_read_runs_the_own_packer(installed):
    here, sizes = installed(seam(DP, CAPACITY, model=MODEL, ep=2)), [10] * 8
    bad = data(sizes)
    bad["routed_experts"][3, 2] = 9
    shards = Batch(bad).shard_by_batch_size(DP, sequence_packing_args=PACKING)
    assert here.outcomes == {"own": 1} and shards[0][0] == [[0], [2], [4], [6]]


@pytest.fixture
def real():
    names = ["nemo_rl", "nemo_rl.data", "nemo_rl.data.packing", "nemo_rl.data.packing.algorithms"]
    names += ["nemo_rl.data.packing.metrics", "nemo_rl.distributed", "nemo_rl.distributed.batched_data_dict"]
    kinds = {"PackedTensor": type("PackedTensor", (), {})}
    with checkout(
        "nemo_rl",
        "nemo_rl",
        [n for n in names if n not in ("nemo_rl", "nemo_rl.data", "nemo_rl.distributed")],
        {"nemo_rl.data.multimodal_utils": kinds},
    ) as load:
        yield load


@pytest.mark.parametrize("algorithm", ["first_fit_decreasing", "modified_first_fit_decreasing"])
def test_the_real_packers_take_planned_bins(real, algorithm):
    get = real("nemo_rl.data.packing.algorithms").get_packer
    own = get(algorithm, CAPACITY, min_bin_count=DP, bin_count_multiple=DP)
    here, sizes = seam(DP, CAPACITY), lengths(40, CAPACITY)
    bins = planned_packer(here, own).pack(sizes)
    assert here.outcomes == {"planned": 1} and len(bins) <= len(own.pack(sizes))
    check_grid([bins[k : k + DP] for k in range(0, len(bins), DP)], sizes, CAPACITY, DP)
    assert planned_packer(broken(DP, CAPACITY), own).pack(sizes) == own.pack(sizes)
    with pytest.raises(ValueError, match="exceeds bin capacity"):
        planned_packer(here, own).pack([CAPACITY + 1, 1])
    with pytest.raises(ValueError, match="with only 1"):
        planned_packer(here, own).pack([5])


@pytest.mark.parametrize("order", [None, "largest_first"])
def test_the_real_sharding_runs_planned_rows(real, order):
    module = real("nemo_rl.distributed.batched_data_dict")
    here, sizes = seam(DP, CAPACITY, model=MODEL, ep=2), lengths(32, 80)
    batch = module.BatchedDataDict(data(sizes))
    args = PACKING | {"microbatch_order": order}
    install(here, module)
    shards, flat = batch.shard_by_batch_size(DP, batch_size=16, sequence_packing_args=args)
    assert here.outcomes == {"planned": 2} and sorted(flat) == list(range(32))
    start = 0
    for d, shard in enumerate(shards):
        mine = flat[start : start + len(shard["input_lengths"])]
        start += len(mine)
        assert shard["input_lengths"].tolist() == [sizes[i] for i in mine]
        offset = 0
        for chunk, plan in enumerate(here.plans):
            bins = [mine[offset + a : offset + b] for a, b in shard.micro_batch_indices[chunk]]
            offset += shard.elem_counts_per_gb[chunk]
            assert [tuple(i - 16 * chunk for i in b) for b in bins] == [row[d] for row in plan.cells]
            assert max(shard.micro_batch_lengths[chunk]) <= CAPACITY
