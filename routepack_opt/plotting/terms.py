"""What a plan costs and how it fills: rows, rank loads and cells.

Guarantees: every function draws into the figure it is given and returns the hints of its elements, whose
identifiers name the row, shard, layer, rank or slot that they show.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray
from routepack_opt.plans import Plan
from routepack_opt.plotting.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    Hints,
    cell_hints,
    draw_heat,
    dress,
    held,
    unit_of,
)


def draw_rows(plan: Plan, figure: Any) -> Hints:
    """Draw what every row costs on every shard, dearest row first: attention and expert straggler stacked."""
    shot, unit = held(plan), unit_of(plan)
    parts = {"attention": shot.attention.sum(axis=0) / unit, "expert": shot.expert / unit}
    rows, shards = shot.expert.shape
    order = np.argsort(-shot.joint.max(axis=1), kind="stable")
    axis, hints, width = figure.subplots(), {}, 0.8 / shards
    for g in range(shards):
        at, below = np.arange(rows) - 0.4 + width * (g + 0.5), np.zeros(rows)
        for color, (name, values) in zip((BLUE, ORANGE), parts.items(), strict=True):
            high = values[order, g]
            label = f"{name} straggler" if g == 0 else None
            bars = axis.bar(at, high, width * 0.92, bottom=below, color=color, label=label)
            below = below + high
            for row, value, bar in zip(order, high, bars, strict=True):
                bar.set_gid(f"row-{row}-shard-{g}-{name}")
                shown = f"row {row}, shard {g}" if shards > 1 else f"row {row}"
                hints[bar.get_gid()] = [f"{shown}: {name} {value:.3f}"]
    step = -(-rows // 24)
    axis.set_xticks(np.arange(0, rows, step), [str(row) for row in order[::step]])
    shown = "row, dearest first" if shards == 1 else f"row, dearest first ({shards} shards side by side)"
    dress(axis, shown, "J, units of the objective")
    axis.set_ylim(top=1.18 * float(shot.joint.max()) / unit)
    axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    return hints


def draw_rank_loads(plan: Plan, figure: Any) -> Hints:
    """Draw the span of the rank loads of every layer over their mean, before and after the placement."""
    shot, axis = held(plan), figure.subplots()
    layers = np.arange(shot.loads_plan.shape[0])
    for loads, color, label in (
        (shot.loads_identity, GREY, "identity"),
        (shot.loads_plan, GREEN, "placed"),
    ):
        over = over_mean(loads)
        (line,) = axis.plot(layers, over.max(axis=1), "o-", color=color, ms=4, label=f"{label}, busiest")
        line.set_gid(f"busiest-{label}")
        axis.fill_between(layers, over.min(axis=1), over.max(axis=1), color=color, alpha=0.15, lw=0)
    dress(axis, "MoE layer", "load of a rank / mean")
    axis.set_ylim(bottom=0)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.legend(frameon=False, fontsize=8)
    return {}


def draw_load_map(plan: Plan, figure: Any, which: str = "placed") -> Hints:
    """Draw the load of every rank at every layer over the layer's mean, for one placement.

    Parameters
    ----------
    plan : Plan
        Any plan with a snapshot.
    figure : Figure or SubFigure
        Where to draw.
    which : {"identity", "placed"}
        Experts where they were, or where the plan puts them. Both have the same colours.
    """
    shot = held(plan)
    loads = shot.loads_identity if which == "identity" else shot.loads_plan
    over = over_mean(loads)
    both = np.concatenate([over_mean(shot.loads_identity), over_mean(shot.loads_plan)])
    widest = float(np.abs(both - 1).max(initial=0)) or 1.0
    axis, name = figure.subplots(), f"loads-{which}"
    draw_heat(axis, (over - 1) / widest, name, [f"{value:.2f}" for value in over.flat])
    dress(axis, "EP rank", "MoE layer")
    ranks = loads.shape[1]
    hints = [
        f"layer {k // ranks}, rank {k % ranks}: {value:,} assignments, {share:.3f} of the mean"
        for k, (value, share) in enumerate(zip(loads.flat, over.flat, strict=True))
    ]
    return cell_hints(name, hints)


def draw_load_maps(plan: Plan, figure: Any) -> Hints:
    """Draw both load maps, before above after, so that each has the whole width of a small screen."""
    hints: Hints = {}
    names = {"identity": "before: experts where they were", "placed": "after: as placed"}
    for part, (which, name) in zip(figure.subfigures(2, 1), names.items(), strict=True):
        part.suptitle(f"{name}, load / mean", fontsize=8)
        hints |= draw_load_map(plan, part, which)
    return hints


def load_maps_shape(plan: Plan) -> float:
    """Return height over width of both load maps: room for the number of every layer, within bounds."""
    return min(0.25 + 0.075 * len(held(plan).loads_plan), 1.7)


def draw_fill(plan: Plan, figure: Any) -> Hints:
    """Draw the tokens of every cell as part of the capacity."""
    shot, axis = held(plan), figure.subplots()
    fill = shot.cell_tokens / shot.capacity
    draw_heat(axis, -0.85 * fill, "fill", [f"{100 * value:.0f}" for value in fill.flat])
    dress(axis, "DP slot", "row")
    slots = fill.shape[1]
    hints = [
        f"row {k // slots}, slot {k % slots}: {tokens:,} of {shot.capacity:,} tokens"
        for k, tokens in enumerate(shot.cell_tokens.flat)
    ]
    return cell_hints("fill", hints)


def over_mean(loads: IntArray) -> Any:
    """Divide the loads of every layer by their mean; a layer without loads stays 0."""
    return loads / np.maximum(loads.mean(axis=1, keepdims=True), 1e-9)
