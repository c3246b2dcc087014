"""What users of the trainers reported about packing, each with its smallest input, through the adapters.

Numbers are those of the trainers' issues; where a plan exists it is asked for, elsewhere the trainer answers.
"""

import pytest

from integrations.seams import check_grid, namespace, seam
from integrations.test_nemo_rl import Packer
from integrations.test_openrlhf import MODULE, STRATEGY, Buffer
from integrations.test_slime import ARGS, cells_of
from routepack_opt.integrations.areal import allocate
from routepack_opt.integrations.dispatch import plan_dispatch, step_windows
from routepack_opt.integrations.openrlhf import setup_dynamic_batch
from routepack_opt.integrations.rowids import rows_of
from routepack_opt.integrations.sequence_packers import planned_packer
from routepack_opt.integrations.slime import DpSchedule
from routepack_opt.integrations.verl import seqlen_balanced_partitions

REPORTS = {
    "verl #7553: as many parts as tokens over the cap, then one of 14 tokens": ([7] * 8, 8, 2, 4),
    "EasyR1 #11004: more parts than a light rank has samples": ([8000] * 8 + [100] * 4, 8192, 2, 4),
    "OpenRLHF #1287: parts rounded down to the ranks": ([9] * 5 + [1] * 3, 10, 4, 2),
    "SkyRL #204: a contiguous cut gives one rank all the long samples": ([8000, 8000, 100, 100], 8192, 2, 1),
    "AReaL: equal counts cost a row": ([1, 10, 1, 1], 10, 2, 2),
}


@pytest.mark.parametrize("report", REPORTS)
def test_ranks_that_pack_by_themselves(report):
    sizes, capacity, dp, rows = REPORTS[report]
    here = seam(dp, capacity)
    found = plan_dispatch(here, sizes, step_windows(len(sizes), len(sizes), dp))
    check_grid(here.plans[0].cells, sizes, capacity, dp)
    for slot in found.slots:
        assert len(slot) == len(sizes) // dp and len(rows_of(found.column[slot], capacity)) == rows


BINS = {
    "miles #1936: arrival order wastes bins": ([1, 5, 6, 5], 10, 2, 1),
    "NeMo RL #718: fewer bins than ranks": ([100] * 8, 8192, 4, 1),
    "axolotl #1492: first fit decreasing is no optimum": ([2, 2, 3, 2, 5, 6], 10, 2, 1),
    "NeMo RL: leftovers to the emptiest bin": ([8, 2, 4, 2, 4, 2, 3, 5], 10, 1, 3),
    "verl #6786: nine samples over four ranks starve the last": ([5] * 9, 100, 4, 1),
}


@pytest.mark.parametrize("report", BINS)
def test_packers_of_the_whole_batch(report):
    sizes, capacity, dp, rows = BINS[report]
    packer = planned_packer(seam(dp, capacity), Packer(capacity, min_bin_count=dp, bin_count_multiple=dp))
    bins = packer.pack(sizes)
    check_grid([bins[k : k + dp] for k in range(0, len(bins), dp)], sizes, capacity, dp)
    assert len(bins) == rows * dp


@pytest.mark.parametrize(
    ("sizes", "capacity", "dp", "facts"),
    [
        ([5, 5, 5], 10, 4, {}),  # NeMo RL #3345: fewer samples than ranks
        ([9, 1], 10, 1, {"length_multiple": 4}),  # SkyRL #2108: aligned, a legal sample is over the bin
        ([21, 1], 20, 1, {}),  # OpenRLHF #1280: one sample over the cap counted as a microbatch
    ],
)
def test_what_has_no_layout_is_the_trainers_to_refuse(sizes, capacity, dp, facts):
    here = seam(dp, capacity)
    packer = planned_packer(here, Packer(capacity, min_bin_count=dp, bin_count_multiple=dp), lambda _: facts)
    assert packer.pack(sizes) == [[i] for i in range(len(sizes))]
    assert here.outcomes == {"own": 1} and here.reason


def slime(sizes, dp, capacity, group=1, own=None):
    parallel = {
        "dp_size": dp,
        "cp_size": 1,
        "vpp_size": 1 + (group > 1),
        "microbatch_group_size_per_vp_stage": group,
    }
    args = namespace(**(vars(ARGS) | {"max_tokens_per_gpu": capacity}))
    schedule = DpSchedule(seam(dp, capacity), own)
    return schedule(
        args, parallel, sizes, global_batch_size=len(sizes), rollout_indices=list(range(len(sizes)))
    )


def test_slime_schedules():
    def late(*args, **kwargs):
        raise AssertionError("could only produce 6 mbs after maximal splitting; need 8")

    (cells,) = cells_of(slime([10] * 6, 2, 40, own=late))  # slime #1838: trailing empty microbatches
    assert len(cells) == 1 and {len(cell) for cell in cells[0]} == {3}
    (cells,) = cells_of(slime([4500, 10], 2, 4096, own=late))  # slime #1839: one sample over the cap
    assert sorted(map(len, cells[0])) == [1, 1]
    with pytest.raises(
        AssertionError, match="need 8"
    ):  # vime #119: fewer samples than the pipeline's multiple
        slime([5] * 6, 2, 100, group=4, own=late)


def test_an_empty_buffer_is_the_trainers_to_handle():
    buffer = Buffer([])  # OpenRLHF: a short buffer at the end of an episode
    setup_dynamic_batch(Buffer.setup_dynamic_batch, MODULE)(buffer, STRATEGY)
    assert buffer.dynamic_indices == []


def test_work_beyond_32_bits_and_ties():
    values = [24576 * n + n * n for n in [131_072, 131_072, 35_655, 100]]  # verl: overflow of the work
    parts = seqlen_balanced_partitions(lambda *args: [[0, 1], [2, 3]])(values, 2, False)
    assert len(parts) == 2
    assert max(sum(values[i] for i in part) for part in parts) < values[0] + values[1]
    ties = allocate(lambda *args, **kwargs: None)  # AReaL: equal lengths in another order on another host
    assert (
        ties([5] * 17, 20, min_groups=1) == ties([5] * 17, 20, min_groups=1) and len(ties([5] * 17, 20)) == 5
    )
