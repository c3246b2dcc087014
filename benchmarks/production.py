"""Gap to the counting bounds at production size, over search budgets.

Run ``python benchmarks/production.py [--only TEXT] [--times 1 8]`` from the repository root; a second run
goes on where the first stopped. A gap that falls with the budget was the heuristic's; what stays is the
bound's, or needs moves that the search has not. Writes ``benchmarks/results/production.jsonl``.
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from routepack_opt.planner import Budget, default_budget, plan, warm_up  # noqa: E402
from routepack_opt.problem import AttentionStage, Problem, Topology  # noqa: E402
from routepack_opt.suite import generators  # noqa: E402
from routepack_opt.window import Window  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "production.jsonl"
STAGES = (AttentionStage("kda", 6.0), AttentionStage("mla", 2.0, 2.0))


def windows():
    """Yield name, window maker and capacity."""
    for k in range(7):
        path = ROOT / "instances" / "gsm8k-moe" / f"window-{k:02d}.npz"
        yield f"gsm8k-moe/window-{k:02d}", lambda path=path: Window.load(path), 2048
    for name in ("ling", "deepseek", "qwen"):
        yield f"{name}_window(0)", lambda name=name: getattr(generators, f"{name}_window")(0), 8192


def main():
    """Measure what is missing and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--times", type=int, nargs="+", default=[1, 8])
    options = parser.parse_args()
    rows = [json.loads(line) for line in RESULT.read_text().splitlines()] if RESULT.exists() else []
    done = {(row["window"], row["shards"], row["times"]) for row in rows}
    warm_up()
    for name, make, capacity in windows():
        if options.only not in name:
            continue
        missing = [(g, t) for g in (1, 2) for t in options.times if (name, g, t) not in done]
        window = make() if missing else None
        for shards, times in missing:
            problem = Problem(window, Topology(8, 8, shards), capacity, STAGES)
            row = {"window": name, "shards": shards, "times": times, **measure(problem, times)}
            with RESULT.open("a") as file:
                file.write(json.dumps(row, sort_keys=True) + "\n")
            print(row, flush=True)


def measure(problem, times):
    """Plan with `times` the default budget."""
    budget = Budget(proposals=times * default_budget(problem).proposals)
    started = time.perf_counter()
    made = plan(problem, budget=budget, baselines=False)
    return {
        "rows": made.layout.rows,
        "proposals": budget.proposals,
        "primary": made.score.primary,
        "gap": made.gap,
        "gap_any": made.gap_any,
        "seconds": round(time.perf_counter() - started, 2),
    }


if __name__ == "__main__":
    main()
