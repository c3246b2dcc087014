"""How all figures look: colours that a page can replace, quiet axes, and colour keys.

Guarantees: text and lines are black and every other colour is one of :data:`COLORS`, so that a page can give
each its own shade in the dark; a shade is the strength of a colour over whatever background there is.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError
from routepack_opt.plans import Plan, Snapshot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY, GREEN = "#3b6fb6", "#d9772b", "#858b95", "#2f9467"
#: Name of every colour, as pages know it.
COLORS = {"blue": BLUE, "orange": ORANGE, "grey": GREY, "green": GREEN}

#: Suffixes that figures are written with.
SUFFIXES = (".png", ".svg", ".pdf")

#: What an element of a figure says when it is pointed at: identifier of the element, or of the group whose
#: shapes take one text each.
Hints = dict[str, list[str]]

_MOST_NUMBERS = 16  # columns of a heat map whose cells still have room for a number
_MOST_HINTS = 2_000  # cells of a heat map that get a hint of their own


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of so many inches that belongs to no window.

    Raises
    ------
    InputError
        When matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        remedy = "Install it with: pip install 'routepack_opt[report]'"
        raise InputError("the package matplotlib", "none", "figures", remedy) from error

    return Figure(figsize=(width, height), layout="constrained")


def suffix_of(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a figure's file.

    Raises
    ------
    InputError
        When it is none of :data:`SUFFIXES`.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    if suffix not in SUFFIXES:
        raise InputError("a file name ending in " + ", ".join(SUFFIXES), repr(os.fspath(path)), "output")
    return suffix


def write_figure(figure: Figure, path: str | os.PathLike[str]) -> None:
    """Write a figure in the format of its suffix, without the time of writing.

    Raises
    ------
    InputError
        For another suffix.
    """
    stamp = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix_of(path))
    figure.savefig(os.fspath(path), dpi=144, metadata=stamp)


def dress(axis: Any, x: str, y: str) -> None:
    """Label an axis and take away what carries no information."""
    axis.set_xlabel(x, fontsize=8)
    axis.set_ylabel(y, fontsize=8)
    axis.tick_params(labelsize=8)
    for side in ("top", "right"):
        axis.spines[side].set_visible(False)


def held(plan: Plan) -> Snapshot:
    """Return the numbers of a plan.

    Raises
    ------
    InputError
        When it has no layout.
    """
    if plan.snapshot is None:
        raise InputError("a plan with a layout", f"rung {plan.rung!r}", "plan")
    return plan.snapshot


def unit_of(plan: Plan) -> int:
    """Return what the plan's integers are divided by for reading."""
    return plan.score.denominator if plan.score is not None else 1


def draw_heat(
    axis: Axes, strength: npt.NDArray[Any], names: str, texts: list[str] | None = None, below: str = BLUE
) -> QuadMesh:
    """Draw a matrix as coloured cells, first row on top.

    Parameters
    ----------
    axis : Axes
        Where to draw.
    strength : numpy.ndarray of float, shape (rows, columns)
        From -1 (`below` at full strength) over 0 (nothing) to 1 (orange at full strength); a matrix without
        negative values may use one colour by passing it negated.
    names : str
        Identifier of the group of cells in an SVG file; its shapes come row by row.
    texts : list of str, optional
        Number to write into every cell, row by row; left out where there is no room.
    below : str
        Colour of negative strengths.
    """
    from matplotlib.colors import to_rgb

    rows, columns = strength.shape
    color = np.zeros((rows, columns, 4))
    color[..., :3] = np.where((strength > 0)[..., None], to_rgb(ORANGE), to_rgb(below))
    color[..., 3] = np.clip(np.abs(strength), 0, 1)
    mesh = axis.pcolormesh(color, edgecolors="none", linewidth=0)
    mesh.set_gid(names)
    axis.set_xlim(0, columns)
    axis.set_ylim(rows, 0)
    for which, count in ((axis.xaxis, columns), (axis.yaxis, rows)):
        step = next(s for s in (1, 2, 4, 8, 16, 32, 64, count) if count <= 16 * s)
        which.set_ticks(np.arange(0, count, step) + 0.5, [str(k) for k in range(0, count, step)])
    axis.tick_params(length=0)
    if texts is not None and columns <= _MOST_NUMBERS and rows <= 2 * _MOST_NUMBERS:
        for k, text in enumerate(texts):
            axis.text(k % columns + 0.5, k // columns + 0.5, text, ha="center", va="center", fontsize=7)
    return mesh


def cell_hints(names: str, texts: list[str]) -> Hints:
    """Return the hints of a heat map's cells, or none where there would be too many for a page."""
    return {names: texts} if len(texts) <= _MOST_HINTS else {}
