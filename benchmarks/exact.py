"""Proof power: time to prove all three components, against the plain assignment model.

Run ``python benchmarks/exact.py [--seconds 60] [--only TEXT] [--backends cpsat highs] [--ways ours plain]``
from the repository root; a second run goes on where the first stopped. ``ours`` has symmetry rows, counting
bounds as rows and a hint from the planner (its time included); ``plain`` is the assignment model as it is.
Both are solved by the same solver, one thread, one after the other; the limit is in wall-clock seconds, what
is reported in processor seconds, so that other work on the machine matters less. The subset oracle and row
patterns are timed where they apply. Writes ``benchmarks/results/exact.jsonl`` and prints a Markdown table.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.how_good import proof  # noqa: E402
from routepack_opt.planner import Budget, plan, warm_up  # noqa: E402
from routepack_opt.solvers.exact import solve_exact  # noqa: E402
from routepack_opt.solvers.oracle import refusal, solve_by_subsets  # noqa: E402
from routepack_opt.solvers.patterns import closing  # noqa: E402
from routepack_opt.solvers.patterns.closing import solve_by_patterns  # noqa: E402
from routepack_opt.suite.recipes import Recipe, make  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "exact.jsonl"
SHAPES = [  # N, R, D, G, L, P
    (12, 2, 2, 1, 4, 4),
    (16, 2, 2, 1, 8, 4),
    (20, 2, 2, 1, 8, 4),
    (24, 2, 2, 1, 8, 4),
    (32, 2, 2, 1, 8, 4),
    (16, 2, 2, 1, 24, 8),
    (12, 2, 2, 2, 4, 4),
    (20, 2, 2, 2, 8, 4),
    (12, 3, 2, 2, 4, 4),
    (16, 3, 2, 1, 8, 4),
    (16, 4, 2, 1, 4, 4),
    (16, 2, 4, 2, 8, 8),
    (18, 3, 2, 1, 8, 4),
    (20, 4, 2, 2, 8, 4),
    (24, 3, 2, 1, 8, 4),
]
CASES = [(shape, 0) for shape in SHAPES]
CASES += [((n, 2, 2, 1, 8, 4), seed) for n in (24, 32) for seed in range(1, 5)]  # one instance decides little
STARVED = 0.7  # share of the limit below which an unfinished solve says nothing
WAYS = {"ours": {"symmetry": True, "cuts": True}, "plain": {"symmetry": False, "cuts": False}}


def main():
    """Measure what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default="")
    parser.add_argument("--backends", nargs="+", default=["cpsat", "highs"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS))
    options = parser.parse_args()
    rows = [json.loads(line) for line in RESULT.read_text().splitlines()] if RESULT.exists() else []
    done = {(row["instance"], row["backend"], row["way"]) for row in rows}
    for shape, seed in CASES:
        instance = make(Recipe(*shape, "lognormal", seed=seed), ROOT / "instances" / "gsm8k-moe")
        for backend in options.backends:
            for way in options.ways:
                if (instance.name, backend, way) in done or options.only not in instance.name:
                    continue
                row = measure(instance, shape, backend, way, options.seconds)
                if row["proven"] < 3 and row["seconds"] < STARVED * options.seconds:
                    print(f"{instance.name} {backend} {way}: the machine was busy, not kept", flush=True)
                    continue
                rows.append(row)
                with RESULT.open("a") as file:
                    file.write(json.dumps(row, sort_keys=True) + "\n")
    print(proof())


def measure(instance, shape, backend, way, seconds):
    """Solve one instance one way."""
    warm_up()
    started, before, hint = time.perf_counter(), cpu(), None
    if way == "ours":
        known = {"placement": instance.placement, "rows": instance.rows, "baselines": False}
        hint = plan(instance.problem, budget=Budget(proposals=50_000), **known).layout
    left = seconds - (time.perf_counter() - started)
    known = {"placement": instance.placement, "rows": instance.rows, "backend": backend, "hint": hint}
    result = solve_exact(instance.problem, time_limit=left, **known, **WAYS[way])
    used = cpu() - before
    value, low = result.score, result.bound[0]
    gap = None if value is None or not low else (value.primary - low) / low
    row = {"instance": instance.name, "shape": shape, "backend": backend, "way": way, "limit": seconds}
    row |= {"proven": sum(result.proven), "seconds": round(used, 3), "gap": gap, "oracle_seconds": None}
    if way == "ours" and backend == "cpsat":
        row |= other_ways(instance, hint, result, seconds)
    return row


def other_ways(instance, hint, result, seconds):
    """Solve by the subset oracle and by row patterns, where they apply; they must agree with the solver."""
    facts, known = {}, (instance.problem, instance.placement, instance.rows)
    if closing.refusal(instance.problem) is None:
        solve_by_patterns(*known, hint, seconds=1.0)  # kernels are compiled before the clock runs
        before = cpu()
        found = solve_by_patterns(*known, hint, seconds=seconds)
        facts["patterns_seconds"] = round(cpu() - before, 3) if found.optimal else None
        assert not (found.optimal and result.termination == "optimal") or found.score == result.score
    if refusal(instance.problem) is None:
        before = cpu()
        exact = solve_by_subsets(*known)
        facts["oracle_seconds"] = round(cpu() - before, 3)
        assert result.termination != "optimal" or exact.score == result.score
    return facts


def cpu():
    """Processor seconds of this process and of the solver processes that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
