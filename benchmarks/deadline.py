"""Plans of N = 512 windows within their deadline, with two busy neighbours.

Prints the distribution of the time from submission to plan as JSON, and with --save writes it to
benchmarks/results/deadline.json. Run it on an otherwise quiet machine:

    python benchmarks/deadline.py --windows 1000 --deadline 1.0 --own --save
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

import routepack_opt as rp

STAGES = [{"name": "kda", "alpha": 6.0}, {"name": "mla", "alpha": 2.0, "beta": 2.0}]
BUSY = "while True: sum(range(10000))"


def windows(number: int, seed: int) -> list[rp.Window]:
    """Draw windows of 512 samples from the recorded ones, so that no two are alike."""
    recorded = [rp.Window.load(f"instances/gsm8k-moe/window-{k:02d}.npz") for k in range(2)]
    lengths = np.concatenate([w.lengths for w in recorded])
    counts = np.concatenate([w.counts for w in recorded])
    rng = np.random.default_rng(np.random.SeedSequence(seed))
    picks = [rng.choice(lengths.size, 512, replace=False) for _ in range(number)]
    return [rp.Window.from_counts(lengths[pick], counts[pick]) for pick in picks]


def own_layout(problem: rp.Problem) -> list[list[list[int]]] | None:
    """Return what a trainer would run: first-fit decreasing at the certified number of rows."""
    found = rp.plan(problem, method="seed", baselines=False)
    return [[list(cell) for cell in row] for row in found.cells]


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Plan all windows and collect what came when."""
    search = {
        "deadline": options.deadline,
        "worker": options.worker,
        "threads": options.threads,
        "enough": None,
    }
    config = {"topology": {"dp": 8, "ep": 8}, "capacity": 2048, "stages": STAGES, "search": search}
    seconds, rungs, worse = [], Counter(), 0
    with rp.Planner(config) as planner:
        for window in windows(options.windows, options.seed):
            problem = planner.config.problem(window)
            own = own_layout(problem) if options.own else None
            start = time.perf_counter()
            plan = planner.plan(window, own=own)
            seconds.append(time.perf_counter() - start)
            rungs[plan.rung] += 1
            if own is not None and plan.score is not None:
                worse += plan.score > rp.score(problem, plan.placement, own)
    marks = (0, 50, 90, 99, 99.9, 100)
    return {
        "windows": options.windows,
        "deadline": options.deadline,
        "in_time": int(np.sum(np.array(seconds) <= options.deadline)),
        "rungs": dict(rungs),
        "worse_than_own": int(worse),
        "seconds": dict(zip(map(str, marks), np.percentile(seconds, marks).round(4).tolist(), strict=True)),
    }


def main() -> None:
    """Measure under load and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--windows", type=int, default=1000)
    parser.add_argument("--deadline", type=float, default=1.0)
    parser.add_argument("--worker", choices=("thread", "process"), default="thread")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--neighbours", type=int, default=2)
    parser.add_argument("--own", action="store_true", help="also give and compare with an own layout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/deadline.json")
    options = parser.parse_args()
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(options.neighbours)]
    try:
        text = json.dumps(measure(options), indent=1)
        print(text)
        if options.save:
            (Path(__file__).resolve().parent / "results" / "deadline.json").write_text(text + "\n")
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
