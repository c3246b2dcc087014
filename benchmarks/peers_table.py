"""Packers and placers of other systems against RoutePack: ``python benchmarks/peers_table.py``.

On the seven recorded windows, with one and two shards, every packer lays out the same samples under the same
cap, and the exact objective scores what comes out: under RoutePack's placement, so that the packing alone
differs, and under identity, which is what a trainer without RoutePack runs. A layout that breaks the cap,
leaves a cell empty or needs more rows is counted as such and never mended. Placers are scored with first fit
decreasing. RoutePack has one second on two threads. A third table packs harder lengths, without routing:
rows against the certified fewest, and broken caps.

Writes ``benchmarks/results/peers.json`` and the tables between the marks of ``docs/evaluation.md``. Install
``verl areal lightbinpack`` (``pip install --no-deps``) to run their own functions instead of ours.
"""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import routepack_opt as rp  # noqa: E402
from benchmarks.evaluation import fill  # noqa: E402
from benchmarks.peers import (  # noqa: E402
    areal,
    areal_kk,
    areal_package,
    eplb,
    ffd,
    light_bin_pack,
    nemo_rl,
    prime_rl,
    seq_len_balance,
    slime,
    snake,
    swaps,
    verl,
)
from routepack_opt.layout import Layout  # noqa: E402
from routepack_opt.scoring import demand_of, load_metrics, loads_of  # noqa: E402
from routepack_opt.solvers.seeding import fixed_row_ffd  # noqa: E402
from routepack_opt.suite.lengths import draw_lengths  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "peers.json"
STAGES = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))
OWN = "own implementation"
FAMILIES, SEEDS = ("gsm8k", "lognormal", "grpo", "bimodal", "half"), 4
KEYS = ("joint", "attention", "ep_peak_sum")


def packers():
    """Name, what runs, and the packer."""
    return [
        ("AReaL, first fit", areal_kk.origin(), _areal_first_fit),
        ("AReaL, Karmarkar-Karp", areal_kk.origin(), areal_kk.pack),
        ("verl, before its cap was strict", verl.origin(), verl.pack),
        ("verl, strict cap", verl.origin(), verl.pack_strict),
        ("slime", OWN, slime.pack),
        ("NeMo RL, FFD with striping", OWN, ffd.pack),
        ("NeMo RL, MFFD with striping", OWN, nemo_rl.pack),
        ("prime-rl", OWN, prime_rl.pack),
        ("seq-len-balance, BFD", OWN, seq_len_balance.pack),
        ("lightbinpack, grouped BFD", light_bin_pack.origin(), light_bin_pack.pack),
    ]


PLACERS = [
    ("identity", OWN, lambda loads, ranks: np.tile(np.arange(loads.shape[1]), (loads.shape[0], 1))),
    ("EPLB, no replicas", OWN, eplb.place),
    ("snake deal", OWN, snake.place),
    ("local swaps", OWN, swaps.place),
]


def _areal_first_fit(lengths, capacity, dp):
    if areal_package.load() is None:
        return areal.pack(lengths, capacity, dp)
    return areal_package.pack("ffd_allocate", lengths, capacity, dp)


def judge(problem, cells):
    """Return the layout where one can be scored, and what is wrong with it or None."""
    if cells is None:
        return None, "no layout"
    if any(len(row) != problem.topology.dp or not all(row) for row in cells):
        return None, "cells missing"
    try:
        layout = Layout.from_cells(cells, size=problem.window.size)
    except rp.errors.InputError as error:
        return None, f"not every sample once ({error})"
    broken = layout.broken_rule(problem)
    return layout, None if broken is None else f"expected {broken[0]}, found {broken[1]}"


def measured(problem, placement, layout):
    """Metrics of a layout, whether it keeps the cap or not."""
    return load_metrics(problem, placement, loads_of(problem, demand_of(problem, placement), layout))


def measure(problem, window):
    """Every peer on one window."""
    plan = rp.plan(problem, deadline=1.0, threads=2, baselines=False)
    placed, rows = plan.placement, plan.layout.rows
    identity = rp.Placement.identity(placed.num_layers, placed.num_experts, placed.ranks)
    best = measured(problem, placed, plan.layout)
    base = {"window": window, "shards": problem.topology.num_shards}
    result = [{**base, "kind": "plan", "peer": "RoutePack", "rows": rows, **best}]
    for name, origin, pack in packers():
        cells = pack(problem.window.lengths, problem.capacity, problem.topology.dp)
        layout, broken = judge(problem, cells)
        row = {**base, "kind": "packer", "peer": name, "origin": origin, "broken": broken}
        row["rows"] = None if cells is None else len(cells)
        row["more_rows"] = None if cells is None else len(cells) - rows
        for under, placement in (("", placed), ("_identity", identity)):
            found = None if layout is None else measured(problem, placement, layout)
            row |= {f"{key}{under}": None if found is None else found[key] / best[key] for key in KEYS}
        result.append(row)
    first_fit = Layout.from_items(problem, fixed_row_ffd(problem, rows), rows)
    for name, origin, place in PLACERS:
        order = place(problem.window.loads, problem.topology.ep)
        found = measured(problem, rp.Placement.from_expert_of_slot(order, problem.topology.ep), first_fit)
        row = {**base, "kind": "placer", "peer": name, "origin": origin, "cv_global": found["cv_global"]}
        result.append(row | {key: found[key] / best[key] for key in KEYS})
    reorder = measured(problem, placed, first_fit)
    row = {**base, "kind": "placer", "peer": "RoutePack's placement", "origin": ""}
    result.append(row | {"cv_global": reorder["cv_global"]} | {key: reorder[key] / best[key] for key in KEYS})
    return result


def measure_lengths(family, seed):
    """Rows and broken rules of every packer on lengths alone, 512 samples on eight slots of 8,192 tokens."""
    window = rp.Window.from_lengths(draw_lengths(family, 512, 8192, np.random.SeedSequence(seed)))
    problem = rp.Problem(window, rp.Topology(8), 8192)
    found = rp.certify_rows(problem, time_limit=5.0)
    for name, origin, pack in packers():
        cells = pack(window.lengths, 8192, 8)
        _, broken = judge(problem, cells)
        row = {"window": family, "seed": seed, "kind": "lengths", "peer": name, "origin": origin}
        row |= {"broken": broken, "rows_needed": found.rows, "rows_status": found.status}
        yield row | {"more_rows": None if cells is None else len(cells) - found.rows}


def harder(groups):
    """Extra rows and broken rules by family of lengths."""
    body = []
    for (kind, name), found in groups.items():
        if kind != "lengths":
            continue
        line = [name]
        for family in FAMILIES:
            rows = [row for row in found if row["window"] == family]
            kept = [row["more_rows"] for row in rows if row["broken"] is None]
            broken = len(rows) - len(kept)
            text = f"{np.mean(kept):+.2f}" if kept else "-"
            line.append(text + (f", {broken} of {len(rows)} broken" if broken else ""))
        body.append(line)
    return grid(["packer", *FAMILIES], body)


def mean(rows, key, digits=3):
    """Mean of a column over the rows that have it."""
    values = [row[key] for row in rows if row[key] is not None]
    return f"{np.mean(values):.{digits}f}" if values else "-"


def tables(rows):
    """Both tables as Markdown, by name."""
    groups = {}
    for row in rows:
        groups.setdefault((row["kind"], row["peer"]), []).append(row)
    own = groups["plan", "RoutePack"]
    head = ["packer", "runs", "rows", "needs more rows", "breaks a rule"]
    head += ["joint", "attention", "EP peak sum", "joint, identity placement"]
    packing = [
        ["RoutePack", "", mean(own, "rows", 2), f"0 of {len(own)}", f"0 of {len(own)}", *["1"] * 3, "-"]
    ]
    placing = []
    for (kind, name), found in groups.items():
        if kind == "packer":
            more = sum((row["more_rows"] or 0) > 0 for row in found)
            broken = sum(row["broken"] is not None for row in found)
            counts = [f"{more} of {len(found)}", f"{broken} of {len(found)}"]
            ratios = [mean(found, key) for key in (*KEYS, "joint_identity")]
            packing.append([name, found[0]["origin"], mean(found, "rows", 2), *counts, *ratios])
        elif kind == "placer":
            ratios = [mean(found, "cv_global", 4), *(mean(found, key) for key in KEYS)]
            placing.append([name, found[0]["origin"], *ratios])
    placers = ["placer", "runs", "global CV", "joint", "attention", "EP peak sum"]
    found = {"packers": grid(head, packing), "placers": grid(placers, placing)}
    return found | {"harder": harder(groups)}


def grid(head, rows):
    """Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def main():
    """Measure, save, print and fill the page."""
    rp.warm_up()
    rows = []
    for path in sorted((ROOT / "instances" / "gsm8k-moe").glob("window-*.npz")):
        window = rp.Window.load(path)
        for shards in (1, 2):
            problem = rp.Problem(window, rp.Topology(8, 8, shards), 2048, STAGES)
            rows += measure(problem, path.stem)
            print(f"{path.stem}, {shards} shards", file=sys.stderr, flush=True)
    for family in FAMILIES:
        for seed in range(SEEDS):
            rows += measure_lengths(family, seed)
    text = {"command": "python benchmarks/peers_table.py", "rows": rows}
    RESULT.write_text(json.dumps(text, indent=1) + "\n")
    for name, table in tables(rows).items():
        print(f"\n{table}")
        fill(name, table)


if __name__ == "__main__":
    main()
