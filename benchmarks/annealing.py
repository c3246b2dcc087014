"""Speed and quality of population annealing: every number as a ratio or a gap measured in one run.

    python benchmarks/annealing.py quality     gaps on the real windows after one second on two threads
    python benchmarks/annealing.py speed       time per proposal against plain kernels and streaming
    python benchmarks/annealing.py sweep       the parameters that the defaults were chosen from

Results are printed and, with --save, written to benchmarks/results/annealing-NAME.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from annealing_kernels import plain_swaps, rescored_rows, stream

import routepack_opt as rp
from routepack_opt.solvers.annealing._kernels.chain import run_chain
from routepack_opt.solvers.annealing.instance import build_instance, new_state, to_kernel
from routepack_opt.solvers.annealing.parameters import AnnealingParameters, Mix
from routepack_opt.solvers.annealing.population import anneal
from routepack_opt.solvers.annealing.threads import ThreadExecutor

ROOT = Path(__file__).resolve().parent
STAGES = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))


def real_problems() -> list[tuple[str, rp.Problem]]:
    """Return the seven windows with one and two shards, D = 8, P = 8, C = 2048."""
    found = []
    for path in sorted((ROOT.parent / "instances" / "gsm8k-moe").glob("window-*.npz")):
        window = rp.Window.load(path)
        for shards in (1, 2):
            problem = rp.Problem(window, rp.Topology(8, 8, shards), 2048, STAGES)
            found.append((f"{path.stem} G={shards}", problem))
    return found


def quality(seconds: float, refine: bool) -> list[dict[str, Any]]:
    """Plan every real window for a second on two threads."""
    rp.warm_up()
    rows = []
    for name, problem in real_problems():
        start = time.perf_counter()
        plan = rp.plan(problem, deadline=seconds, threads=2, refine_placement=refine).validate(problem)
        took = time.perf_counter() - start
        total = int(problem.aligned.sum())
        least = -(-total // (problem.capacity * problem.topology.dp))
        assert plan.rows.status == "certified"
        assert plan.rows.rows == least
        rows.append(
            {
                "window": name,
                "gap_%": 100 * plan.gap,
                "gap_any_%": 100 * plan.gap_any,
                "rows": plan.rows.rows,
                "million_proposals": plan.provenance["proposals"] / 1e6,
                "seconds": took,
            }
        )
    for key in ("gap_%", "gap_any_%", "seconds"):
        values = [row[key] for row in rows]
        print(f"{key:>10}: mean {np.mean(values):.3f}, worst {max(values):.3f}")
    return rows


def speed(layers: int = 20, ranks: int = 8, samples: int = 512) -> list[dict[str, Any]]:
    """Time swaps on one thread: ours, a plain int64 kernel, and streaming the same bytes."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(50, 500, samples)
    counts = np.stack([rng.multinomial(4 * n, np.full(4 * ranks, 1 / (4 * ranks)), layers) for n in lengths])
    problem = rp.Problem(rp.Window.from_counts(lengths, counts), rp.Topology(8, ranks), 8192, STAGES)
    placement = rp.Placement.identity(layers, 4 * ranks, ranks)
    demand = placement.demand(problem.item_counts)
    rows = int(-(-lengths.sum() // (4096 * 8))) + 1
    cell = np.arange(samples) % (rows * 8)
    instance = build_instance(problem, demand)
    state = new_state(instance, rows, to_kernel(problem, cell), np.arange(1, 5, dtype=np.uint64))
    swaps = Mix(near=0, any=1024, move=0, pair=0).thresholds()
    counted = np.zeros(2, np.int64)
    number = 1_000_000

    def ours(n: int) -> None:
        run_chain(instance, state, state.cell.copy(), state.score.copy(), 1e-9, n, swaps, counted)

    routed = np.zeros((rows, layers, ranks), np.int64)
    np.add.at(routed, cell // 8, demand.astype(np.int64))
    wide = demand.astype(np.int64)
    order = np.argsort(cell // 8, kind="stable")
    starts = np.searchsorted((cell // 8)[order], np.arange(rows + 1))

    def plain(n: int) -> None:
        plain_swaps(routed, wide, cell // 8, n)

    def rescored(n: int) -> None:
        rescored_rows(wide, order, starts, n // 50)

    bytes_touched = instance.demand[0].size * (2 * demand.itemsize + 2 * 4)  # two items, two row-shards
    data = np.zeros(bytes_touched // 8 * 4096, np.int64)  # stays in the cache level that our arrays live in

    def streaming(n: int) -> None:
        stream(data[: bytes_touched // 8], n)

    times = {}
    for name, run in (("ours", ours), ("plain", plain), ("rescored", rescored), ("stream", streaming)):
        run(1000)
        counted[:] = 0
        start = time.perf_counter()
        run(number)
        times[name] = (time.perf_counter() - start) / number
        if name == "ours":
            times[name] *= number / max(int(counted[0]), 1)
    row = {
        "ns_per_evaluated_swap": 1e9 * times["ours"],
        "rescored_over_ours": 50 * times["rescored"] / times["ours"],
        "expert_terms_alone_over_ours": times["plain"] / times["ours"],
        "byte_rate_over_streaming": times["stream"] / times["ours"],
        "two_threads_over_one": threads_ratio(problem, demand, cell, rows),
    }
    print(row)
    return [row]


def threads_ratio(problem: rp.Problem, demand: Any, cell: Any, rows: int) -> float:
    """Return proposals per second on two threads over one."""
    taken, hashes = [], []
    for workers in (1, 2):
        executor = ThreadExecutor(workers)
        start = time.perf_counter()
        result = anneal(
            problem,
            demand,
            [cell],
            rows,
            proposals=4_000_000,
            parameters=AnnealingParameters(population=4),
            executor=executor,
        )
        taken.append(time.perf_counter() - start)
        hashes.append(result.cell_of_item.tobytes())
        executor.close()
    assert hashes[0] == hashes[1]
    return taken[0] / taken[1]


def sweep(proposals: int) -> list[dict[str, Any]]:
    """Mean and worst gap under the placement for a grid around the defaults, equal proposals."""
    cases = []
    for name, problem in real_problems()[::3]:
        plan = rp.plan(problem, method="seed")
        cases.append((name, problem, plan))
    base = AnnealingParameters()
    grid: list[tuple[str, AnnealingParameters]] = [("default", base)]
    for population in (1, 2, 4, 8):
        grid.append((f"population {population}", AnnealingParameters(population=population)))
    for hottest in (1e-4, 5e-5, 2e-5, 1e-5):
        grid.append((f"hottest {hottest:g}", AnnealingParameters(hottest=hottest)))
    for coldest in (3e-6, 3e-7):
        grid.append((f"coldest {coldest:g}", AnnealingParameters(coldest=coldest)))
    for levels in (10, 20, 80):
        grid.append((f"levels {levels}", AnnealingParameters(levels=levels)))
    for mix in (
        Mix(near=100, any=800),
        Mix(near=400, any=500),
        Mix(near=900, any=50, move=50),
        Mix(any=116, pair=100),
        Mix(reach=4),
        Mix(reach=64),
        Mix(guided=400),
    ):
        grid.append((f"mix {mix}", AnnealingParameters(mix=mix)))
    rows = []
    for name, parameters in grid:
        gaps = []
        for _, problem, start in cases:
            demand = start.placement.demand(problem.item_counts)
            cell = start.layout.cell_of_item(problem)
            budget = {"proposals": proposals, "parameters": parameters}
            result = anneal(problem, demand, [cell], start.rows.rows, **budget)
            gaps.append(100 * (result.score[0] / start.bound - 1))
        rows.append({"parameters": name, "mean_gap_%": float(np.mean(gaps)), "worst_gap_%": max(gaps)})
        print(f"{name:60s} mean {np.mean(gaps):.4f}%, worst {max(gaps):.4f}%", flush=True)
    return rows


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("quality", "speed", "sweep"))
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--proposals", type=int, default=1_000_000)
    parser.add_argument("--refine-placement", action="store_true")
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    run = {
        "quality": lambda: quality(asked.seconds or 1.0, asked.refine_placement),
        "speed": speed,
        "sweep": lambda: sweep(asked.proposals),
    }
    rows = run[asked.what]()
    if asked.save:
        path = ROOT / "results" / f"annealing-{asked.what}.json"
        path.write_text(
            json.dumps({"command": f"python benchmarks/annealing.py {asked.what}", "rows": rows}, indent=1)
        )


if __name__ == "__main__":
    main()
