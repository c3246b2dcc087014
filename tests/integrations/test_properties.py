"""Any window, possible or not: the adapters keep the contract, or do what the trainer does."""

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_rows import least_bins

from integrations.seams import check_grid, namespace, seam
from integrations.test_nemo_rl import Packer
from integrations.test_slime import ARGS, cells_of, fake
from routepack_opt.integrations.dispatch import plan_dispatch, step_windows
from routepack_opt.integrations.rowids import rows_of
from routepack_opt.integrations.sequence_packers import planned_packer
from routepack_opt.integrations.slime import DpSchedule

CAPACITY = 20
SIZES = st.lists(st.integers(1, CAPACITY + 2), min_size=1, max_size=16)
SLOTS = st.integers(1, 3)


@settings(max_examples=40)
@given(SIZES, SLOTS)
def test_a_packer_gives_a_grid_or_the_trainers_bins(sizes, dp):
    here = seam(dp, CAPACITY)
    bins = planned_packer(here, Packer(CAPACITY, min_bin_count=dp, bin_count_multiple=dp)).pack(sizes)
    possible = max(sizes) <= CAPACITY and -(-least_bins(sizes, CAPACITY) // dp) * dp <= len(sizes)
    if possible:
        check_grid([bins[k : k + dp] for k in range(0, len(bins), dp)], sizes, CAPACITY, dp)
        assert len(bins) == -(-least_bins(sizes, CAPACITY) // dp) * dp
    else:
        assert bins == [[i] for i in range(len(sizes))] and here.outcomes == {"own": 1}


@settings(max_examples=40)
@given(SIZES.filter(lambda sizes: len(sizes) >= 2), st.integers(1, 2), st.integers(1, 8))
def test_a_schedule_tiles_every_ranks_samples(sizes, dp, size):
    size = min(-(-size // dp) * dp, len(sizes) // dp * dp)
    args = namespace(**(vars(ARGS) | {"max_tokens_per_gpu": CAPACITY}))
    parallel = {"dp_size": dp, "cp_size": 1, "vpp_size": 1, "microbatch_group_size_per_vp_stage": 1}
    result = DpSchedule(seam(dp, CAPACITY), fake)(
        args, parallel, sizes, global_batch_size=size, rollout_indices=list(range(len(sizes)))
    )
    for s, cells in enumerate(cells_of(result)):
        local = [[[i - s * size for i in cell] for cell in row] for row in cells]
        mine = sizes[s * size : (s + 1) * size]
        check_grid(local, mine, CAPACITY, dp, alone={i for i, n in enumerate(mine) if n > CAPACITY})
    assert result[3] == [size] * (len(sizes) // size)


@settings(max_examples=40)
@given(SIZES, SLOTS, st.integers(1, 16))
def test_ranks_find_whole_rows_or_none(sizes, dp, window):
    here = seam(dp, CAPACITY)
    found = plan_dispatch(here, sizes, step_windows(len(sizes), window, dp))
    if found is None:
        assert here.outcomes["own"] == 1
        return
    assert sorted(found.order) == list(range(len(sizes)))
    rows = [rows_of(found.column[slot], CAPACITY) for slot in found.slots]
    assert len({len(each) for each in rows}) == 1
    for slot, mine in zip(found.slots, rows, strict=True):
        assert [i for row in mine for i in row] == list(range(len(slot)))  # in the order of execution
        assert all(sum(sizes[slot[i]] for i in row) <= CAPACITY for row in mine)
