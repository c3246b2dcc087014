"""Assignments that leave their node, as the search left the cells and as they are seated.

Run ``python benchmarks/crossings.py`` from the repository root. Writes ``benchmarks/results/crossings.jsonl``
and the table of ``docs/objective.md``.
"""

import json
import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from routepack_opt.crossings import count_crossings  # noqa: E402
from routepack_opt.planner import Budget, plan, warm_up  # noqa: E402
from routepack_opt.problem import AttentionStage, Problem, Topology  # noqa: E402
from routepack_opt.solvers.seating import seat_cells  # noqa: E402
from routepack_opt.suite.generators import deepseek_window, ling_window  # noqa: E402
from routepack_opt.window import Window  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "crossings.jsonl"
PAGE = ROOT / "docs" / "objective.md"
STAGES = (AttentionStage("kda", 6.0), AttentionStage("mla", 2.0, 2.0))
PROPOSALS = 200_000


def cases():
    """Yield name, window, capacity and topology."""
    for k in range(7):
        window = Window.load(ROOT / "instances" / "gsm8k-moe" / f"window-{k:02d}.npz")
        for shards in (1, 2):
            yield f"gsm8k-moe/window-{k:02d}", window, 2048, Topology(8, 8, shards, 4)
    for name, make in (("ling_window(0)", ling_window), ("deepseek_window(0)", deepseek_window)):
        window = make(0)
        for dp, ranks in ((8, 32), (32, 32)):
            yield name, window, 8192, Topology(dp, ranks, 1, 8)


def main():
    """Measure, write and print."""
    warm_up()
    rows = [measure(*case) for case in cases()]
    RESULT.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pattern = r"(<!-- table crossings -->\n.*?\n.*?\n).*?(<!-- end -->)"
    text = "".join(line(row) + "\n" for row in rows)
    PAGE.write_text(re.sub(pattern, lambda m: m[1] + text + m[2], PAGE.read_text(), flags=re.DOTALL))


def measure(name, window, capacity, topology):
    """Plan a window, and seat its cells once more to see what that takes."""
    problem = Problem(window, topology, capacity, STAGES)
    made = plan(problem, budget=Budget(PROPOSALS), baselines=False).validate(problem)
    demand = made.placement.demand(problem.item_counts)
    started = time.process_time()
    again = seat_cells(problem, demand, made.layout)
    seconds = time.process_time() - started
    found = made.crossings
    assert count_crossings(problem, demand, again) == found.after
    return {
        "window": name,
        "slots": topology.dp,
        "shards": topology.num_shards,
        "ranks": topology.ep,
        "nodes": topology.ep // topology.ranks_per_node,
        "rows": made.layout.rows,
        "before": found.before,
        "after": found.after,
        "total": found.total,
        "saved": round(found.saved, 6),
        "cpu_seconds": round(seconds, 4),
    }


def line(row):
    """Return a row of the table."""
    slots = f"{row['slots']} in {row['shards']} shard" + "s" * (row["shards"] > 1)
    shares = [f"{100 * row[key] / row['total']:.2f} %" for key in ("before", "after")]
    texts = [
        row["window"],
        slots,
        row["ranks"],
        row["nodes"],
        row["rows"],
        *shares,
        f"{100 * row['saved']:.2f} %",
    ]
    return "| " + " | ".join(map(str, texts)) + " |"


if __name__ == "__main__":
    main()
