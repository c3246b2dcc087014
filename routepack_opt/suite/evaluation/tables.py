"""Tables of an evaluation in the shape of the paper's: Figure 7, Table 3, Table 4, and sensitivity.

Guarantees: one value per window, the mean over its seeds, so that more seeds do not pretend more steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from routepack_opt.suite.evaluation.assumptions import VARIED
from routepack_opt.suite.evaluation.results import LAYOUTS, Results, Row
from routepack_opt.suite.evaluation.significance import compare_all, spread

RATES = "simulated_tokens_per_second"
_RELATIVE = ("ep_peak_sum", "ep_tail_peak", "attention", "joint")


def per_window(rows: Sequence[Row], scenario: str, layout: str, column: str) -> list[float]:
    """Return a column's mean over seeds, one value per window."""
    groups: dict[str, list[float]] = {}
    for row in rows:
        if row["scenario"] == scenario and row["layout"] == layout:
            groups.setdefault(row["window"], []).append(float(row[column]))
    return [float(np.mean(values)) for values in groups.values()]


def summary(results: Results) -> list[dict[str, Any]]:
    """Summarise every scenario, ready for JSON.

    Returns
    -------
    list of dict
        `scenario`, `windows`, `rows` (mean R), `gap` (mean); `cv_global` by layout (Figure 7);
        `simulated_tokens_per_second` by layout and `comparisons` (Table 3); `loads`: RoutePack over Reorder
        at the same placement (Table 4); `simulated`: parts of the step by layout; `sensitivity`: simulated
        gain over Baseline as assumed, and with each coefficient halved and doubled.
    """
    names = dict.fromkeys(row["scenario"] for row in results.rows)
    return [_scenario(results.rows, name) for name in names]


def _scenario(rows: Sequence[Row], name: str) -> dict[str, Any]:
    def of(layout: str, column: str) -> list[float]:
        return per_window(rows, name, layout, column)

    def each(column: str) -> dict[str, Any]:
        return {layout: asdict(spread(of(layout, column))) for layout in LAYOUTS}

    rates = {layout: of(layout, RATES) for layout in LAYOUTS}
    return {
        "scenario": name,
        "windows": len(rates["baseline"]),
        "rows": float(np.mean(of("routepack", "rows"))),
        "gap": _mean_gap(rows, name),
        "cv_global": each("cv_global"),
        RATES: each(RATES),
        "comparisons": [asdict(found) for found in compare_all(rates)],
        "loads": {
            **{column: _change(of, column) for column in _RELATIVE},
            "ep_balance_efficiency": [
                float(np.mean(of(layout, "ep_balance_efficiency"))) for layout in ("reorder", "routepack")
            ],
        },
        "simulated": {layout: _parts(of, layout) for layout in LAYOUTS},
        "sensitivity": {
            f"{part}_{word}": _gain(of, f"{RATES}_{part}_{word}")
            for part in VARIED
            for word in ("half", "double")
        }
        | {"as assumed": _gain(of, RATES)},
    }


_Column = Callable[[str, str], list[float]]


def _mean_gap(rows: Sequence[Row], scenario: str) -> float | None:
    gaps = [row["gap"] for row in rows if row["scenario"] == scenario and row["gap"] is not None]
    return float(np.mean(gaps)) if gaps else None


def _change(of: _Column, column: str) -> float | None:
    """RoutePack relative to Reorder, mean over mean; None when there is nothing to divide by."""
    before = float(np.mean(of("reorder", column)))
    return float(np.mean(of("routepack", column))) / before - 1 if before else None


def _gain(of: _Column, column: str) -> dict[str, float]:
    base = float(np.mean(of("baseline", column)))
    return {layout: float(np.mean(of(layout, column))) / base - 1 for layout in LAYOUTS[1:]}


def _parts(of: _Column, layout: str) -> dict[str, float]:
    """Mean seconds of the parts, the exchange's share of them, idle share and bytes."""
    busy_parts = ("attention_seconds", "dense_seconds", "expert_seconds", "exchange_seconds")
    columns = ("step_seconds", *busy_parts, "idle_share", "intra_node_bytes", "inter_node_bytes")
    found = {name: float(np.mean(of(layout, f"simulated_{name}"))) for name in columns}
    busy = sum(found[name] for name in busy_parts)
    return found | {"exchange_share": found["exchange_seconds"] / busy if busy else 0.0}
