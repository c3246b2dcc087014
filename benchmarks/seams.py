"""What a plan changes against each trainer's own layout, and what is lost when the trainer sorts again.

Run ``python benchmarks/seams.py`` from the repository root; it writes `benchmarks/results/seams.json`. On the
shipped windows (D = 8, P = 8, C = 2048) every trainer's packer, in an own implementation, makes a layout; a
plan is made with it as `own=` under the rules of that trainer's adapter; then every slot's cells are put in
the order in which the trainer would sort them. The score is the busiest shard's time in percent above its
bound, all under the plan's placement; the default budget makes the numbers reproducible.
"""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import routepack_opt as rp  # noqa: E402
from benchmarks.peers import areal, ffd, kk, nemo_rl, slime  # noqa: E402
from routepack_opt.layout import Layout  # noqa: E402

CAPACITY, DP = 2048, 8
STAGES = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))
EQUAL = rp.LayoutRules(equal_samples_per_slot=True)


def largest_in_the_middle(cells, lengths):
    """Order a slot's cells as verl does: falling work, dealt to both sides of the middle."""
    work = [sum(24576 * int(lengths[i]) + int(lengths[i]) ** 2 for i in cell) for cell in cells]
    falling = sorted(range(len(cells)), key=lambda k: (-work[k], k))
    return falling[::2][::-1] + falling[1::2]


def by_first_sample(cells, lengths):
    """Order a slot's cells as AReaL does: by their smallest sample."""
    return sorted(range(len(cells)), key=lambda k: min(cells[k]))


def largest_first(cells, lengths):
    """Order a slot's cells as NeMo RL does with ``microbatch_order: largest_first``."""
    return sorted(range(len(cells)), key=lambda k: -sum(int(lengths[i]) for i in cells[k]))


#: Trainer: its packer, the rules of its adapter, and the order in which it sorts a rank's microbatches.
TRAINERS = {
    "verl": (kk.pack, EQUAL, largest_in_the_middle),
    "AReaL": (areal.pack, EQUAL, by_first_sample),
    "slime": (slime.pack, rp.LayoutRules(oversize="alone"), None),
    "NeMo RL": (nemo_rl.pack, rp.LayoutRules(), largest_first),
    "prime-rl": (ffd.pack, rp.LayoutRules(), None),
}


def sorted_again(layout, lengths, order):
    """Return the layout after every slot has sorted its cells by itself."""
    slots = list(zip(*layout.cells, strict=True))
    turned = [[cells[k] for k in order(cells, lengths)] for cells in slots]
    return Layout.from_cells([list(row) for row in zip(*turned, strict=True)])


def measure(window, pack, rules, order):
    """Return rows and percent above the bound of the own layout, the plan, and the plan sorted again."""
    cells = pack(window.lengths, CAPACITY, DP, rules)
    problem = rp.Problem(window, rp.Topology(DP, 8), CAPACITY, STAGES, rules)
    plan = rp.plan(problem, seed=0, own=cells)
    anyhow = rp.Problem(window, rp.Topology(DP, 8), CAPACITY, STAGES)  # scores what breaks a rule of dispatch

    def above(layout):
        primary = rp.score(anyhow, plan.placement, layout.cells).primary
        return round(100 * (primary - plan.bound) / plan.bound, 3)

    own = None if cells is None else Layout.from_cells(cells)
    return {
        "own_rows": None if own is None else own.rows,
        "own_above": None if own is None else above(own),
        "rows": plan.rows.rows,
        "plan_above": above(plan.layout),
        "sorted_above": None if order is None else above(sorted_again(plan.layout, window.lengths, order)),
    }


def main():
    """Measure every trainer on every window, print means and write all."""
    windows = sorted((ROOT / "instances" / "gsm8k-moe").glob("window-*.npz"))
    results = {}
    for name, (pack, rules, order) in TRAINERS.items():
        rows = [measure(rp.Window.load(path), pack, rules, order) for path in windows]
        results[name] = rows
        mean = {k: np.mean([r[k] for r in rows]) for k in rows[0] if rows[0][k] is not None}
        print(name, {k: round(float(v), 4) for k, v in mean.items()})
    out = ROOT / "benchmarks" / "results" / "seams.json"
    out.write_text(
        json.dumps({"command": "python benchmarks/seams.py", "trainers": results}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
