"""Figures of plans and of evaluations (matplotlib, extra ``report``).

Guarantees: a figure draws the numbers of its plan or results and nothing else; no window is opened, and the
settings of the plotting library are afterwards what they were.
"""

from routepack_opt.plotting.pages import PARTS, draw_parts, plot_plan, save_plot
from routepack_opt.plotting.sensitivity import plot_sensitivity, save_sensitivity
from routepack_opt.plotting.svg import Drawing, inline_svg

__all__ = [
    "PARTS",
    "Drawing",
    "draw_parts",
    "inline_svg",
    "plot_plan",
    "plot_sensitivity",
    "save_plot",
    "save_sensitivity",
]
