"""Whatever goes wrong, nothing is half-moved, nobody hangs, and the message says what happened."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import routepack_opt.runtime.materialize as target  # noqa: E402
from routepack_opt.placement import Placement  # noqa: E402
from routepack_opt.runtime.control import Control, MaterializeError  # noqa: E402
from routepack_opt.runtime.movement import Movement, Transfer  # noqa: E402

from .launch import all_ok, run_ranks  # noqa: E402
from .toy import Job, permutations  # noqa: E402

PLACEMENT = permutations(1, layers=2)[0]


def same(a, b):
    return a.keys() == b.keys() and all(np.array_equal(a[key], b[key]) for key in a)


def refused(job, placement, before):
    """Materialize, expecting a refusal; return its message. Nothing may have changed."""
    try:
        job.materializer.materialize(placement)
    except MaterializeError as error:
        assert same(job.logical(), before)
        assert all((row == np.arange(8)).all() for row in job.materializer.placement.values())
        return str(error)
    raise AssertionError("not refused")


def tampered(plan, change):
    """The plan with a changed piece table in its first transfer."""
    first, *rest = plan.transfers
    broken = Transfer(first.layer, first.slots, first.moves, change(first.pieces.copy()))
    return Movement(plan.mesh, plan.states, (broken, *rest))


def gentle(rank):
    """Refusals at the plan vote leave the groups usable: each is followed by a successful move at the end."""
    job = Job(2, 2)
    job.step()
    before, messages = job.logical(), {}

    other = PLACEMENT[:, ::-1].copy()
    messages["digest"] = refused(job, other if rank == 3 else PLACEMENT, before)

    plan = target.plan_movement
    for name, guilty in (("one", [2]), ("all", [0, 1, 2, 3])):
        if rank in guilty:
            target.plan_movement = lambda *a: tampered(plan(*a), lambda pieces: pieces[1:])
        messages[f"splits {name}"] = refused(job, PLACEMENT, before)
        target.plan_movement = plan

    if rank == 1:
        job.modules[1].up.grad = torch.ones_like(job.modules[1].up)
    messages["gradient"] = refused(job, PLACEMENT, before)
    job.modules[1].up.grad = None

    if rank == 2:
        job.modules[0].forgotten = torch.ones(4)
    messages["unregistered"] = refused(job, PLACEMENT, before)
    job.modules[0].__dict__.pop("forgotten", None)

    state = job.optimizer.state[job.modules[0].up]
    state["step"] += rank
    messages["step"] = refused(job, PLACEMENT, before)
    state["step"] -= rank

    bad = PLACEMENT.copy()
    bad[1, 0] = bad[1, 1]
    messages["permutation"] = refused(job, bad, before)

    messages["ranks"] = refused(job, Placement(PLACEMENT, 4), before)

    job.materializer.materialize(Placement(PLACEMENT, 2))
    assert (job.materializer.placement[1] == PLACEMENT[1]).all()
    return messages


def test_refusals_before_a_byte_moves_change_nothing_and_name_the_cause():
    results = all_ok(run_ranks(4, gentle))
    assert all(r == results[0] for r in results)
    messages = results[0]
    assert "ranks disagree" in messages["digest"]
    assert "[3]" in messages["digest"]
    assert messages["splits one"].startswith("plan: refused by rank 2: CheckError")
    assert "rank 0: CheckError" in messages["splits all"]
    assert "layers.1.experts.up" in messages["gradient"]
    assert "zero_grad" in messages["gradient"]
    assert "'forgotten' of shape (4,)" in messages["unregistered"]
    assert "ranks disagree" in messages["step"]
    assert "new placement, layer 1" in messages["permutation"]
    assert "on 2 expert-parallel ranks, found 4" in messages["ranks"]


def failing(rank, layer):
    """Rank 1 cannot stage `layer`, after its part of the exchange."""
    job = Job(2, 2)
    job.step()
    before = job.logical()
    stage = job.materializer._stage

    def fail(transfer, *args):
        staged = stage(transfer, *args)
        if rank == 1 and transfer.layer == layer:
            raise OSError("no room")
        return staged

    job.materializer._stage = fail
    with pytest.raises(MaterializeError, match="no room") as error:
        job.materializer.materialize(PLACEMENT)
    merged = job.logical()
    committed = [int((job.materializer.placement[k] == PLACEMENT[k]).all()) for k in (0, 1)]
    with pytest.raises(MaterializeError, match="earlier failure"):
        job.materializer.materialize(PLACEMENT)
    return str(error.value), before, merged, committed


@pytest.mark.parametrize("layer", [0, 1])
def test_a_failed_vote_commits_nothing_of_its_layer_and_keeps_what_came_before(layer):
    results = all_ok(run_ranks(4, failing, layer))
    before, after = {}, {}
    for message, was, now, committed in results:
        assert f"layer {layer}, transfer {layer + 1} of 2: refused by rank 1: OSError: no room" in message
        assert committed == [layer, 0]
        before.update(was)
        after.update(now)
    assert same(before, after)


def unsynchronized(rank):
    """Rank 2 cannot bring its parameters up to date."""
    job = Job(2, 2)
    before = job.logical()
    if rank == 2:
        job.adapter.synchronize = lambda: 1 / 0
    return refused(job, PLACEMENT, before)


def test_a_failed_parameter_sync_is_heard_by_all():
    for message in all_ok(run_ranks(4, unsynchronized)):
        assert message.startswith("parameter sync: refused by rank 2: ZeroDivisionError")


def dying(rank, when):
    """Rank 3 is lost before the first vote, before or inside a transfer, or does not come at all."""
    job = Job(2, 2, timeout=3.0)
    job.step()
    before = job.logical()
    if rank == 3 and when == "absent":
        time.sleep(6)
        return None
    if rank == 3 and when == "before":
        os._exit(1)
    exchange, calls = job.materializer._exchange, []

    def die(*args):
        calls.append(args)
        if rank == 3 and len(calls) == {"enter": 1, "middle": 2}.get(when):
            os._exit(1)
        return exchange(*args)

    job.materializer._exchange = die
    start = time.monotonic()
    message = refused(job, PLACEMENT, before)
    assert "earlier failure" in refused(job, PLACEMENT, before)
    return message, time.monotonic() - start


@pytest.mark.parametrize("when", ["before", "enter", "middle", "absent"])
def test_a_lost_rank_is_an_error_everywhere_and_changes_nothing(when):
    results = run_ranks(4, dying, when, limit=30)
    assert results[3] is None or results[3] == ("ok", None)
    for result in all_ok(results[:3]):
        message, seconds = result
        assert "a rank died or did not come" in message
        assert "restart" in message
        assert seconds < 20
    if when == "absent":
        assert "rank" in all_ok(results[:1])[0][0]


def lonely(rank):
    control = Control(timeout=1.0)
    control.agree("x", b"same")
    return True


def test_a_vote_of_one_is_a_vote():
    assert all_ok(run_ranks(1, lonely)) == [True]
