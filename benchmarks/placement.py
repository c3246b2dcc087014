"""Compare placements without replicas on recorded expert loads: busiest rank over its lower bound.

Run ``python benchmarks/placement.py`` from the repository root. Prints a Markdown table and writes
``benchmarks/results/placement.json``. Times are per layer, best of five, and only comparable within one run.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.peers import eplb, snake, swaps  # noqa: E402
from routepack_opt.bounds.placement import rank_peaks  # noqa: E402
from routepack_opt.placement import Placement  # noqa: E402
from routepack_opt.solvers.placing import place_loads  # noqa: E402

LOADS = ROOT / "instances" / "olmoe-loads" / "olmoe-loads.json"
RESULT = ROOT / "benchmarks" / "results" / "placement.json"
RANKS = (4, 8, 16, 32)


def methods(ranks):
    """Return name -> function from loads to a placement."""
    return {
        "identity": lambda loads: Placement.identity(*loads.shape, ranks),
        "snake": lambda loads: Placement.from_expert_of_slot(snake.place(loads, ranks), ranks),
        "local swaps": lambda loads: Placement.from_expert_of_slot(swaps.place(loads, ranks), ranks),
        "EPLB, no replicas": lambda loads: Placement.from_expert_of_slot(eplb.place(loads, ranks), ranks),
        "LPT (Algorithm 1)": lambda loads: place_loads(loads, ranks, method="lpt").placement,
        "refined": lambda loads: place_loads(loads, ranks).placement,
    }


def measure(loads, ranks, method):
    """Return the peaks of `method` and its best time per layer in milliseconds."""
    placement, seconds = method(loads), []
    for _ in range(5):
        start = time.perf_counter()
        method(loads)
        seconds.append(time.perf_counter() - start)
    return placement.loads(loads).max(axis=1), min(seconds) / len(loads) * 1e3


def run():
    """Measure every method at every rank count on the OLMoE layers."""
    table = json.loads(LOADS.read_text(encoding="utf-8"))["loads"]
    rows = [row for name, layers in table.items() if name.startswith("olmoe") for row in layers]
    loads = np.array(rows, dtype=np.int64)
    results = []
    for ranks in RANKS:
        bound, peaks = rank_peaks(loads, ranks), {}
        for name, method in methods(ranks).items():
            peaks[name], milliseconds = measure(loads, ranks, method)
            ratio = peaks[name] / bound
            results.append(
                {
                    "ranks": ranks,
                    "method": name,
                    "mean": round(float(ratio.mean()), 5),
                    "worst": round(float(ratio.max()), 5),
                    "bound_met": int((peaks[name] == bound).sum()),
                    "layers": len(loads),
                    "ms_per_layer": round(milliseconds, 3),
                }
            )
        assert (peaks["EPLB, no replicas"] == peaks["LPT (Algorithm 1)"]).all(), "LPT differs from EPLB"
        assert (peaks["refined"] <= peaks["LPT (Algorithm 1)"]).all(), "refinement is worse than LPT"
    return results


def markdown(results):
    """Return the results as a Markdown table, one line per method."""
    lines = ["| method | " + " | ".join(f"P = {p}" for p in RANKS) + " | ms per layer (P = 8) |"]
    lines.append("|---" * (len(RANKS) + 2) + "|")
    for name in methods(1):
        cells = {r["ranks"]: r for r in results if r["method"] == name}
        ratios = [f"{cells[p]['mean']:.4f} ({cells[p]['worst']:.4f})" for p in RANKS]
        lines.append(f"| {name} | " + " | ".join(ratios) + f" | {cells[8]['ms_per_layer']:.3f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    measured = run()
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    print(markdown(measured))
