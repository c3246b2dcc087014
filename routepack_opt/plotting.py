"""Figures of plans (matplotlib, extra ``report``).

Guarantees: a figure draws the numbers of the plan's snapshot and trace and nothing else; no global state of
the plotting library is touched and no window is opened.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from routepack_opt.errors import InputError
from routepack_opt.plans import Plan, Snapshot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY, _GREEN = "#3b6fb6", "#e0873a", "#8a8f98", "#3f9c6d"


def plot_plan(plan: Plan) -> Figure:
    """Draw a plan on one page: rows by cost, rank loads before and after, token fill, and the search.

    Parameters
    ----------
    plan : Plan
        Any plan with a snapshot.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``figure.savefig(path)``.

    Raises
    ------
    InputError
        When the plan has no layout.
    """
    figure = _figure(11.0, 6.4)
    axes = figure.subplots(2, 2)
    for draw, axis in zip((draw_rows, draw_rank_loads, draw_fill, draw_search), axes.flat, strict=True):
        draw(plan, axis)
    figure.suptitle(_title(plan), x=0.01, ha="left", fontsize=12)
    return figure


def save_plot(plan: Plan, path: str | os.PathLike[str], which: str = "plan") -> None:
    """Write one figure to a PNG, SVG or PDF file.

    Parameters
    ----------
    plan : Plan
        Any plan with a snapshot.
    path : path-like
        Its suffix chooses the format.
    which : {"plan", "rows", "ranks", "fill", "search"}
        The whole page, or one of its parts.

    Raises
    ------
    InputError
        For another name.
    """
    parts = {"rows": draw_rows, "ranks": draw_rank_loads, "fill": draw_fill, "search": draw_search}
    if which == "plan":
        figure = plot_plan(plan)
    elif which in parts:
        figure = _figure(6.4, 4.0)
        parts[which](plan, figure.subplots())
    else:
        raise InputError("plan, " + ", ".join(parts), repr(which), "which")
    figure.savefig(os.fspath(path), dpi=144)


def draw_rows(plan: Plan, axis: Axes) -> None:
    """Draw what every row costs on every shard: attention straggler and expert straggler stacked."""
    shot, unit = _held(plan), _unit(plan)
    rows, shards = shot.expert.shape
    width = 0.8 / shards
    attention, expert = shot.attention.sum(axis=0) / unit, shot.expert / unit
    for g in range(shards):
        at = np.arange(rows) - 0.4 + width * (g + 0.5)
        axis.bar(
            at, attention[:, g], width * 0.94, color=_BLUE, label="attention straggler" if g == 0 else None
        )
        label = "expert straggler" if g == 0 else None
        axis.bar(at, expert[:, g], width * 0.94, bottom=attention[:, g], color=_ORANGE, label=label)
    shown = "row" if shards == 1 else f"row ({shards} shards side by side)"
    _dress(axis, "Cost of every row", shown, "J, units of Eq. 15")
    axis.set_ylim(top=1.18 * float((attention + expert).max()))
    axis.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)


def draw_rank_loads(plan: Plan, axis: Axes) -> None:
    """Draw the busiest rank of every layer over the mean, before and after the placement."""
    shot = _held(plan)
    layers = np.arange(shot.loads_plan.shape[0])
    for loads, color, label in (
        (shot.loads_identity, _GREY, "identity"),
        (shot.loads_plan, _GREEN, "placed"),
    ):
        mean = np.maximum(loads.mean(axis=1), 1)
        axis.plot(layers, loads.max(axis=1) / mean, "o-", color=color, ms=4, label=f"{label}, busiest")
        axis.fill_between(
            layers, loads.min(axis=1) / mean, loads.max(axis=1) / mean, color=color, alpha=0.15, lw=0
        )
    _dress(axis, "EP rank loads over the window, relative to the mean", "MoE layer", "load / mean")
    axis.set_ylim(bottom=0)
    axis.legend(frameon=False, fontsize=8)


def draw_fill(plan: Plan, axis: Axes) -> None:
    """Draw the tokens of every cell as part of the capacity."""
    shot = _held(plan)
    image = axis.imshow(shot.cell_tokens / shot.capacity, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    axis.figure.colorbar(image, ax=axis, fraction=0.046, pad=0.02)
    _dress(axis, f"Token fill of the cells (C = {shot.capacity:,})", "DP slot", "row")


def draw_search(plan: Plan, axis: Axes) -> None:
    """Draw the incumbent's gap to the bound over time, with the temperature."""
    if not plan.trace or not plan.bound:
        axis.text(0.5, 0.5, "no search", ha="center", va="center", transform=axis.transAxes)
        axis.set_axis_off()
        return
    seconds = [level["seconds"] for level in plan.trace]
    gaps = [100 * (level["incumbent"][0] / plan.bound - 1) for level in plan.trace]
    axis.step(seconds, gaps, where="post", color=_BLUE)
    axis.set_ylim(bottom=0)
    _dress(axis, "Search: best plan above the proven bound", "seconds", "gap, %")
    twin = axis.twinx()
    twin.plot(seconds, [level["temperature"] for level in plan.trace], color=_GREY, lw=1, ls=":")
    twin.set_yscale("log")
    twin.set_ylabel("temperature", color=_GREY, fontsize=8)
    twin.tick_params(labelsize=7, colors=_GREY)


def _figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _dress(axis: Any, title: str, x: str, y: str) -> None:
    axis.set_title(title, loc="left", fontsize=10)
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def _title(plan: Plan) -> str:
    rows = plan.rows
    gap = "" if plan.gap is None else f", {100 * plan.gap:.2f}% above the proven bound"
    predicted = " (predicted routing)" if plan.provenance.get("routing") == "predicted" else ""
    return f"{rows.rows} rows, {rows.status.replace('_', ' ')}{gap}{predicted}"


def _held(plan: Plan) -> Snapshot:
    if plan.snapshot is None:
        raise InputError("a plan with a layout", f"rung {plan.rung!r}", "plan")
    return plan.snapshot


def _unit(plan: Plan) -> int:
    return plan.score.denominator if plan.score is not None else 1
