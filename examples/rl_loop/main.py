"""Run the loop on forked CPU ranks and print what every step did.

    python examples/rl_loop/main.py --steps 3 --ranks 2

Read `loop.py` next: one step from start to end, then `rollout.py`, `training.py` and `model.py`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import traceback
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # the model is made here, nothing is downloaded
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import torch
import torch._dynamo  # optimizers import it at their first step: once here, not in every rank
import torch.distributed as dist
from loop import StepReport, run_rank

import routepack_opt as rp

COLUMNS = {
    "step": "step",
    "rows": "rows",
    "rows_status": "status",
    "own_joint": "own joint",
    "planned_joint": "planned",
    "experts_moved": "moved",
    "loss": "loss",
    "loss_difference": "loss diff",
    "gradient_difference": "grad diff",
    "load_error": "load error",
    "sync_difference": "sync diff",
}


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps (3)")
    parser.add_argument("--ranks", type=int, default=2, help="processes: data- and expert-parallel (2)")
    parser.add_argument("--prompts", type=int, default=8, help="prompts per window (8)")
    parser.add_argument("--answers", type=int, default=4, help="responses per prompt (4)")
    parser.add_argument("--capacity", type=int, default=90, help="tokens of a cell (90)")
    parser.add_argument("--seed", type=int, default=0, help="of weights and rollouts (0)")
    parser.add_argument("--checkpoint", type=Path, help="write the last weights here, as safetensors")
    parser.add_argument("--json", action="store_true", help="print the reports as JSON")
    options = parser.parse_args(arguments)
    if options.prompts % options.ranks:
        parser.error(f"--prompts {options.prompts} is no multiple of --ranks {options.ranks}")
    return options


def run(options: argparse.Namespace) -> list[StepReport]:
    """Fork the ranks and return what rank 0 reports."""
    rp.warm_up()  # once, before the ranks are forked
    torch.set_num_threads(1)
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        queue = context.SimpleQueue()
        ranks = [
            context.Process(target=_rank, args=(rank, options, folder, queue))
            for rank in range(options.ranks)
        ]
        for process in ranks:
            process.start()
        outcomes = [queue.get() for _ in ranks]  # a rank that fails says so; the others then time out
        for process in ranks:
            process.join()
    errors = [text for _, text, reports in outcomes if reports is None]
    if errors:
        raise SystemExit(errors[0])
    return min(outcomes, key=lambda outcome: outcome[0])[2]


def _rank(rank: int, options: argparse.Namespace, folder: str, queue: Any) -> None:
    store = f"file://{folder}/store"
    wait = timedelta(seconds=60)
    try:
        dist.init_process_group("gloo", init_method=store, rank=rank, world_size=options.ranks, timeout=wait)
        queue.put((rank, "", run_rank(options)))
        dist.barrier()
        dist.destroy_process_group()
    except Exception:
        queue.put((rank, f"rank {rank}: {traceback.format_exc()}", None))


def table(reports: list[StepReport]) -> str:
    """Lay the reports out for reading."""
    rows = [list(COLUMNS.values())]
    for report in reports:
        values = asdict(report)
        rows.append([_text(values[key]) for key in COLUMNS])
    widths = [max(len(row[k]) for row in rows) for k in range(len(COLUMNS))]
    return "\n".join(
        "  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows
    )


def _text(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return f"{value:.1e}" if value and abs(value) < 1e-3 else f"{value:.4f}"


def main() -> None:
    """Run and print."""
    options = parse()
    reports = run(options)
    print(json.dumps([asdict(report) for report in reports]) if options.json else table(reports))


if __name__ == "__main__":
    main()
