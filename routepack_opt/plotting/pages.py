"""Figures for files: one part of a plan, or all of them on a page."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from routepack_opt.errors import InputError
from routepack_opt.plans import Plan
from routepack_opt.plotting.search import draw_search
from routepack_opt.plotting.style import Hints, held, new_figure, suffix_of, write_figure
from routepack_opt.plotting.svg import Drawing, inline_svg
from routepack_opt.plotting.terms import (
    draw_fill,
    draw_load_maps,
    draw_rank_loads,
    draw_rows,
    load_maps_shape,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Part:
    """One figure of a plan: its title, what it shows in a sentence, what draws it, and height over width."""

    title: str
    caption: str
    draw: Callable[[Plan, Any], Hints]
    shape: Callable[[Plan], float] = lambda plan: 0.65


#: The figures that `save_plot` knows by name.
PARTS = {
    "rows": Part(
        "Cost of every row", "Time of its slowest slot and its busiest ranks, in two parts.", draw_rows
    ),
    "ranks": Part(
        "EP rank loads over the window",
        "From the lightest to the busiest rank of every layer, with experts where they were and as placed.",
        draw_rank_loads,
    ),
    "loads": Part(
        "EP rank loads of every layer, before and after",
        "Load over the layer's mean; orange is above it, blue below.",
        draw_load_maps,
        load_maps_shape,
    ),
    "fill": Part(
        "Tokens in every cell, % of the capacity", "The fuller, the stronger the colour.", draw_fill
    ),
    "search": Part(
        "The search above the proven bound",
        "Best layout so far and mean of the members over time; temperature; accepted proposals.",
        draw_search,
        lambda plan: 0.85,
    ),
}
#: Inches across: in a file, and on a page, where a phone's 390 pixels leave texts of 7 points about 7 pixels.
_FILE, _SCREEN = 6.4, 4.8
_PAGE = ("rows", "ranks", "fill", "search")


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
    held(plan)
    figure = new_figure(11.0, 7.8)
    parts: Any = figure.subfigures(2, 2)
    for name, part in zip(_PAGE, parts.flat, strict=True):
        _draw(plan, name, part)
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
    which : {"plan", "rows", "ranks", "loads", "fill", "search"}
        The whole page, or one of its parts.

    Raises
    ------
    InputError
        For another name or another suffix.
    """
    suffix_of(path)  # refused before anything is drawn
    if which == "plan":
        figure = plot_plan(plan)
    elif which in PARTS:
        held(plan)
        figure = new_figure(_FILE, _FILE * PARTS[which].shape(plan))
        _draw(plan, which, figure)
    else:
        raise InputError("plan, " + ", ".join(PARTS), repr(which), "which")
    write_figure(figure, path)


def draw_parts(plan: Plan) -> list[Drawing]:
    """Return all figures of a plan as elements for a page.

    Raises
    ------
    InputError
        When the plan has no layout.
    """
    drawings = []
    for name, part in PARTS.items():
        figure = new_figure(_SCREEN, _SCREEN * part.shape(plan))
        hints = part.draw(plan, figure)
        svg = inline_svg(figure, name, f"{part.title}. {part.caption}", hints)
        drawings.append(Drawing(name, part.title, part.caption, svg))
    return drawings


def _draw(plan: Plan, name: str, figure: Any) -> None:
    figure.suptitle(PARTS[name].title, x=0.01, ha="left", fontsize=10)
    PARTS[name].draw(plan, figure)


def _title(plan: Plan) -> str:
    rows = plan.rows
    gap = "" if plan.gap is None else f", {100 * plan.gap:.2f}% above the proven bound"
    predicted = " (predicted routing)" if plan.provenance.get("routing") == "predicted" else ""
    return f"{rows.rows} rows, {rows.status.replace('_', ' ')}{gap}{predicted}"
