"""The trace of a search: scores against the bound, temperature and acceptance.

Guarantees: every point is one level of the trace; levels of a second search, after experts were moved for the
rows found, follow those of the first in time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from routepack_opt.plans import Plan
from routepack_opt.plotting.style import BLUE, GREEN, GREY, ORANGE, Hints, dress, unit_of


def draw_search(plan: Plan, figure: Any) -> Hints:
    """Draw incumbent, mean of the population and bound over time; below, temperature and acceptance."""
    if not plan.trace:
        axis = figure.subplots()
        axis.text(0.5, 0.5, "no search", ha="center", va="center", transform=axis.transAxes)
        axis.set_axis_off()
        return {}
    top, middle, low = figure.subplots(3, 1, sharex=True, height_ratios=[2.4, 1.3, 1.3])
    seconds = elapsed(plan)
    _draw_scores(plan, top, seconds)
    warm = [level["temperature"] or math.nan for level in plan.trace]  # a complete search has none
    (line,) = middle.plot(seconds, warm, color=ORANGE, lw=1.5)
    line.set_gid("temperature")
    middle.set_yscale("log")
    dress(middle, "", "temperature")
    (line,) = low.plot(seconds, acceptance(plan), color=GREEN, lw=1.5)
    line.set_gid("acceptance")
    low.set_ylim(bottom=0)
    dress(low, "seconds of search", "accepted, %")
    _mark_phases(plan, (top, middle, low), seconds)
    figure.align_ylabels([top, middle, low])
    return {}


def _draw_scores(plan: Plan, axis: Any, seconds: Sequence[float]) -> None:
    unit = unit_of(plan)
    incumbent = [level["incumbent"][0] / unit for level in plan.trace]
    (line,) = axis.plot(
        seconds, [level["energy_mean"] for level in plan.trace], color=GREY, lw=1, label="mean of the members"
    )
    line.set_gid("energy")
    (line,) = axis.step(seconds, incumbent, where="post", color=BLUE, lw=1.8, label="best so far")
    line.set_gid("incumbent")
    if plan.bound is not None:
        line = axis.axhline(plan.bound / unit, color=GREY, lw=1.2, ls="--", label="proven bound")
        line.set_gid("bound")
    dress(axis, "", "primary score, units")
    axis.ticklabel_format(axis="y", useOffset=False)
    axis.legend(frameon=False, fontsize=8)


def _mark_phases(plan: Plan, axes: Sequence[Any], seconds: Sequence[float]) -> None:
    """Draw a line where a phase begins, with its name on top."""
    phases = [level.get("phase", "") for level in plan.trace]
    for k, phase in enumerate(phases):
        if k and phase == phases[k - 1]:
            continue
        begin = seconds[k - 1] if k else 0.0
        for axis in axes:
            axis.axvline(begin, color=GREY, lw=0.6, ls=":")
        axes[0].text(
            begin, 1.01, f" {phase}", transform=axes[0].get_xaxis_transform(), fontsize=7, color=GREY
        )


def elapsed(plan: Plan) -> list[float]:
    """Return the seconds of every level since the first search began."""
    found: list[float] = []
    start = last = 0.0
    for level in plan.trace:
        if level["seconds"] < last:  # the clock of the next search begins anew
            start += last
        last = level["seconds"]
        found.append(start + last)
    return found


def acceptance(plan: Plan) -> list[float]:
    """Return the accepted part of the evaluated proposals of every level, in percent."""
    return [100 * level["accepted"] / max(level["evaluated"], 1) for level in plan.trace]
