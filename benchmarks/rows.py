"""Row certification in numbers: `python benchmarks/rows.py [SECTION ...] [--seeds N] [--limit S]`.

Sections: latency, real, stress, peers, literature, solvers; library, where `--library` names a folder of
BPPLIB files. Prints Markdown tables and writes `benchmarks/results/rows.json`. Whatever is compared is
measured in the same run.
"""

import argparse
import json
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from benchmarks import row_solvers  # noqa: E402
from benchmarks.peers import areal, ffd, kk, nemo_rl, slime  # noqa: E402
from benchmarks.row_windows import draw, grid, problem_of, real_families, stress_families  # noqa: E402
from routepack_opt.solvers.rows import certify_rows, verify, warm_up_rows  # noqa: E402
from routepack_opt.suite.binpacking import literature, read_bin_packing  # noqa: E402


def timed(problem, limit):
    """Give the certificate and its seconds; the digest is made before, as a planner has it."""
    _ = problem.rows_digest
    started = time.perf_counter()
    found = certify_rows(problem, time_limit=limit)
    return found, time.perf_counter() - started


def table(head, rows):
    """Print a Markdown table."""
    print(f"\n| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for row in rows:
        print(f"| {' | '.join(str(cell) for cell in row)} |")
    sys.stdout.flush()


def latency(seeds):
    """Warm latency at N = 512, C = 8192 on the trainer-like lengths."""
    rows, result, every = [], {}, []
    for name, family in real_families().items():
        seconds, status = [], Counter()
        for dp in (1, 2, 4, 8, 16, 32, 64):
            for seed in range(5 * seeds):
                found, spent = timed(problem_of(draw(family, 512, 8192, seed), dp, 8192), 10.0)
                seconds.append(spent)
                status[found.status] += 1
        every += seconds
        result[name] = _spread(seconds)
        rows.append([name, len(seconds), dict(status), *(f"{1e3 * v:.2f}" for v in result[name].values())])
    result["all"] = _spread(every)
    rows.append(["**all**", len(every), "", *(f"{1e3 * v:.2f}" for v in result["all"].values())])
    table(["N=512, C=8192", "windows", "status", "median ms", "p99 ms", "max ms"], rows)
    return result


def _spread(seconds):
    return {"median": np.median(seconds), "p99": np.percentile(seconds, 99), "max": max(seconds)}


def shares(families, seeds, limit, key):
    """Certified shares on the grid, by family and by slots."""
    counts, worst, open_cases = defaultdict(Counter), defaultdict(float), []
    for done, (name, n, c, dp, lengths) in enumerate(grid(families, seeds)):
        if done % 200 == 0:
            print(f"{key}: {done} windows, {len(open_cases)} open", file=sys.stderr, flush=True)
        problem = problem_of(lengths, dp, c)
        found, spent = timed(problem, limit)
        for group in ((key, name), (key, f"D={dp}"), (key, "all")):
            counts[group][found.status] += 1
            worst[group] = max(worst[group], spent)
        if found.status in ("best_known", "unknown"):
            open_cases.append([name, n, c, dp, found.lower_bound, found.rows, round(spent, 2)])
        elif n <= 1024:
            verify(found, problem)
    rows = []
    for (_, group), count in counts.items():
        total = sum(count.values())
        decided = count["certified"] + count["infeasible"]
        numbers = [total, count["certified"], count["infeasible"], f"{100 * decided / total:.2f} %"]
        rows.append([group, *numbers, f"{worst[key, group]:.2f}"])
    table([key, "windows", "certified", "proven infeasible", "decided", "longest s"], rows)
    if open_cases:
        table(["open", "N", "C", "D", "bound", "rows", "s"], open_cases[:60])
    return {"counts": {f"{a}/{b}": dict(c) for (a, b), c in counts.items()}, "open": open_cases}


def peers(seeds):
    """Rows against the trainers' packers: never more, and how often fewer."""
    packers = {"FFD": ffd, "AReaL": areal, "slime": slime, "NeMo RL": nemo_rl, "KK": kk}
    fewer, more, fails, total = Counter(), Counter(), Counter(), 0
    families = {**real_families(), **stress_families()}
    for _, _, c, dp, lengths in grid(families, seeds, (512,), (8192,), (4, 8, 16)):
        found = certify_rows(problem_of(lengths, dp, c), time_limit=2.0)
        total += 1
        for name, packer in packers.items():
            cells = packer.pack(lengths, c, dp)
            if cells is None:
                fails[name] += 1
            elif found.rows is None or len(cells) < found.rows:
                more[name] += 1
            else:
                fewer[name] += len(cells) > found.rows
    rows = [
        [name, total, fewer[name], f"{100 * fewer[name] / total:.1f} %", more[name], fails[name]]
        for name in packers
    ]
    table(["peer", "windows", "a row saved", "share", "more rows", "peer fails"], rows)
    return {"windows": total, "saved": dict(fewer), "more": dict(more), "fails": dict(fails)}


def library(folder, most=20):
    """BPPLIB files: up to ``most`` evenly spread ones of every folder, 60 s each."""
    files = defaultdict(list)
    for path in sorted(Path(folder).rglob("*.txt")):
        files[path.parent.name].append(path)
    spread = {name: paths[:: -(-len(paths) // most)] for name, paths in files.items()}
    return proofs({name: [read_bin_packing(path) for path in paths] for name, paths in spread.items()})


def proofs(classes):
    """Share proved of every class, 60 s an instance."""
    rows, result = [], {}
    for name, instances in classes.items():
        seconds, proved, still_open = [], 0, []
        for instance in instances:
            problem = problem_of(instance.sizes, 1, instance.capacity)
            found, spent = timed(problem, 60.0)
            seconds.append(spent)
            proved += found.status == "certified"
            if found.status != "certified":
                still_open.append([instance.name, found.lower_bound, found.rows])
        result[name] = {"instances": len(instances), "proved": proved, "open": still_open, **_spread(seconds)}
        rows.append(
            [name, len(instances), proved, f"{np.median(seconds):.3f}", f"{max(seconds):.1f}", still_open]
        )
        print(f"{name}: {proved} of {len(instances)}", file=sys.stderr)
    table(["class", "instances", "proved", "median s", "max s", "open (bound, bins)"], rows)
    return result


def solvers(limit=10.0):
    """Share proved and time of general solvers on the same instances."""
    few = {name: instances[:2] for name, instances in literature(1).items()}
    rows, result = [], {}
    for name, solve in row_solvers.SOLVERS.items():
        proved, seconds, total = 0, 0.0, 0
        for instances in few.values():
            for instance in instances:
                started = time.perf_counter()
                proved += solve(instance, limit)
                seconds += time.perf_counter() - started
                total += 1
        result[name] = {"proved": proved, "instances": total, "seconds": seconds}
        rows.append([name, total, proved, f"{seconds:.1f}"])
        print(f"{name}: {proved} of {total}", file=sys.stderr)
    table([f"solver ({limit:.0f} s each)", "instances", "proved", "seconds in all"], rows)
    return result


def main():
    """Run the sections asked for, all by default."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=60.0, help="seconds per window of the section real")
    parser.add_argument("--library", help="folder of BPPLIB .txt files: adds the section library")
    options = parser.parse_args()
    warm_up_rows()
    certify_rows(problem_of(np.arange(1, 60) * 7 % 50 + 1, 1, 100), time_limit=5.0)
    runs = {
        "latency": lambda: latency(options.seeds),
        "real": lambda: shares(real_families(), options.seeds, options.limit, "real"),
        "stress": lambda: shares(stress_families(), options.seeds, 2.0, "stress"),
        "peers": lambda: peers(options.seeds),
        "literature": lambda: proofs(literature(options.seeds)),
        "solvers": solvers,
    }
    if options.library:
        runs["library"] = lambda: library(options.library)
    path = HERE / "results" / "rows.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    for name in options.sections or runs:
        results[name] = runs[name]()
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
