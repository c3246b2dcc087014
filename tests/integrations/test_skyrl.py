"""SkyRL 0.3.0 and a9564572: `MeshDispatch.stage_chunks`, `TokenBasedBatchIterator`, `make_seq_packer`.

Contract: mini-batches are cut into equal chunks, chunk d for rank d; a rank packs by itself, and ranks with
fewer microbatches get padding ones; outputs are put back into the order of the rank's batch.
"""

import numpy as np
import pytest
import torch

from integrations.seams import broken, check_grid, lengths, owns_of, seam
from integrations.upstream import checkout
from routepack_opt import MoEModel
from routepack_opt.integrations.rowids import FIELD
from routepack_opt.integrations.skyrl import make_seq_packer, stage_chunks, token_batches

DP, CAPACITY, MODEL = 2, 100, MoEModel(layers=2, experts=4, top_k=1, dense_layers=())


class Batch(dict):
    """A training batch of the published shape."""

    metadata = None

    def part(self, index):
        cut = Batch({key: None if value is None else value[index] for key, value in self.items()})
        cut.metadata = self.metadata
        return cut


def batch(sizes, kind=Batch, routed=False):
    width, rng = max(sizes), np.random.default_rng(0)
    mask = torch.zeros(len(sizes), width, dtype=torch.long)
    ids = torch.zeros(len(sizes), width, 2, 1, dtype=torch.uint8)
    for i, n in enumerate(sizes):  # prompts are padded on the left in one batch, responses on the right
        mask[i, width - n :] = 1
        ids[i, width - n :] = torch.as_tensor(rng.integers(0, 4, (n, 2, 1), np.uint8))
    values = {"attention_mask": mask, "sequences": torch.arange(len(sizes))[:, None] * mask, "values": None}
    whole = kind(values | ({"rollout_expert_indices": ids} if routed else {}))
    whole.metadata = {"response_length": 4}
    return whole


def stage(dp, data, boundaries):
    """The trainer's staging, without Ray."""
    out = []
    for start, end in boundaries:
        size = -(-(end - start) // dp)
        out.append([data.part(slice(start + d * size, min(start + (d + 1) * size, end))) for d in range(dp)])
    return out


class Iterator:
    """The trainer's iterator: here one sample per microbatch."""

    def __init__(self, data, max_tokens_per_microbatch):
        self.data = data
        self._microbatches = [[i] for i in range(len(data["attention_mask"]))]
        self._num_padding_microbatches = 1


def samples(chunk):
    return [int(row.max()) for row in chunk["sequences"]]


def run(here, sizes, boundaries, **more):
    """Stage, then pack every chunk on its rank; return [mini-batch][row][rank] and the rest."""
    staged = stage_chunks(here, stage)(DP, batch(sizes, **more), boundaries)
    made = [[token_batches(Iterator)(chunk, CAPACITY) for chunk in chunks] for chunks in staged]
    cells = [
        [
            [[samples(it.data)[i] for i in it._microbatches[r]] for it in its]
            for r in range(min(len(it._microbatches) for it in its))
        ]
        for its in made
    ]
    return staged, made, cells


def test_rows_survive_staging_and_packing():
    here, sizes = seam(DP, CAPACITY, model=MODEL, ep=2, mask=True), lengths(40, CAPACITY)
    staged, made, cells = run(here, sizes, [(0, 24), (24, 40)], routed=True)
    assert here.outcomes == {"planned": 2} and here.plans[0].placement.num_layers == 2
    for (start, end), grid, plan in zip([(0, 24), (24, 40)], cells, here.plans, strict=True):
        local = [[[i - start for i in cell] for cell in row] for row in grid]
        check_grid(local, sizes[start:end], CAPACITY, DP)
        assert len(grid) == plan.layout.rows
        # The trainer splits prompts and responses, so the order inside the step is the batch's.
        assert [[tuple(sorted(c)) for c in row] for row in local] == [list(row) for row in plan.cells]
    assert all(it._num_padding_microbatches == 0 for its in made for it in its)
    assert [len(chunk["sequences"]) for chunk in staged[0]] == [12, 12]
    assert staged[0][0].metadata == {"response_length": 4} and staged[0][0]["values"] is None


class Packer:
    """Two samples to a microbatch."""

    def __init__(self, algorithm, capacity):
        assert (algorithm, capacity) == ("balanced", CAPACITY)

    def pack(self, sizes):
        return [list(range(k, min(k + 2, len(sizes)))) for k in range(0, len(sizes), 2)]


def test_the_plan_is_compared_with_the_trainers_microbatches():
    here, sizes = seam(DP, CAPACITY), [30, 20, 10, 40] * 4
    seen = owns_of(here)
    stage_chunks(here, stage, packer=Packer)(DP, batch(sizes), [(0, 16)])
    assert seen == [[[[k, k + 1], [k + 8, k + 9]] for k in (0, 2, 4, 6)]]
    stage_chunks(here, stage, packer=Packer)(DP, batch(sizes[:14]), [(0, 14)])
    assert len(seen[1]) == 4  # seven samples each: the last microbatch holds one
    stage_chunks(here, stage)(DP, batch(sizes), [(0, 16)])
    assert seen[2] is None


def test_a_mini_batch_that_ranks_cannot_share_stays_as_it_is():
    here = seam(DP, CAPACITY)
    staged, made, _ = run(here, [9] * 7, [(0, 4), (4, 7)])
    assert here.outcomes == {"planned": 1, "own": 1}
    assert samples(staged[1][0]) == [4, 5] and made[1][0]._num_padding_microbatches == 1


def test_faults_leave_the_batch_alone():
    staged, made, _ = run(broken(DP, CAPACITY), [9] * 8, [(0, 8)])
    assert FIELD not in staged[0][0]
    assert samples(staged[0][0]) == [0, 1, 2, 3] and made[0][0]._microbatches == [[0], [1], [2], [3]]
    here = seam(DP, CAPACITY)
    strange = Batch({"sequences": torch.arange(8)[:, None]})
    assert samples(stage_chunks(here, stage)(DP, strange, [(0, 8)])[0][1]) == [4, 5, 6, 7]
    assert "attention_mask" in here.reason


def test_a_batch_without_rows_is_packed_by_the_trainer():
    assert token_batches(Iterator)(batch([9] * 4), CAPACITY)._microbatches == [[0], [1], [2], [3]]


def test_two_hosts_stage_alike():
    sizes = lengths(24, CAPACITY)
    assert run(seam(DP, CAPACITY), sizes, [(0, 24)])[2] == run(seam(DP, CAPACITY), sizes, [(0, 24)])[2]


@pytest.fixture
def real(request):
    top = "skyrl.backends.skyrl_train"
    names = [
        f"{top}.workers.worker_utils",
        f"{top}.training_batch",
        "skyrl.train.dataset.bin_packing",
        f"{top}.distributed.dispatch",
    ]
    stubs = {"ray": {"put": lambda chunk: chunk}}
    with checkout(request.param, "skyrl", names, stubs, needs=["jaxtyping"]) as load:
        yield [load(name) for name in names]


@pytest.mark.parametrize("real", ["skyrl", "skyrl-0.3.0"], indirect=True)
def test_the_real_staging_and_iterator_run_planned_rows(real):
    worker, training, _, dispatch = real
    sizes, bounds = lengths(40, CAPACITY), [(0, 24), (24, 40)]
    here, own = seam(DP, CAPACITY), dispatch.MeshDispatch.stage_chunks
    data = batch(sizes, training.TrainingInputBatch)
    staged = stage_chunks(here, own)(DP, data, bounds)
    assert here.outcomes == {"planned": 2}
    for m, (start, end) in enumerate(bounds):
        its = [token_batches(worker.TokenBasedBatchIterator)(chunk, CAPACITY) for chunk in staged[m]]
        grid = [[samples(b) for b in it] for it in its]
        cells = [[[i - start for i in worker_rows[r]] for worker_rows in grid] for r in range(len(its[0]))]
        check_grid(cells, sizes[start:end], CAPACITY, DP)
        outputs = its[0].reorder_and_combine_batches(list(its[0]))
        assert samples(outputs) == samples(staged[m][0]) and FIELD in outputs
    plain = stage_chunks(broken(DP, CAPACITY), own)(DP, data, bounds)
    assert samples(plain[0][0]) == list(range(12))


@pytest.mark.parametrize("real", ["skyrl", "skyrl-0.3.0"], indirect=True)
def test_the_real_packer_of_a_whole_batch_takes_planned_bins(real):
    make = real[2].make_seq_packer
    here, sizes = seam(DP, CAPACITY), lengths(40, CAPACITY)
    bins = make_seq_packer(here, make)("first_fit_decreasing", CAPACITY, DP, DP).pack(sizes)
    check_grid([bins[k : k + DP] for k in range(0, len(bins), DP)], sizes, CAPACITY, DP)
    assert len(bins) <= len(make("first_fit_decreasing", CAPACITY, DP, DP).pack(sizes))
    with pytest.raises(ValueError, match="exceeds bin capacity"):
        make_seq_packer(here, make)("first_fit_decreasing", CAPACITY, DP, DP).pack([101, 1])
