"""Build the suite ``placement``: real expert loads by ranks, with the least busiest rank or a bound on it.

Usage: ``python instances/build_placement.py [--seconds 10]``

Writes one line per (loads, layer, ranks) to ``instances/placement/results.jsonl`` at once, and goes on where
an earlier run stopped. Loads are those of OLMoE, Mixtral and the recorded GSM8K windows; a line names its
source, so the loads are not stored twice.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from datetime import date
from importlib.metadata import version
from pathlib import Path

import numpy as np

from routepack_opt.solvers.exact.placing import place_layer_exactly
from routepack_opt.solvers.placing import place_loads
from routepack_opt.window import Window

HERE = Path(__file__).resolve().parent
OUTPUT = HERE / "placement" / "results.jsonl"
RANKS = (2, 4, 8, 16, 32)


def main() -> None:
    """Solve what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    OUTPUT.parent.mkdir(exist_ok=True)
    lines = OUTPUT.read_text().splitlines() if OUTPUT.exists() else []
    done = {(row["source"], row["layer"], row["ranks"]) for row in map(json.loads, lines)}
    for source, layer, loads in every_load():
        for ranks in RANKS:
            if loads.size % ranks or loads.size < 2 * ranks or (source, layer, ranks) in done:
                continue
            row = {"source": source, "layer": layer, "ranks": ranks, **solve(loads, ranks, seconds)}
            with OUTPUT.open("a") as file:
                file.write(json.dumps(row, sort_keys=True) + "\n")
            print(row, flush=True)


def every_load() -> Iterator[tuple[str, int, np.ndarray]]:
    """Yield source, layer and loads [experts]."""
    data = json.loads((HERE / "olmoe-loads" / "olmoe-loads.json").read_text())
    for name in sorted(data["loads"]):
        for layer, loads in zip(data["layers"], data["loads"][name], strict=True):
            yield name, layer, np.array(loads, np.int64)
    for path in sorted((HERE / "gsm8k-moe").glob("window-*.npz")):
        for layer, loads in enumerate(Window.load(path).loads):
            yield f"gsm8k-moe/{path.stem}", layer, loads


def solve(loads: np.ndarray, ranks: int, seconds: float) -> dict[str, object]:
    """Peaks of Algorithm 1, of its refinement and of CP-SAT, with the bound and who proved it."""
    peaks = {
        method: int(place_loads(loads[None], ranks, method=method).rank_loads.max())
        for method in ("lpt", "refined")
    }
    result = place_layer_exactly(loads, ranks, time_limit=seconds)
    by = f"cpsat (ortools {version('ortools')})"
    return {
        "experts": int(loads.size),
        **peaks,
        "best": result.peak,
        "bound": result.bound,
        "optimal": result.optimal,
        "owner": result.owner.tolist(),
        "by": by,
        "date": date.today().isoformat(),
    }


if __name__ == "__main__":
    main()
