"""Workers on real process groups: all run the planned rows, or all run the trainer's own."""

import pytest
import torch
from runtime.launch import all_ok, run_ranks

from integrations.seams import lengths, seam
from integrations.test_skyrl import CAPACITY as SKYRL_CAPACITY
from integrations.test_skyrl import Iterator
from integrations.test_skyrl import stage as stage_chunks_of_the_trainer
from integrations.test_verl import (
    CAPACITY,
    DP,
    FIELD,
    TRAINER,
    WINDOW,
    Proto,
    Tools,
    dispatch,
    own_balance,
    own_prepare,
    proto,
)
from routepack_opt.integrations.skyrl import token_batches
from routepack_opt.integrations.verl import balance_batch, prepare_micro_batches


def _verl(rank, parts):
    prepare = prepare_micro_batches(own_prepare, Tools)
    return prepare(parts[rank], dp_group=torch.distributed.group.WORLD)[1]


def planned_parts(steps):
    batch = Proto(proto(lengths(WINDOW * steps, CAPACITY)))
    balance_batch(seam(DP, CAPACITY), own_balance)(TRAINER, batch, {})
    return dispatch(batch.batch), batch.batch


def test_ranks_run_the_same_number_of_planned_rows():
    steps, _ = planned_parts(1)
    first, second = all_ok(run_ranks(DP, _verl, steps[0]))
    assert len(first) == len(second) < WINDOW // DP
    assert all(len(rows) > 0 for rows in first + second)


@pytest.mark.parametrize("case", ["no column", "more steps", "lower cap"])
def test_when_one_rank_cannot_none_does(case):
    steps, whole = planned_parts(2)
    parts = [dict(part) for part in steps[0]]
    if case == "no column":
        del parts[1][FIELD]
    elif case == "lower cap":
        parts[1]["max_token_len_per_gpu"] = 1
    else:  # whole rows on both ranks, but more of them on one
        parts[1] = {key: value[WINDOW:] for key, value in whole.items()} | {"max_token_len_per_gpu": CAPACITY}
    found = all_ok(run_ranks(DP, _verl, parts))
    assert found == [[[i] for i in range(len(part["input_ids"]))] for part in parts]


def _skyrl(rank, chunks):
    made = token_batches(Iterator)(chunks[rank], SKYRL_CAPACITY)
    return len(made._microbatches), made._num_padding_microbatches


def test_iterators_agree_over_all_ranks():
    from integrations.test_skyrl import batch
    from routepack_opt.integrations.skyrl import stage_chunks

    (chunks,) = stage_chunks(seam(DP, SKYRL_CAPACITY), stage_chunks_of_the_trainer)(
        DP, batch(lengths(16, SKYRL_CAPACITY)), [(0, 16)]
    )
    first, second = all_ok(run_ranks(DP, _skyrl, chunks))
    assert first == second and first[1] == 0
    del chunks[0][FIELD]
    assert all_ok(run_ranks(DP, _skyrl, chunks)) == [(8, 1), (8, 1)]
