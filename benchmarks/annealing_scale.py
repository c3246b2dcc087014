"""The search at the limit of the machine: large windows, first plans, growth of cost, more workers.

    python benchmarks/annealing_scale.py large     N = 16,384, 61 layers, 256 experts, 64 ranks, 60 seconds
    python benchmarks/annealing_scale.py ling      Ling-like windows: one second against a long run
    python benchmarks/annealing_scale.py chain     against single-chain simulated annealing, equal CPU time
    python benchmarks/annealing_scale.py first     time to the first plan, N = 512 and N = 16,384
    python benchmarks/annealing_scale.py growth    time per proposal against N, L, P, R, G
    python benchmarks/annealing_scale.py workers   quality against workers, simulated by equal proposals

Results are printed and, with --save, written to benchmarks/results/annealing-NAME.json. `chain` and `growth`
take the CPU time of their thread, so that neighbours on the machine disturb them little.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import routepack_opt as rp
from routepack_opt.solvers.annealing._kernels.chain import run_chain
from routepack_opt.solvers.annealing.instance import build_instance, new_state, to_kernel
from routepack_opt.solvers.annealing.parameters import AnnealingParameters, Mix
from routepack_opt.solvers.annealing.population import anneal
from routepack_opt.suite import generators

ROOT = Path(__file__).resolve().parents[1]
STAGES = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))
PLAIN = Mix(near=0, any=924, move=100, pair=0)
Rows = list[dict[str, Any]]


def real_window(k: int) -> rp.Window:
    """Return a recorded window."""
    return rp.Window.load(ROOT / "instances" / "gsm8k-moe" / f"window-{k:02d}.npz")


def large_problem(samples: int = 16_384) -> rp.Problem:
    """Draw lognormal lengths and routing of a DeepSeek-V3-like model with 61 MoE layers, C = 32,768."""
    model = rp.MoEModel(layers=61, experts=256, top_k=8)
    lengths = generators.lognormal_lengths(1200, 0.6, samples, 8192, np.random.SeedSequence(0))
    window = generators.draw_window(lengths, model, 0, group=8, routing=generators.LARGE_MODEL)
    return rp.Problem(window, rp.Topology(64, 64), 32_768, STAGES)


def large(seconds: float, windows: int) -> Rows:
    """Plan 16,384 samples on 64 slots and 64 ranks with two threads."""
    rp.warm_up()
    problem = large_problem()
    start = time.perf_counter()
    first = rp.plan(problem, method="seed", baselines=False)
    ready = time.perf_counter() - start
    plan = rp.plan(problem, deadline=seconds, threads=2, baselines=False)
    best = np.array([level["incumbent"][0] for level in plan.trace])
    better = np.flatnonzero(np.diff(best) < 0) + 1
    row = {
        "first_plan_seconds": ready,
        "rows": plan.rows.rows,
        "status": plan.rows.status,
        "gap_seed_%": 100 * first.gap,
        "gap_%": 100 * plan.gap,
        "gap_any_%": 100 * plan.gap_any,
        "seconds": plan.provenance["seconds"],
        "million_proposals": plan.provenance["proposals"] / 1e6,
        "levels": len(best),
        "last_level_that_improved": int(better[-1]) + 1 if better.size else 0,
        "incumbent_by_level": [[round(x["seconds"], 2), x["incumbent"][0]] for x in plan.trace],
        "energy_by_level": [round(x["energy_mean"], 6) for x in plan.trace],  # moves in every phase
        "peak_GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20,
    }
    return [row]


def ling(seconds: float, windows: int) -> Rows:
    """Compare one second with the best of a long run on Ling-like windows, one and two shards."""
    rp.warm_up()
    rows = []
    for k in range(windows):
        window = generators.ling_window(k)
        for shards in (1, 2):
            problem = rp.Problem(window, rp.Topology(8, 8, shards), 8192, STAGES)
            short = rp.plan(problem, deadline=1.0, threads=2, baselines=False)
            long = rp.plan(problem, deadline=seconds, threads=2, baselines=False)
            best = min(short.score.primary, long.score.primary)
            row = {"window": k, "shards": shards, "rows": short.rows.rows, "long_seconds": seconds}
            row["above_long_run_%"] = 100 * (short.score.primary / best - 1)
            row |= {"gap_any_%": 100 * short.gap_any, "gap_any_long_%": 100 * long.gap_any}
            print(row, flush=True)
            rows.append(row)
    return rows


def chain(seconds: float, windows: int) -> Rows:
    """Compare with one chain under the same kernels, plain moves and ours; equal CPU time, one thread."""
    rp.warm_up()
    makers = [lambda k=k: (real_window(k), 2048) for k in range(7)]
    makers += [lambda f=f: (f(0), 8192) for f in (generators.ling_window, generators.deepseek_window)]
    makers.append(lambda: (generators.qwen_window(0), 8192))
    shapes = {"ours": None, "plain": PLAIN, "our_moves": Mix()}
    rows = []
    for number, make in enumerate(makers[:windows]):
        window, capacity = make()
        problem = rp.Problem(window, rp.Topology(8, 8), capacity, STAGES)
        seed = rp.plan(problem, method="seed", baselines=False)
        demand = seed.placement.demand(problem.item_counts)
        cells = [seed.layout.cell_of_item(problem)]
        row: dict[str, Any] = {"window": number, "samples": problem.items.size, "cpu_seconds": seconds}
        for name, mix in shapes.items():
            one = AnnealingParameters(population=1, blocks_first=False, mix=mix or Mix())
            shape = one if mix is not None else AnnealingParameters.for_items(problem.items.size)
            until = time.thread_time() + seconds
            clock: dict[str, Any] = {"deadline": until, "clock": time.thread_time}
            found = anneal(problem, demand, cells, seed.rows.rows, parameters=shape, **clock)
            row[f"gap_{name}_%"] = 100 * (found.score[0] / seed.bound - 1)
        print(row, flush=True)
        rows.append(row)
    for name in ("plain", "our_moves"):
        ahead = [row[f"gap_{name}_%"] - row["gap_ours_%"] for row in rows]
        print(f"{name}: behind on {sum(x > 0 for x in ahead)} of {len(rows)}, least {min(ahead):.4f} points")
    return rows


def first(seconds: float, windows: int) -> Rows:
    """Measure the time to the first plan, kernels warm."""
    rp.warm_up()
    real = rp.Problem(real_window(0), rp.Topology(8, 8), 2048, STAGES)
    rows = []
    for name, problem, times in (("N=512", real, 20), ("N=16,384", large_problem(), 3)):
        taken = []
        for _ in range(times + 1):  # the first one fills what a problem computes once
            start, ends = time.perf_counter(), {}

            def told(stage: str, _: Any, start: float = start, ends: dict[str, float] = ends) -> None:
                ends[stage] = 1e3 * (time.perf_counter() - start)

            rp.plan(problem, method="seed", baselines=False, progress=told)
            taken.append(time.perf_counter() - start)
        row = {"window": name, "cold_ms": 1e3 * taken[0], "median_ms": 1e3 * float(np.median(taken[1:]))}
        rows.append(row | {"worst_ms": 1e3 * max(taken[1:]), "last_run_ms_at_end_of": ends})
        print(rows[-1], flush=True)
    return rows


BASE = {"N": 512, "L": 20, "P": 8, "R": 4, "G": 1}
STEPS = {
    "N": (64, 512, 4096, 16_384),
    "L": (1, 8, 32, 61, 96),
    "P": (2, 8, 32, 64, 128),
    "R": (1, 2, 8, 32),
    "G": (1, 2, 4, 8),
}


def growth(seconds: float, windows: int) -> Rows:
    """Time evaluated swaps while one size grows: real lengths, generated routing, eight slots."""
    rp.warm_up()
    archive = np.load(ROOT / "instances" / "lengths" / "azure-conv.npz")
    real = archive["prompt_tokens"].astype(np.int64) + archive["response_tokens"]
    real = np.clip(np.random.default_rng(0).permutation(real), 1, 8192)
    rows = []
    for name, values in STEPS.items():
        for value in values:
            sizes = BASE | {name: value}
            row: dict[str, Any] = {"grows": name, **sizes}
            row |= {f"ns_{where}": 1e9 * spent for where, spent in swap_seconds(real, sizes).items()}
            row["formula"] = sizes["R"] * sizes["G"] * sizes["L"] * sizes["P"] + sizes["R"] * 8
            print(row, flush=True)
            rows.append(row)
    return rows


TEMPERATURES = {"hot": 1.0, "search": 1e-5}  # all terms of all swaps; most are rejected before the last term


def swap_seconds(real: Any, sizes: dict[str, int], proposals: int = 200_000) -> dict[str, float]:
    """Return seconds of CPU per evaluated swap by temperature, the least of three runs."""
    size, layers, ranks, rows = sizes["N"], sizes["L"], sizes["P"], sizes["R"]
    model = rp.MoEModel(layers=layers, experts=4 * ranks, top_k=4)
    window = generators.draw_window(real[:size], model, 0)
    cell = np.arange(size) % (rows * 8)
    capacity = int(np.bincount(cell, window.lengths).max() * 1.2) + 8192
    problem = rp.Problem(window, rp.Topology(8, ranks, sizes["G"]), capacity, STAGES)
    demand = rp.Placement.identity(layers, 4 * ranks, ranks).demand(problem.item_counts)
    instance = build_instance(problem, demand)
    state = new_state(instance, rows, to_kernel(problem, cell), np.arange(1, 5, dtype=np.uint64))
    moves, counted = Mix(near=0, any=1024, move=0, pair=0).thresholds(), np.zeros(2, np.int64)
    best = state.cell.copy(), state.score.copy()
    found = {}
    for name, temperature in TEMPERATURES.items():
        taken = []
        for _ in range(3):
            counted[:] = 0
            start = time.thread_time()
            run_chain(instance, state, *best, temperature, proposals, moves, counted)
            taken.append((time.thread_time() - start) / max(int(counted[0]), 1))
        found[name] = min(taken)
    return found


def workers(seconds: float, windows: int) -> Rows:
    """Give W workers W times the proposals of one, and as many members, at least two; the plan is theirs."""
    rp.warm_up()
    each = int(1e6 * seconds)
    rows = []
    for count in (1, 2, 4, 8):
        gaps = []
        for k in range(windows):
            problem = rp.Problem(real_window(k), rp.Topology(8, 8, 2), 2048, STAGES)
            shape = AnnealingParameters(population=max(2, count))
            budget = rp.Budget(count * each)
            gaps.append(100 * rp.plan(problem, budget=budget, parameters=shape, baselines=False).gap)
        row = {"workers": count, "proposals_each": each, "windows": windows}
        rows.append(row | {"mean_gap_%": float(np.mean(gaps)), "worst_gap_%": max(gaps)})
        print(rows[-1], flush=True)
    return rows


# Section, seconds, windows.
SECTIONS = {
    "large": (large, 60.0, 1),
    "ling": (ling, 120.0, 5),
    "chain": (chain, 1.0, 10),
    "first": (first, 0.0, 2),
    "growth": (growth, 0.0, 1),
    "workers": (workers, 1.0, 7),
}


def main() -> None:
    """Run what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=tuple(SECTIONS))
    parser.add_argument("--seconds", type=float, help="search time; of `workers`, millions of proposals each")
    parser.add_argument("--windows", type=int)
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    run, seconds, windows = SECTIONS[asked.what]
    given = {"seconds": asked.seconds or seconds, "windows": asked.windows or windows}
    rows = run(**given)
    print(json.dumps(rows[-1]))
    if asked.save:
        words = [
            f" --{k} {v:g}" for k, v in given.items() if v != {"seconds": seconds, "windows": windows}[k]
        ]
        command = f"python benchmarks/annealing_scale.py {asked.what}{''.join(words)}"
        path = ROOT / "benchmarks" / "results" / f"annealing-{asked.what}.json"
        path.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
