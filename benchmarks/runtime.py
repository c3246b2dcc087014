"""Measure the runtime: bytes moved, staging memory, time against a plain all_to_all_single of the same bytes.

Run ``python benchmarks/runtime.py`` from the repository root (torch needed). Four forked gloo ranks (EP2 x
two lanes) hold parameters whole, and masters and moments cut over the lanes like a distributed optimizer. The
placements come from the planner, each knowing the one before. All sides alternate in one run; only their
ratios mean anything on another machine. The second table: bytes that a drifting sequence of windows moves,
migration-aware or not. Writes ``benchmarks/results/runtime.json``.
"""

import json
import os
import statistics
import sys
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import numpy as np  # noqa: E402

from routepack_opt.placement import Placement  # noqa: E402
from routepack_opt.runtime.exchange import exchange_of  # noqa: E402
from routepack_opt.runtime.movement import LayerState, Mesh, TensorSpec, plan_movement  # noqa: E402
from routepack_opt.runtime.state import ExpertTensor, full_ranges  # noqa: E402
from routepack_opt.solvers.placing import place_loads  # noqa: E402
from routepack_opt.suite.generators import ling_window  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "runtime.json"
MESH = Mesh(ranks=2, lanes=2, slots_per_rank=8)
LAYERS, SIZE, ROUNDS = 3, 2_000_000, 13
BAR = 1.5


class Adapter:
    """Bf16 parameters on every lane; fp32 master and two moments cut as a gradient buffer cuts them."""

    def __init__(self, torch, lane):
        self.layers = range(LAYERS)
        share = MESH.slots_per_rank * SIZE // MESH.lanes
        self.held = np.zeros((MESH.lanes, MESH.slots_per_rank, 2), dtype=np.int64)
        for slot in range(MESH.slots_per_rank):
            for d in range(MESH.lanes):
                cut = np.clip([d * share, (d + 1) * share], slot * SIZE, (slot + 1) * SIZE) - slot * SIZE
                self.held[d, slot] = cut if cut[0] < cut[1] else (0, 0)
        self.state = [self._layer(torch, lane, layer) for layer in self.layers]

    def _layer(self, torch, lane, layer):
        whole = full_ranges(MESH.lanes, MESH.slots_per_rank, SIZE)
        values = torch.zeros((MESH.slots_per_rank, SIZE), dtype=torch.bfloat16)
        tensors = [ExpertTensor(TensorSpec(f"{layer}/weight", 2, SIZE, whole), tuple(values))]
        for kind in ("master", "exp_avg", "exp_avg_sq"):
            views = [torch.zeros(int(b - a)) if b > a else None for a, b in self.held[lane]]
            tensors.append(ExpertTensor(TensorSpec(f"{layer}/{kind}", 4, SIZE, self.held), tuple(views)))
        return tensors

    def check(self):
        """Nothing to check."""

    def synchronize(self):
        """Nothing to synchronize."""

    def shared(self):
        """Nothing is shared."""
        return b""

    def tensors(self, layer):
        """State of a layer."""
        return self.state[layer]


def rank_main(rank):
    """Alternate between moving and plainly exchanging the same bytes; return times, bytes and peaks."""
    import torch
    import torch.distributed as dist

    from routepack_opt.runtime.control import Control
    from routepack_opt.runtime.dispatch import LayerMap
    from routepack_opt.runtime.materialize import Materializer
    from tests.runtime.toy import groups

    mine = groups(MESH.ranks, MESH.lanes)
    _, _, me, lane = mine.place()
    adapter, budget = Adapter(torch, lane), 400 << 20
    slots = np.arange(MESH.slots)
    maps = {layer: LayerMap(slots, torch.device("cpu")) for layer in range(LAYERS)}
    mover = Materializer(adapter, maps, mine, Control(timeout=60), staging_bytes=budget)
    rng = np.random.default_rng(np.random.SeedSequence(0))
    old, times, moved = np.tile(slots, (LAYERS, 1)), {"move": [], "plain": [], "copied": []}, []
    for _ in range(ROUNDS):
        loads = rng.integers(1, 1000, (LAYERS, MESH.slots))
        found = place_loads(loads, MESH.ranks, method="lpt", previous=Placement(old, MESH.ranks))
        new = found.placement.slot_of_expert
        states = [LayerState(k, tuple(t.spec for t in adapter.tensors(k))) for k in range(LAYERS)]
        plan = plan_movement(old, new, states, MESH)
        sides = [exchange_of(t.pieces, states[t.layer].specs, MESH, me, lane) for t in plan.transfers]
        pairs = [
            (batch_in, batch_out, group)
            for side in sides
            for batch_in, batch_out, group in (
                (side.recv_ranks, side.send_ranks, mine.ranks),
                (side.recv_lanes, side.send_lanes, mine.lanes),
            )
        ]
        empty = partial(torch.ones, dtype=torch.uint8)
        buffers = [(empty(i.bytes), empty(o.bytes)) for i, o, _ in pairs]
        copies = [(empty(i.bytes), empty(o.bytes)) for i, o, _ in pairs]
        times["plain"].append(_timed(dist, _exchange, dist, pairs, buffers)[0])
        times["copied"].append(_timed(dist, _exchange, dist, pairs, buffers, copies)[0])
        seconds, report = _timed(dist, mover.materialize, new)
        times["move"].append(seconds)
        moved.append((report, _expert_bytes(old, new)))
        old = new
    return (
        times,
        [(r.bytes_across_ranks, r.bytes_across_lanes, r.staging_peak, e) for r, e in moved],
        budget,
    )


def _timed(dist, action, *args):
    """Run an action between two barriers; return the seconds and its result."""
    dist.barrier()
    start = time.perf_counter()
    result = action(*args)
    dist.barrier()
    return time.perf_counter() - start, result


def _exchange(dist, pairs, buffers, copies=None):
    """Exchange the bytes plainly; with `copies`, put them into the buffer and take them out once."""
    for index, ((recv, send, group), (into, out)) in enumerate(zip(pairs, buffers, strict=True)):
        if copies:
            out.copy_(copies[index][1])
        dist.all_to_all_single(into, out, recv.splits.tolist(), send.splits.tolist(), group=group)
        if copies:
            copies[index][0].copy_(into)


def _expert_bytes(old, new):
    """State of the experts that change rank: parameters on every lane, masters and moments once."""
    crosses = (old // MESH.slots_per_rank != new // MESH.slots_per_rank).sum()
    return int(crosses) * SIZE * (2 * MESH.lanes + 12)


def measure_runtime():
    """Run the ranks; return one row of results."""
    from tests.runtime.launch import all_ok, run_ranks

    results = all_ok(run_ranks(MESH.ranks * MESH.lanes, rank_main, limit=300))
    times, moved, budget = results[0]
    per_layer = {side: 1e3 * statistics.median(values[1:]) / LAYERS for side, values in times.items()}
    ratio = {
        side: statistics.median(a / b for a, b in zip(times["move"][1:], times[side][1:], strict=True))
        for side in ("plain", "copied")
    }
    return {
        "layers": LAYERS,
        "bytes_across_ranks": [m[0] for m in moved],
        "moved_expert_state": [m[3] for m in moved],
        "bytes_across_lanes": [m[1] for m in moved],
        "staging_peak": max(m[2] for _, rows, _ in results for m in rows),
        "staging_budget": budget,
        "ms_per_layer": per_layer,
        "ratio": ratio,
    }


def measure_windows(windows=8, ranks=16, drift=0.15):
    """Bytes of expert state that a drifting sequence of windows moves, and the peaks it buys."""
    base = ling_window(0, samples=128).counts.sum(axis=0).astype(np.float64)
    layers, experts = base.shape
    expert_bytes = 3 * 2560 * 768 * (2 + 12)
    mesh = Mesh(ranks, 1, experts // ranks)
    spec = TensorSpec("expert", 1, expert_bytes, full_ranges(1, mesh.slots_per_rank, expert_bytes))
    states = [LayerState(layer, (spec,)) for layer in range(layers)]
    rng = np.random.default_rng(np.random.SeedSequence(1))
    loads = []
    for _ in range(windows):
        base = base * np.exp(drift * rng.standard_normal(base.shape))
        loads.append(np.rint(base).astype(np.int64))
    rows = {}
    for name, options in {
        "afresh (LPT)": None,
        "previous": {},
        "previous, at most 5 % of the experts": {"max_moves": layers * experts // 20},
    }.items():
        current, moved, peaks = Placement.identity(layers, experts, ranks), 0, []
        for window in loads:
            extra = {"method": "lpt"} if options is None else {"previous": current, **options}
            found = place_loads(window, ranks, **extra)
            moved += plan_movement(
                current.slot_of_expert, found.placement.slot_of_expert, states, mesh
            ).bytes_across_ranks()
            rank_loads = found.placement.loads(window)
            peaks.append(float((rank_loads.max(axis=1) / rank_loads.mean(axis=1)).mean()))
            current = found.placement
        rows[name] = {
            "gigabytes_per_window": moved / windows / 1e9,
            "mean_peak_over_mean": statistics.mean(peaks),
        }
    return rows


def main():
    """Print both tables and write the results."""
    windows = measure_windows()
    row = measure_runtime()
    exact = row["bytes_across_ranks"] == row["moved_expert_state"]
    ms, ratio = row["ms_per_layer"], row["ratio"]
    print(
        "| bytes across ranks | staging / budget | ms per layer | plain exchange | with copies in and out |"
    )
    print("|---|---|---|---|---|")
    print(
        f"| {'exactly the moved experts' if exact else 'NOT the moved experts'} "
        f"| {row['staging_peak'] / 2**20:.0f} / {row['staging_budget'] / 2**20:.0f} MiB | {ms['move']:.0f} "
        f"| {ms['plain']:.0f} (ratio {ratio['plain']:.2f}, bar {BAR}) "
        f"| {ms['copied']:.0f} (ratio {ratio['copied']:.2f}) |"
    )
    print(
        "\n| placement of eight drifting windows | GB moved per window | mean peak over mean |\n|---|---|---|"
    )
    for name, values in windows.items():
        print(f"| {name} | {values['gigabytes_per_window']:.1f} | {values['mean_peak_over_mean']:.3f} |")
    RESULT.write_text(json.dumps({"runtime": row, "windows": windows}, indent=1) + "\n")
    if not exact or row["staging_peak"] > row["staging_budget"] or ratio["plain"] > BAR:
        sys.exit(1)


if __name__ == "__main__":
    main()
