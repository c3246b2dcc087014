"""What deciding the placement first costs: the hierarchical against the joint optimum, on tiny problems.

Run ``python benchmarks/hierarchy.py [--count 16]`` from the repository root. Hierarchical means the refined
placement of the window's loads and then the exactly best layout under it. Writes
``benchmarks/results/hierarchy.json``.
"""

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from routepack_opt.model import MoEModel  # noqa: E402
from routepack_opt.problem import AttentionStage, Problem, Topology  # noqa: E402
from routepack_opt.solvers.exact.placing import solve_joint  # noqa: E402
from routepack_opt.solvers.oracle import solve_by_subsets  # noqa: E402
from routepack_opt.solvers.placing import place  # noqa: E402
from routepack_opt.suite.generators import draw_window  # noqa: E402
from routepack_opt.suite.lengths import draw_lengths  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "hierarchy.json"
STAGES = (AttentionStage("kda", 6.0), AttentionStage("mla", 2.0, 2.0))


def main():
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    rows = [row for seed in range(options.count) if (row := measure(seed, options.seconds)) is not None]
    RESULT.write_text(json.dumps(rows, indent=1) + "\n")
    proven = [row["loss"] for row in rows if row["proven"]]
    print(f"{len(proven)} proven: mean loss {100 * np.mean(proven):.2f} %, largest {100 * max(proven):.2f} %")


def measure(seed, seconds):
    """One tiny problem: 9 samples, 2 rows, 1 or 2 slots, 2 layers of 6 or 8 experts on 2 to 4 ranks."""
    (experts, ranks), dp = ((6, 3), (8, 2), (8, 4))[seed % 3], 1 + seed // 3 % 2
    lengths = draw_lengths(("lognormal", "half")[seed % 2], 9, 64, seed)
    window = draw_window(lengths, MoEModel(2, experts, 2), seed)
    capacity = max(int(lengths.max()), int(lengths.sum() / (2 * dp * 0.8)) + 1)
    problem = Problem(window, Topology(dp, ranks), capacity, STAGES)
    first = solve_by_subsets(problem, place(problem).placement, 2)
    if first.score is None:
        return None
    started = time.perf_counter()
    joint = solve_joint(problem, 2, time_limit=seconds)
    if joint is None:
        return None
    return {
        "seed": seed,
        "experts": experts,
        "ranks": ranks,
        "dp": dp,
        "hierarchical": first.score.primary,
        "joint": joint.score.primary,
        "loss": first.score.primary / joint.score.primary - 1,
        "proven": joint.proven,
        "seconds": round(time.perf_counter() - started, 2),
    }


if __name__ == "__main__":
    main()
