"""What a simulated throughput owes to each assumed coefficient.

Guarantees: every point is the mean over windows of a column of the results; the axis says simulated.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from routepack_opt.errors import InputError
from routepack_opt.plotting.style import BLUE, GREY, dress, new_figure, write_figure
from routepack_opt.suite.evaluation.assumptions import VARIED
from routepack_opt.suite.evaluation.results import Results, Row
from routepack_opt.suite.evaluation.tables import RATES, per_window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LAYOUTS = (("baseline", "Baseline", GREY, 0.15), ("routepack", "RoutePack", BLUE, -0.15))


def plot_sensitivity(results: Results) -> Figure:
    """Draw simulated tokens per second, Baseline and RoutePack, with each coefficient halved and doubled.

    Parameters
    ----------
    results : Results
        From :func:`routepack_opt.suite.evaluation.read_results`.

    Returns
    -------
    matplotlib.figure.Figure
        One panel per scenario; at the right end of every line pair RoutePack's gain, halved / doubled.

    Raises
    ------
    InputError
        When the results have no rows, or matplotlib is missing.
    """
    names = list(dict.fromkeys(row["scenario"] for row in results.rows))
    if not names:
        raise InputError("results with rows", "none", "results")
    figure = new_figure(8.2, 0.5 + 1.75 * len(names))
    axes = figure.subplots(len(names), 1, squeeze=False)[:, 0]
    for axis, name in zip(axes, names, strict=True):
        _draw_scenario(axis, results.rows, name)
    dress(axes[-1], "simulated, 1000 tokens/s", "")
    axes[0].legend(frameon=False, fontsize=8, ncols=2, loc="lower right", bbox_to_anchor=(1, 1))
    return figure


def save_sensitivity(results: Results, path: str | os.PathLike[str]) -> None:
    """Write the figure of :func:`plot_sensitivity` to a PNG, SVG or PDF file.

    Raises
    ------
    InputError
        For another suffix, or results without rows.
    """
    write_figure(plot_sensitivity(results), path)


def varied_rates(rows: Sequence[Row], scenario: str, layout: str) -> Any:
    """Return mean simulated tokens per second with coefficients varied.

    Returns
    -------
    numpy.ndarray of float64, shape (len(VARIED), 3)
        Each coefficient halved, as assumed, and doubled.
    """
    columns = [(f"{RATES}_{part}_half", RATES, f"{RATES}_{part}_double") for part in VARIED]
    return np.array(
        [[np.mean(per_window(rows, scenario, layout, column)) for column in three] for three in columns]
    )


def _draw_scenario(axis: Any, rows: Sequence[Row], scenario: str) -> None:
    places = np.arange(len(VARIED))
    found = {key: varied_rates(rows, scenario, key) / 1000 for key, *_ in _LAYOUTS}
    for key, label, color, shift in _LAYOUTS:
        half, assumed, double = found[key].T
        axis.axvline(assumed[0], color=color, lw=1, ls="--", alpha=0.7)
        axis.hlines(places - shift, half, double, color=color, lw=2.4, label=label)
        axis.plot(half, places - shift, "<", color=color, ms=5)
        axis.plot(double, places - shift, ">", color=color, ms=5)
    gains = found["routepack"] / found["baseline"] - 1
    for place, (half, _, double) in zip(places, gains, strict=True):
        text = f"{100 * half:+.1f} / {100 * double:+.1f} %"
        axis.text(1.01, place, text, transform=axis.get_yaxis_transform(), fontsize=7, va="center")
    dress(axis, "", "")
    axis.set_yticks(places, [part.replace("_", " ") for part in VARIED])
    axis.set_ylim(len(VARIED) - 0.5, -0.5)
    axis.set_title(f"{scenario}: as assumed {100 * gains[0, 1]:+.1f} %", fontsize=9, loc="left")
