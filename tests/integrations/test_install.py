"""Adapters find the trainers' functions by the names that the versions read have, and swap them once."""

import sys
from types import ModuleType

import pytest

from integrations.seams import seam
from routepack_opt.integrations import areal, megatron, openrlhf, prime_rl, skyrl, verl


@pytest.fixture
def module(monkeypatch):
    """Put a module of the published names into the place of the trainer's."""

    def put(name, **values):
        parts = name.split(".")
        for k in range(1, len(parts) + 1):
            if ".".join(parts[:k]) not in sys.modules or k == len(parts):
                monkeypatch.setitem(sys.modules, ".".join(parts[:k]), ModuleType(".".join(parts[:k])))
        vars(sys.modules[name]).update(values)
        return sys.modules[name]

    return put


def kind(*methods):
    return type("Kind", (), {name: lambda self, *args: None for name in methods})


def swapped(owner, name, install):
    """Install twice, and return what is then in the place of the function."""
    own = getattr(owner, name)
    install()
    found = getattr(owner, name)
    install()
    assert getattr(owner, name) is found is not own
    return found


def test_verl(module):
    module("verl.utils.seqlen_balancing", get_seqlen_balanced_partitions=None)
    trainer = module("verl.trainer.ppo.ray_trainer", RayPPOTrainer=kind("_balance_batch")).RayPPOTrainer
    newer = module(
        "verl.trainer.ppo.v1.trainer_base", TrainerBase=kind("_balance_batch"), other=3
    ).TrainerBase
    utils = module("verl.workers.engine.utils", prepare_micro_batches=lambda data: None)
    engine = module("verl.workers.engine.fsdp", prepare_micro_batches=utils.prepare_micro_batches)
    here = seam(2, 100)
    swapped(trainer, "_balance_batch", lambda: verl.install_driver(here))
    assert newer._balance_batch.__qualname__.startswith("balance_batch_meta")
    swapped(utils, "prepare_micro_batches", verl.install_worker)
    assert engine.prepare_micro_batches.__module__.startswith("routepack_opt")


def test_areal(module):
    control = module("areal.infra.controller.train_controller", _dispatch_tensors=lambda items, dp: None)
    actor = module(
        "areal.trainer.ppo.actor", PPOActorController=kind("ppo_update"), PPOActor=kind("ppo_update")
    )
    data = module("areal.utils.data", allocate_balanced_mbs_synced=lambda spec, lens: None)
    here = seam(2, 100)
    swapped(control, "_dispatch_tensors", lambda: areal.install_controller(here, minibatches=2))
    assert actor.PPOActorController.ppo_update.__module__.endswith("areal.controller")
    swapped(data, "allocate_balanced_mbs_synced", areal.install_worker)
    assert actor.PPOActor.ppo_update.__module__.endswith("areal.worker")


def test_openrlhf(module):
    trainer = module("openrlhf.trainer.ppo_trainer", balance_experiences=lambda experiences, args: None)
    buffer = module("openrlhf.trainer.ppo_utils.replay_buffer", NaiveReplayBuffer=kind("setup_dynamic_batch"))
    here = seam(2, 100)
    swapped(trainer, "balance_experiences", lambda: openrlhf.install_driver(here))
    swapped(buffer.NaiveReplayBuffer, "setup_dynamic_batch", openrlhf.install_worker)


def test_skyrl(module):
    class MeshDispatch:
        @classmethod
        def stage_chunks(cls, dp_size, data, boundaries):
            return "staged"

    dispatch = module("skyrl.backends.skyrl_train.distributed.dispatch", MeshDispatch=MeshDispatch)
    worker = module(
        "skyrl.backends.skyrl_train.workers.worker_utils", TokenBasedBatchIterator=kind("__len__")
    )
    module("skyrl.train.dataset.bin_packing", make_seq_packer=lambda algorithm, capacity: None)
    swapped(MeshDispatch, "stage_chunks", lambda: skyrl.install_driver(seam(2, 100)))
    assert dispatch.MeshDispatch.stage_chunks(2, {}, []) == "staged"
    own = worker.TokenBasedBatchIterator
    assert issubclass(swapped(worker, "TokenBasedBatchIterator", skyrl.install_worker), own)


def test_prime_rl(module):
    packing = module("prime_rl.orchestrator.packing", prepare_batch=lambda *args: None)
    swapped(packing, "prepare_batch", lambda: prime_rl.install(seam(2, 100)))


def test_megatron(module):
    base = kind("get_groups_and_subsamples")
    schedule = module(
        "megatron.core.datasets.data_schedule",
        PackingSchedulerEnum={"DP_BALANCED": "dp_balanced"},
        scheduler_map={"dp_balanced": base},
    )
    found = megatron.install(seam(2, 100))
    assert schedule.scheduler_map["dp_balanced"] is found is megatron.install(seam(2, 100))
    assert issubclass(found, base)
