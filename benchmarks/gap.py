"""Gap of the planner on an instance suite.

Run ``python benchmarks/gap.py [exact-small] [--seeds 10] [--method annealing]`` from the repository root; a
second run goes on where the first stopped. The planner has its default budget. Writes
``benchmarks/results/gap-SUITE.jsonl`` and prints the summary and every miss.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from routepack_opt.planner import warm_up  # noqa: E402
from routepack_opt.suite.gap import planner_method, run_gap, summary  # noqa: E402
from routepack_opt.suite.instances import Suite  # noqa: E402


def main():
    """Run what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", nargs="?", default="exact-small")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--method", default="annealing")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    warm_up()
    output = ROOT / "benchmarks" / "results" / f"gap-{options.suite}.jsonl"
    rows = run_gap(
        Suite(ROOT / "instances" / options.suite),
        planner_method(options.method),
        range(options.seeds),
        name=f"{options.method}, default budget",
        output=output,
        only=options.only,
    )
    for row in rows:
        if row.missed is not None:
            print(f"{row.instance} seed {row.seed}: {row.missed}, {row.score} where {row.best}")
    print(json.dumps(summary(rows), indent=1))


if __name__ == "__main__":
    main()
