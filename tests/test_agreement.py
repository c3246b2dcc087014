"""Ranks run one plan, or all fall back: with plain threads, and over real gloo process groups."""

import multiprocessing
import threading
from dataclasses import replace

import pytest
from test_planner_service import OWN, config, window

from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.planner import Planner, plan
from routepack_opt.planner.agreement import agree
from routepack_opt.planner.fallback import fall_back
from routepack_opt.solvers.annealing.parameters import Budget

IDENTITY = Placement.identity(2, 4, 2)


def a_plan(seed=0):
    """A quick plan of the small window."""
    return plan(config().problem(window()), budget=Budget(0), seed=seed, method="seed")


def another_plan():
    """A plan that differs by its layout."""
    return replace(a_plan(), layout=Layout.from_cells(OWN))


def fallback(reason):
    """What the ranks run when they do not agree."""
    return fall_back(reason, placement=IDENTITY, own=OWN, problem=config().problem(window()))


class Board:
    """An all-gather between threads; `spoil` may change what rank 1 receives."""

    def __init__(self, ranks, spoil=None):
        self.barrier, self.spoil = threading.Barrier(ranks, timeout=60), spoil
        self.parts = [b""] * ranks

    def gather(self, rank):
        """Return the collective of one rank."""

        def call(payload):
            self.barrier.wait()
            self.parts[rank] = payload
            self.barrier.wait()
            found = list(self.parts)
            return self.spoil(found) if self.spoil and rank == 1 else found

        return call


def on_ranks(plans, spoil=None):
    """Run `agree` on a thread per plan."""
    board, found = Board(len(plans), spoil), [None] * len(plans)

    def rank(k):
        found[k] = agree(plans[k], board.gather(k), fallback)

    threads = [threading.Thread(target=rank, args=(k,)) for k in range(len(plans))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_ranks_that_planned_alike_keep_their_plans():
    found = on_ranks([a_plan(), a_plan()])
    assert {p.hash for p in found} == {a_plan().hash}


def test_one_plan_reaches_all():
    found = on_ranks([None, a_plan(), None])
    assert {p.hash for p in found} == {a_plan().hash}
    assert found[0].rows.status == a_plan().rows.status


def test_another_digest_on_one_rank_makes_all_fall_back():
    found = on_ranks([a_plan(), another_plan()])
    assert {p.rung for p in found} == {"own"}
    assert {p.hash for p in found} == {fallback("").hash}
    assert all("different plans: rank 0" in p.reason for p in found)


def test_a_damaged_plan_makes_all_fall_back():
    def spoil(parts):
        return [part[:-40] + b"0" * 40 if len(part) > 100 else part for part in parts]

    found = on_ranks([a_plan(), None], spoil)
    assert {p.rung for p in found} == {"own"}
    assert all("rank 1 could not read the plan" in p.reason for p in found)


def test_no_plan_anywhere_and_a_lost_rank_fall_back():
    assert "no rank has a plan" in on_ranks([None, None])[0].reason

    def lost(payload):
        raise ConnectionError("rank 3 is gone")

    found = agree(a_plan(), lost, fallback)
    assert (found.rung, found.reason) == ("own", "the ranks could not agree: ConnectionError: rank 3 is gone")


def test_a_planner_returns_to_the_placement_that_all_ranks_have():
    with Planner(config(), warm_up=False) as planner:
        agreed = planner.agree(planner.plan(window()), lambda payload: [payload, payload])
        mine = planner.plan(window(5))
        found = planner.agree(mine, lambda payload: [payload, b"0" * 64], own=OWN)
        assert found.rung == "own"
        assert found.placement == agreed.placement
        assert found.layout.cells == Layout.from_cells(OWN).cells


def _gloo(rank, port, case, results):
    import torch.distributed as dist

    from routepack_opt.integrations.collective import gather_over

    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    mine = {"sent": a_plan() if rank == 0 else None, "differ": a_plan() if rank == 0 else another_plan()}
    found = agree(mine[case], gather_over(), fallback)
    results.put((rank, found.rung, found.hash))
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize("case", ["sent", "differ"])
def test_real_process_groups_agree(case):
    pytest.importorskip("torch")
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    ranks = [context.Process(target=_gloo, args=(rank, port, case, results)) for rank in range(2)]
    for process in ranks:
        process.start()
    found = sorted(results.get(timeout=200) for _ in ranks)
    for process in ranks:
        process.join()
    assert [process.exitcode for process in ranks] == [0, 0]
    wanted = ("seed", a_plan().hash) if case == "sent" else ("own", fallback("").hash)
    assert [entry[1:] for entry in found] == [wanted, wanted]
