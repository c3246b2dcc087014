"""Megatron-Core 0.20.0 (d98e8a64): `get_groups_and_subsamples([(id, length)]) -> [row][dcp_rank][ids]`.

Contract: every rank computes it and must get the same; context-parallel ranks of a slot are adjacent and
share their list; rows are a multiple of the virtual pipeline's group. No release up to 0.19.2 has it.
"""

import threading

import pytest

from integrations.seams import broken, check_grid, counts, lengths, seam
from integrations.upstream import checkout
from routepack_opt import InputError
from routepack_opt.integrations.megatron import packing_scheduler

DP, CP, PER_RANK = 2, 2, 50
CAPACITY = CP * PER_RANK


class Base:
    """A scheduler of the published shape: one sample per microbatch, in arrival order."""

    def __init__(
        self,
        max_seqlen_per_dp_cp_rank,
        cp_size,
        dp_size,
        microbatch_group_size_per_vp_stage,
        max_num_seqs=None,
    ):
        self.max_seqlen_per_dp_cp_rank, self.cp_size, self.dp_size = (
            max_seqlen_per_dp_cp_rank,
            cp_size,
            dp_size,
        )
        self.microbatch_group_size_per_vp_stage, self.max_num_seqs = (
            microbatch_group_size_per_vp_stage,
            max_num_seqs,
        )

    def get_groups_and_subsamples(self, sample_id_seqlens):
        ids = [[i] for i, _ in sample_id_seqlens]
        rows = [ids[k : k + self.dp_size] for k in range(0, len(ids), self.dp_size)]
        return [[cell for cell in row for _ in range(self.cp_size)] for row in rows]


def cells_of(groups):
    for row in groups:
        assert len(row) == DP * CP
        assert all(row[k] == row[k - k % CP] for k in range(len(row)))
    return [row[::CP] for row in groups]


def schedule(kind, sizes, group=None, limit=None):
    return kind(PER_RANK, CP, DP, group, *([limit] if limit else [])).get_groups_and_subsamples(
        list(enumerate(sizes))
    )


@pytest.mark.parametrize(("group", "limit"), [(None, None), (3, None), (None, 2)])
def test_groups_are_the_rows_of_the_plan(group, limit):
    here, sizes = seam(DP, CAPACITY), lengths(24, CAPACITY)
    cells = cells_of(schedule(packing_scheduler(here, Base), sizes, group, limit))
    check_grid(cells, sizes, CAPACITY, DP, multiple=group or 1)
    assert here.outcomes == {"planned": 1}
    assert limit is None or max(len(cell) for row in cells for cell in row) <= limit


def test_every_rank_plans_the_same_for_itself():
    sizes = lengths(24, CAPACITY)
    kinds = [
        packing_scheduler(seam(DP, CAPACITY, ep=2), Base, counts=lambda ids: counts(sizes)) for _ in range(2)
    ]
    assert schedule(kinds[0], sizes) == schedule(kinds[1], sizes)


def test_ranks_that_could_plan_differently_are_refused():
    here = seam(DP, CAPACITY)
    object.__setattr__(here.planner.config.search, "deadline", 1.0)
    with pytest.raises(InputError, match="same on all ranks"):
        packing_scheduler(here, Base)
    packing_scheduler(here, Base, gather=lambda payload: [payload])


def group_of(size):
    """An all-gather between threads."""
    barrier, board = threading.Barrier(size, timeout=60), [b""] * size

    def gather_on(rank):
        def gather(payload):
            board[rank] = payload
            barrier.wait()
            found = list(board)
            barrier.wait()
            return found

        return gather

    return [gather_on(rank) for rank in range(size)]


def on_ranks(seams, sizes):
    results = [None] * len(seams)

    def run(rank, gather):
        kind = packing_scheduler(seams[rank], Base, gather=gather, rank=rank)
        results[rank] = schedule(kind, sizes)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(group_of(len(seams)))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_one_rank_plans_for_all():
    sizes = lengths(24, CAPACITY)
    first, second = on_ranks([seam(DP, CAPACITY), seam(DP, CAPACITY)], sizes)
    assert first == second != schedule(Base, sizes)


def test_when_it_cannot_all_run_their_own():
    here, sizes = seam(DP, CAPACITY), [CAPACITY + 1, 5, 5, 5]
    first, second = on_ranks([here, seam(DP, CAPACITY)], sizes)
    assert first == second == schedule(Base, sizes)


def test_faults_run_the_own_schedule():
    sizes = lengths(8, CAPACITY)
    assert schedule(packing_scheduler(broken(DP, CAPACITY), Base), sizes) == schedule(Base, sizes)


@pytest.fixture
def real():
    name = "megatron.core.datasets.data_schedule"
    with checkout("megatron", "megatron", [name]) as load:
        yield load(name).DpBalancedScheduler


@pytest.mark.parametrize("group", [None, 2])
def test_the_real_scheduler_is_derived_from_and_not_beaten(real, group):
    here, sizes = seam(DP, CAPACITY), lengths(48, CAPACITY)
    kind = packing_scheduler(here, real)
    cells, theirs = cells_of(schedule(kind, sizes, group)), cells_of(schedule(real, sizes, group))
    assert issubclass(kind, real) and here.outcomes == {"planned": 1}
    check_grid(cells, sizes, CAPACITY, DP, multiple=group or 1)
    assert len(cells) <= len(theirs)
    assert schedule(packing_scheduler(broken(DP, CAPACITY), real), sizes) == schedule(real, sizes)
