"""Run a function on several forked gloo ranks and collect what each returned or raised."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from datetime import timedelta
from pathlib import Path

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch
import torch._dynamo  # optimizers import it at their first step: once here, not in every rank
import torch.distributed as dist

torch.set_num_threads(1)


def _child(rank, world, folder, function, args, timeout):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=timeout),
    )
    try:
        result = ("ok", function(rank, *args))
    except Exception as error:
        result = (type(error).__name__, f"{error}\n{traceback.format_exc()}")
    Path(folder, f"{rank}.tmp").write_bytes(pickle.dumps(result))
    Path(folder, f"{rank}.tmp").rename(Path(folder, f"{rank}.pkl"))
    for helper in multiprocessing.active_children():  # of a library, which would outlive its rank
        helper.kill()
    os._exit(0)  # no destructor may wait for a rank that is gone


def run_ranks(world, function, *args, limit=90.0, group_timeout=30.0):
    """Return for each rank ("ok", value), (error class, text), or None when it died without a word."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_child, args=(rank, world, folder, function, args, group_timeout))
            for rank in range(world)
        ]
        for process in processes:
            process.start()
        end = time.monotonic() + limit
        for process in processes:
            process.join(max(0.1, end - time.monotonic()))
        hung = [rank for rank, process in enumerate(processes) if process.is_alive()]
        for process in processes:
            process.kill()
        files = [Path(folder, f"{rank}.pkl") for rank in range(world)]
        results = [pickle.loads(f.read_bytes()) if f.exists() else None for f in files]
        assert not hung, f"ranks {hung} hang; the others: {[r for r in results if r and r[0] != 'ok']}"
        return results


def all_ok(results):
    """Values of all ranks; fails with the traceback of the first that raised."""
    for rank, result in enumerate(results):
        assert result is not None, f"rank {rank} died"
        assert result[0] == "ok", f"rank {rank}: {result[1]}"
    return [result[1] for result in results]
