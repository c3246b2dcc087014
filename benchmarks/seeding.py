"""Time and quality of the initial population: the paper's Algorithm 2 against the wider pool.

Run ``python benchmarks/seeding.py [--large]`` from the repository root. Quality is the best seed's primary
score over that of the certificate's packing, on the shipped windows (D = 8, P = 8, C = 2048). Times are the
best of three after the kernels are ready, and only comparable within one run.
"""

import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from routepack_opt.placement import Placement  # noqa: E402
from routepack_opt.problem import AttentionStage, Problem, Topology  # noqa: E402
from routepack_opt.solvers.placing import place_loads  # noqa: E402
from routepack_opt.solvers.rows import certify_rows  # noqa: E402
from routepack_opt.solvers.seeding import build_seeds, least_loaded, warm_up  # noqa: E402
from routepack_opt.window import Window  # noqa: E402

STAGES = (AttentionStage("kda", 6.0), AttentionStage("mla", 2.0, 2.0))


def best_of_three(function):
    """Return (seconds, result)."""
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def report(name, problem, demand, rows, packing, trials):
    """Print one line: milliseconds of the first seeds and of a trial, and the scores."""
    options = {"packing": packing, "population": 16}
    first, seeds = best_of_three(lambda: build_seeds(problem, demand, rows, trials=0, **options))
    base = next(s for s in seeds if s.origin in ("certificate", "balanced")).score.primary
    line = (
        f"{name:<12} {rows:>4} rows   first seeds {1e3 * first:7.2f} ms {seeds[0].score.primary / base:8.4f}"
    )
    for method in ("paper", "annealing"):
        options["method"] = method
        seconds, seeds = best_of_three(lambda: build_seeds(problem, demand, rows, trials=trials, **options))
        each = 1e3 * (seconds - first) / trials
        best = min(s.score.primary for s in seeds)
        line += f"   {method} {each:7.2f} ms a trial {best / base:8.4f}"
    print(line)


def small():
    """Run the shipped windows, one and two shards, refined placement."""
    for path in sorted((ROOT / "instances" / "gsm8k-moe").glob("window-*.npz")):
        for shards in (1, 2):
            problem = Problem(Window.load(path), Topology(8, 8, shards), 2048, STAGES)
            certificate = certify_rows(problem)
            placement = place_loads(problem.loads, 8).placement
            demand = placement.demand(problem.item_counts)
            name = f"{path.stem[-2:]}, G = {shards}"
            report(name, problem, demand, certificate.rows, certificate.packing, trials=32)


def large():
    """Run N = 16,384, 61 layers, 256 experts, 64 ranks, D = 64, C = 32,768, eight shards."""
    rng = np.random.default_rng(0)
    lengths = np.clip(np.rint(2000 * np.exp(0.6 * rng.normal(size=16384))), 16, 32768).astype(np.int64)
    taste = np.clip(rng.gamma(1.0, 1.0, (64, 256)), 0.2, 3.0)[rng.integers(64, size=16384)]
    counts = np.empty((16384, 61, 256), np.int32)
    for layer in range(61):
        counts[:, layer] = np.roll(lengths[:, None] / 32 * taste, 7 * layer, axis=1)
    problem = Problem(Window.from_counts(lengths, counts), Topology(64, 64, 8), 32768, STAGES)
    demand = Placement.identity(61, 256, 64).demand(problem.item_counts)
    rows = -(-int(problem.items.tokens.sum()) // (32768 * 64))
    while (packing := least_loaded(problem, rows)) is None:
        rows += 1
    report("N = 16,384", problem, demand, rows, packing, trials=4)


if __name__ == "__main__":
    warm_up()
    large() if "--large" in sys.argv else small()
