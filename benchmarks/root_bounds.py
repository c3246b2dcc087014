"""What formulations prove of the first two components, in the same time.

Run ``python benchmarks/root_bounds.py [--only TEXT] [--seconds 10]`` from the repository root; a second run
goes on where the first stopped. On instances of ``exact-medium`` of up to 24 items: the counting bound, the
Lagrangian bound (assignment relaxed, one row-shard priced exactly, plain subgradient steps), the row-pattern
program that finds the best multipliers, and CP-SAT and HiGHS on the assignment model started from the best
known layout. Every method has the same limit; processor seconds are what it used. Writes
``benchmarks/results/root-bounds.jsonl`` and prints a Markdown table.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from routepack_opt.bounds.score import placement_bound  # noqa: E402
from routepack_opt.solvers.exact import solve_exact  # noqa: E402
from routepack_opt.solvers.patterns.bounding import pattern_bound  # noqa: E402
from routepack_opt.solvers.patterns.table import PatternTable, refusal  # noqa: E402
from routepack_opt.suite.instances import Suite  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "root-bounds.jsonl"
SCALE = 256  # of the subgradient's multipliers, as of the program's


def main():
    """Measure what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    rows = [json.loads(line) for line in RESULT.read_text().splitlines()] if RESULT.exists() else []
    done = {(row["digest"], row["method"]) for row in rows}
    suite, warm = Suite(ROOT / "instances" / "exact-medium"), set()
    for instance, record in suite:
        if options.only not in instance.name or refusal(instance.problem):
            continue
        for method, solve in METHODS.items():
            if (record.digest, method) in done:
                continue
            if method not in warm:  # kernels and imports come before the clock
                solve(instance, suite.layout(instance.name), 1.0)
                warm.add(method)
            before = cpu()
            primary = solve(instance, suite.layout(instance.name), options.seconds)
            row = {"instance": instance.name, "digest": record.digest, "shape": record.shape}
            row |= {"method": method, "bound": primary, "seconds": round(cpu() - before, 2)}
            row |= {"limit": options.seconds}
            rows.append(row)
            done.add((record.digest, method))
            with RESULT.open("a") as file:
                file.write(json.dumps(row, sort_keys=True) + "\n")
    table(rows, suite)


def counting(instance, layout, seconds):
    """Return the counting bound."""
    return placement_bound(instance.problem, instance.rows, demand(instance)).primary


def lagrangian(instance, layout, seconds):
    """Take subgradient steps on the worth of the items."""
    deadline = time.monotonic() + seconds
    table = PatternTable(instance.problem, demand(instance), instance.rows)
    best = int(instance.score(layout).total)
    work = instance.problem.items.tokens
    duals = work * (best / work.sum())
    found, step, stale = 0, 1.0, 0
    while time.monotonic() < deadline and step > 1e-3:
        least, sets = table.price(np.rint(duals * SCALE).astype(np.int64), SCALE)
        k = int(least.argmin())
        total = -(-(int(np.rint(duals * SCALE).sum()) + table.blocks * int(least[k])) // SCALE)
        stale = 0 if total > found else stale + 1
        found = max(found, total)
        if stale == 10:
            step, stale = step / 2, 0
        inside = np.array([int(sets[k]) >> m & 1 for m in range(len(work))])
        slope = 1 - table.blocks * inside
        duals = duals + step * (1.01 * best - total) / max(int((slope**2).sum()), 1) * slope
    return -(-found // instance.problem.topology.num_shards)


def patterns(instance, layout, seconds):
    """Solve the row-pattern program."""
    known = (instance.problem, instance.placement, instance.rows)
    return pattern_bound(*known, start=layout, seconds=seconds).components(instance.rows)[0]


def solver(backend):
    """Return a solver's bound on the first component."""

    def run(instance, layout, seconds):
        known = {"placement": instance.placement, "rows": instance.rows, "hint": layout}
        return int(solve_exact(instance.problem, backend=backend, time_limit=seconds, **known).bound[0])

    return run


METHODS = {
    "counting": counting,
    "lagrangian": lagrangian,
    "patterns": patterns,
    "cpsat": solver("cpsat"),
    "highs": solver("highs"),
}


def demand(instance):
    """Return the demand under the instance's placement."""
    return instance.placement.demand(instance.problem.item_counts)


def cpu():
    """Return processor seconds of this process and of the solver processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def table(rows, suite):
    """Print the mean distance below the best known score by shape, and the time used."""
    print("| N, R, D, G | instances | " + " | ".join(METHODS) + " |")
    print("|---|---|" + "---|" * len(METHODS))
    shapes = dict.fromkeys(tuple(row["shape"][k] for k in "NRDG") for row in rows)
    for shape in shapes:
        members = [row for row in rows if tuple(row["shape"][k] for k in "NRDG") == shape]
        cells = []
        for method in METHODS:
            chosen = [row for row in members if row["method"] == method]
            gaps = [suite.records[row["instance"]].best[0] / row["bound"] - 1 for row in chosen]
            seconds = [row["seconds"] for row in chosen]
            cells.append(f"{100 * sum(gaps) / len(gaps):.2f} %, {sum(seconds) / len(seconds):.1f} s")
        names = {row["instance"] for row in members}
        print(f"| {', '.join(map(str, shape))} | {len(names)} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
