"""Statistics of recorded windows beside those of generated ones.

Run ``python benchmarks/calibration.py`` from the repository root. Writes
``benchmarks/results/calibration.json``.
"""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from routepack_opt.model import MoEModel  # noqa: E402
from routepack_opt.suite import generators  # noqa: E402
from routepack_opt.suite.lengths import lognormal_lengths  # noqa: E402
from routepack_opt.suite.statistics import routing_statistics  # noqa: E402
from routepack_opt.window import Window  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "calibration.json"
RANKS = 8


def main():
    """Measure and write."""
    model = MoEModel(8, 32, 4)
    recorded = [Window.load(path) for path in sorted((ROOT / "instances" / "gsm8k-moe").glob("*.npz"))]
    alike = [
        generators.draw_window(lognormal_lengths(178, 0.37, 512, 502, seed), model, seed) for seed in range(7)
    ]
    result = {"recorded": spread(recorded), "generated alike": spread(alike)}
    for name in ("ling", "deepseek", "qwen"):
        result[f"{name}_window(0)"] = spread([getattr(generators, f"{name}_window")(0)])
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


def spread(windows):
    """Least and largest, over windows, of the mean over layers."""
    each = [routing_statistics(window, RANKS) for window in windows]
    means = {name: [float(np.mean(stats[name])) for stats in each] for name in each[0]}
    return {name: [round(min(values), 3), round(max(values), 3)] for name, values in means.items()}


if __name__ == "__main__":
    main()
