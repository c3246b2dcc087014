"""Draw docs/images/growth.png from results/annealing-growth.json: time per swap against Eq. 17.

Run ``python benchmarks/growth_figure.py`` from the repository root after
``python benchmarks/annealing_scale.py growth --save``. The formula is drawn through the middle point.
"""

import json
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
NAMES = {"N": "samples", "L": "layers", "P": "ranks", "R": "rows", "G": "shards"}


def main():
    """Draw one panel per size."""
    rows = json.loads((ROOT / "benchmarks" / "results" / "annealing-growth.json").read_text())["rows"]
    figure = Figure(figsize=(12, 2.8), layout="constrained")
    panels = figure.subplots(1, len(NAMES), sharey=True)
    for panel, (name, word) in zip(panels, NAMES.items(), strict=True):
        mine = [row for row in rows if row["grows"] == name]
        sizes, middle = [row[name] for row in mine], mine[1]
        scale = middle["ns_hot"] / middle["formula"]
        panel.plot(sizes, [row["ns_hot"] for row in mine], "o-", label="all terms of every swap")
        panel.plot(sizes, [row["ns_search"] for row in mine], "s-", label="at T = 1e-5")
        panel.plot(
            sizes, [scale * row["formula"] for row in mine], ":", color="gray", label="RGLP + RD, Eq. 17"
        )
        panel.set_xscale("log", base=2)
        panel.set(yscale="log", xlabel=f"{word} {name}")
        panel.grid(alpha=0.3)
    panels[0].set_ylabel("ns per evaluated swap")
    panels[0].legend(fontsize=7)
    figure.savefig(ROOT / "docs" / "images" / "growth.png", dpi=110)


if __name__ == "__main__":
    main()
