"""AReaL 1.0.4, 2.0.0: `ffd_allocate`, `_dispatch_tensors`, `ppo_update` of controller and actor, splits.

Contract: the controller deals whole trajectories out and calls the workers with its keywords cut alike;
a worker splits its part into minibatches, and each into microbatches, both through one synced function
that all ranks of a group must answer with as many groups.
"""

from unittest.mock import MagicMock

import numpy as np
import pytest
import torch

from integrations.seams import broken, check_grid, counts, lengths, namespace, seam
from integrations.upstream import checkout
from routepack_opt import LayoutRules
from routepack_opt.integrations.areal import (
    allocate,
    allocate_synced,
    controller_update,
    dispatch_tensors,
    register,
    worker_update,
)
from routepack_opt.integrations.rowids import FIELD

DP, CAPACITY, STEPS = 2, 100, 2


def own_allocate(values, capacity, min_groups=None, n_groups_divisor=1):
    """An allocator of the published shape: round robin into as few groups as asked for."""
    if any(v > capacity for v in values) or len(values) < (min_groups or 1):
        raise RuntimeError(f"Values {values} cannot be allocated")
    for groups in range(max(min_groups or 1, n_groups_divisor), len(values) + 1):
        made = [list(range(g, len(values), groups)) for g in range(groups)]
        if groups % n_groups_divisor == 0 and all(sum(values[i] for i in g) <= capacity for g in made):
            return made
    raise RuntimeError(f"Cannot allocate values {values}")


def own_dispatch(item_list, dp_size, group_size=1):
    """A dispatch of the published shape: groups dealt round robin."""
    groups = [list(range(k, k + group_size)) for k in range(0, len(item_list), group_size)]
    parts = [[i for group in groups[d::dp_size] for i in group] for d in range(dp_size)]
    return [[item_list[i] for i in part] for part in parts], parts


def trajectories(sizes, several=1):
    """Every trajectory has `several` sequences; a token says whose it is."""
    items = []
    for start in range(0, len(sizes), several):
        mine = sizes[start : start + several]
        mask = torch.zeros(len(mine), max(mine), dtype=torch.long)
        for k, n in enumerate(mine):
            mask[k, :n] = 1
        ids = mask * torch.arange(start, start + len(mine))[:, None]
        items.append({"attention_mask": mask, "input_ids": ids})
    return items


class Controller:
    """A controller of the published shape; `deal` is the dispatch function of its module."""

    def __init__(self, deal):
        self.deal = deal

    def ppo_update(self, data, **kwargs):
        splits, parts = self.deal(data, DP, group_size=kwargs.pop("group_size", 1))
        return [
            (split, {name: [value[i] for i in part] for name, value in kwargs.items()})
            for split, part in zip(splits, parts, strict=True)
        ]


def spec(n_mbs=1, cap=10**12, divisor=1, granularity=1):
    return namespace(n_mbs=n_mbs, max_tokens_per_mb=cap, n_mbs_divisor=divisor, granularity=granularity)


class Actor:
    """An actor of the published shape: minibatches, then microbatches, both split by `synced`."""

    def __init__(self, synced, **more):
        self.synced, self.more, self.ran = synced, more, []

    def ppo_update(self, data):
        rows = [
            (int(ids.max()), int(mask.sum()))
            for d in data
            for ids, mask in zip(d["input_ids"], d["attention_mask"], strict=True)
        ]
        for group in self.synced(spec(STEPS), [n for _, n in rows]):
            mine = [rows[i] for i in group]
            cells = self.synced(spec(cap=CAPACITY, **self.more), np.array([n for _, n in mine]))
            self.ran.append([[mine[i][0] for i in cell] for cell in cells])


def own_synced(mb_spec, lens, group=None):
    return own_allocate(list(lens), mb_spec.max_tokens_per_mb, mb_spec.n_mbs, mb_spec.n_mbs_divisor)


def update(here, items, **more):
    deal = dispatch_tensors(own_dispatch)
    options = {"minibatches": STEPS, "own_allocate": own_allocate} | more
    call = controller_update(here, Controller.ppo_update, own_dispatch, **options)
    return call(Controller(deal), items)


def run(here, items, worker=None, **more):
    """Return [minibatch][row][rank], as the workers ran them."""
    ran = []
    for split, kwargs in update(here, items, **more):
        actor = Actor(allocate_synced(own_synced), **(worker or {}))
        worker_update(Actor.ppo_update)(actor, split, **kwargs)
        ran.append(actor.ran)
    assert len({tuple(len(step) for step in rank) for rank in ran}) == 1
    return [[[rank[w][r] for rank in ran] for r in range(len(ran[0][w]))] for w in range(len(ran[0]))]


def check(steps, sizes, plans):
    for step, plan in zip(steps, plans, strict=True):
        mine = sorted(i for row in step for cell in row for i in cell)
        check_grid(
            [[[mine.index(i) for i in c] for c in row] for row in step],
            [sizes[i] for i in mine],
            CAPACITY,
            DP,
        )
        assert [[len(c) for c in row] for row in step] == [[len(c) for c in row] for row in plan.cells]
    assert sorted(i for step in steps for row in step for cell in row for i in cell) == list(
        range(len(sizes))
    )


def test_rows_ride_on_the_update():
    here, sizes = seam(DP, CAPACITY, ep=2), lengths(32, CAPACITY)
    steps = run(here, trajectories(sizes), counts=lambda items: counts(sizes))
    assert here.outcomes == {"planned": STEPS} and here.plans[0].placement.num_experts == 4
    check(steps, sizes, here.plans)
    for step in steps:  # equal counts per rank, as AReaL deals
        assert len({sum(len(row[d]) for row in step) for d in range(DP)}) == 1
    plain = run(broken(DP, CAPACITY), trajectories(sizes))
    members = lambda steps: [{i for row in step for cell in row for i in cell} for step in steps]  # noqa: E731
    assert members(steps) == members(plain)  # minibatches keep their trajectories


@pytest.mark.parametrize(("several", "group"), [(2, 1), (1, 2)])
def test_trajectories_and_groups_stay_together(several, group):
    here, sizes = seam(DP, CAPACITY), lengths(32, CAPACITY // 2 - 2)
    deal = dispatch_tensors(own_dispatch)
    call = controller_update(
        here, Controller.ppo_update, own_dispatch, minibatches=STEPS, own_allocate=own_allocate
    )
    parts = call(Controller(deal), trajectories(sizes, several), group_size=group)
    assert here.outcomes == {"planned": STEPS}
    steps = []
    for split, kwargs in parts:
        actor = Actor(allocate_synced(own_synced))
        worker_update(Actor.ppo_update)(actor, split, **kwargs)
        steps.append(actor.ran)
    cells = [cell for rank in steps for step in rank for cell in step]
    where = {i: k for k, cell in enumerate(cells) for i in cell}
    assert len(where) == 32 and all(where[i] == where[i + 1] for i in range(0, 32, 2))


def test_the_pipeline_is_asked_for_by_the_workers():
    here, sizes = seam(DP, CAPACITY, LayoutRules(min_rows=4, row_multiple=2)), lengths(32, CAPACITY)
    check(run(here, trajectories(sizes), worker={"n_mbs": 4, "divisor": 2}), sizes, here.plans)
    assert all(plan.layout.rows % 2 == 0 and plan.layout.rows >= 4 for plan in here.plans)
    sizes = [9] * 16
    here = seam(DP, CAPACITY)
    for step in run(here, trajectories(sizes), worker={"n_mbs": 4, "divisor": 4}):
        assert len(step) == 4  # one row was planned: the trainer's own
    for step in run(here, trajectories(sizes), worker={"granularity": 2}):
        assert step


def test_faults_run_the_trainers_own():
    for here, items in (
        (broken(DP, CAPACITY), trajectories([9] * 16)),
        (seam(DP, CAPACITY), trajectories([9] * 3)),
    ):
        parts = update(here, items)
        assert all(kwargs == {} for _, kwargs in parts) and here.outcomes == {"own": 1}
        assert [split for split, _ in parts] == own_dispatch(items, DP)[0]


def test_handles_without_lengths_run_the_trainers_own():
    here = seam(DP, CAPACITY)
    parts = update(here, [{"attention_mask": "a handle", "input_ids": k} for k in range(8)])
    assert all(kwargs == {} for _, kwargs in parts) and here.outcomes == {"own": 1}
    planned = update(
        here, [{"attention_mask": "a handle", "input_ids": k} for k in range(8)], lengths=lambda item: [7]
    )
    assert all(list(kwargs) == [FIELD] for _, kwargs in planned)


def test_when_another_rank_cannot_no_rank_comes_back_to_the_plan(monkeypatch):
    (split, kwargs), _ = update(seam(DP, CAPACITY), trajectories([9] * 16))
    answers = iter([True, False, True, True])  # another rank cannot run the first minibatch as planned
    monkeypatch.setattr(
        "routepack_opt.integrations.areal.worker.all_agree", lambda groups, group: next(answers)
    )
    again = iter([True, False, False])

    def recursive(mb_spec, lens, group=None):
        if next(again):  # AReaL's function calls itself by name until the ranks agree
            return synced(mb_spec, lens, group)
        return [[i] for i in range(len(lens))]

    synced = allocate_synced(recursive)
    actor = Actor(synced)
    worker_update(Actor.ppo_update)(actor, split, **kwargs)
    assert [[len(cell) for cell in step] for step in actor.ran] == [[1] * 4, [1] * 4]


def test_another_dispatch_is_the_trainers_own():
    items = trajectories([9] * 4)
    assert dispatch_tensors(own_dispatch)(items, DP) == own_dispatch(items, DP)
    assert allocate_synced(own_synced)(spec(2), [1, 2]) == [[0], [1]]


def test_two_controllers_deal_alike():
    sizes = lengths(32, CAPACITY)
    assert run(seam(DP, CAPACITY), trajectories(sizes)) == run(seam(DP, CAPACITY), trajectories(sizes))


def test_the_registry_offers_the_allocator():
    module = namespace(
        ffd_allocate=own_allocate,
        PACKING_ALGORITHMS={"ffd", "kk"},
        get_allocate_fn=lambda algorithm="ffd": own_allocate,
    )
    data = namespace(get_allocate_fn=module.get_allocate_fn)
    register("routepack", module, data)
    pack = data.get_allocate_fn("routepack")
    assert "routepack" in module.PACKING_ALGORITHMS and data.get_allocate_fn("ffd") is own_allocate
    assert len(pack(np.array([40, 20, 50, 70]), 100, min_groups=1, n_groups_divisor=1)) == 2
    assert len(pack([40, 20, 50, 70], 10**12, min_groups=3)) == 3
    assert len(pack([40, 20, 50, 70, 5, 5], 100, min_groups=None, n_groups_divisor=3)) == 3
    for values, least in (([101], 1), ([5, 5], 3)):
        with pytest.raises(RuntimeError):
            pack(values, 100, min_groups=least)


@pytest.fixture
def real():
    names = "areal.utils.seqpack areal.utils.data areal.api.cli_args areal.infra.controller.train_controller"
    plain = lambda *args, **kwargs: lambda function: function  # noqa: E731
    tracker = MagicMock(scope_func_wrapper=plain)
    stubs = {name: {} for name in ("omegaconf", "hydra", "uvloop")} | {
        "areal.utils": {"stats_tracker": tracker},
        "areal.utils.perf_tracer": {"trace_perf": plain},
        "areal.utils.stats_tracker": {"scope_func_wrapper": plain},
        "areal.infra": {"TrainController": type("TrainController", (), {})},
        "areal.infra.rpc.rtensor": {"RTensor": type("RTensor", (), {})},
    }
    names = [*names.split(), "areal.trainer.ppo.actor"]
    with checkout("areal", "areal", names, stubs, needs=["einops", "torchdata"]) as load:
        yield load


def test_the_real_controller_and_actor_run_planned_rows(real):
    controller, actor = real("areal.infra.controller.train_controller"), real("areal.trainer.ppo.actor")
    data, spec_of = real("areal.utils.data"), real("areal.api.cli_args").MicroBatchSpec
    own_split = real("areal.utils.seqpack").ffd_allocate
    sizes = lengths(32, CAPACITY)
    items = trajectories(sizes)
    for item in items:
        shape = item["attention_mask"].shape
        item |= {name: torch.zeros(shape) for name in ("advantages", "kl_rewards")} | {
            "loss_mask": torch.ones(shape)
        }
        item |= {name: torch.zeros(1) for name in ("rewards", "tot_rewards")}
    here = seam(DP, CAPACITY)
    own_deal = controller._dispatch_tensors
    controller._dispatch_tensors = dispatch_tensors(own_deal)
    data.allocate_balanced_mbs_synced = allocate_synced(data.allocate_balanced_mbs_synced)

    class Wired(controller.TrainController):
        parallel_strategy = namespace(dp_size=DP)

        def __init__(self):
            self.ran = []

        def _custom_function_call(self, method, *args, rpc_meta=None, **kwargs):
            """Cut as the controller does, then run every rank's actor."""
            dp_args, dp_kwargs, _ = self._prepare_dispatch(*args, **kwargs)
            for rank in range(DP):
                ran = []

                def train(mb, **more):
                    made = data.split_padded_tensor_dict_into_mb_list(mb, spec_of(max_tokens_per_mb=CAPACITY))
                    ran.append([[int(ids.max()) for ids in each["input_ids"]] for each in made.mbs])  # noqa: B023
                    return {}

                worker = MagicMock()
                worker.config = MagicMock(
                    log_agent_stats=False, c_clip=None, rejection_sampling=None, ppo_n_minibatches=STEPS
                )
                worker.engine.train_batch = train
                worker._ppo_update = lambda batch, worker=worker: actor.PPOActor._ppo_update(worker, batch)
                worker_update(actor.PPOActor.ppo_update)(
                    worker, *[a[rank] for a in dp_args], **{k: v[rank] for k, v in dp_kwargs.items()}
                )
                self.ran.append(ran)

    def steps_of(call):
        wired = Wired()
        call(wired, items)
        ran = wired.ran
        return [[[rank[w][r] for rank in ran] for r in range(len(ran[0][w]))] for w in range(len(ran[0]))]

    own = actor.PPOActorController.ppo_update
    steps = steps_of(controller_update(here, own, own_deal, minibatches=STEPS, own_allocate=own_split))
    assert here.outcomes == {"planned": STEPS}
    check(steps, sizes, here.plans)
    plain = steps_of(
        controller_update(broken(DP, CAPACITY), own, own_deal, minibatches=STEPS, own_allocate=own_split)
    )
    members = lambda steps: [{i for row in step for cell in row for i in cell} for step in steps]  # noqa: E731
    assert members(steps) == members(plain)


def test_the_real_allocator_is_not_beaten(real):
    ffd, values = real("areal.utils.seqpack").ffd_allocate, lengths(64, CAPACITY)
    for least, divisor in ((1, 1), (4, 2), (1, 4)):
        ours = allocate(ffd)(values, CAPACITY, min_groups=least, n_groups_divisor=divisor)
        assert len(ours) <= len(ffd(values, CAPACITY, min_groups=least, n_groups_divisor=divisor))
        assert len(ours) % divisor == 0 and all(sum(values[i] for i in g) <= CAPACITY for g in ours)
    with pytest.raises(RuntimeError):
        allocate(ffd)([CAPACITY + 1], CAPACITY, min_groups=1)
