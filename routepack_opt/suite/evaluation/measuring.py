"""One window of an evaluation: the three layouts, their metrics and their simulated step.

Guarantees: Baseline, Reorder and RoutePack hold the same samples in the same number of rows; every score is
computed anew from the layout by the exact objective.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.planner import Budget, plan
from routepack_opt.plans import Plan
from routepack_opt.problem import Problem
from routepack_opt.scoring import demand_of, load_metrics, loads_of, score_of
from routepack_opt.solvers.seeding import fixed_row_ffd
from routepack_opt.suite.evaluation.assumptions import VARIED, coefficients_of
from routepack_opt.suite.evaluation.results import LAYOUTS, Row
from routepack_opt.suite.evaluation.scenarios import Scenario
from routepack_opt.suite.evaluation.simulator import simulate, volumes_of


def measure_window(
    scenario: Scenario, window: int, seeds: Sequence[int], budget: Mapping[str, Any]
) -> list[Row]:
    """Return the rows of one window: every seed and layout.

    Parameters
    ----------
    scenario : Scenario
        Where the window comes from and what runs it.
    window : int
        Its position.
    seeds : sequence of int
        One plan each.
    budget : mapping
        `proposals` or `deadline`; None for the default.

    Raises
    ------
    InfeasibleError, NoLayoutError
        When the window has no layout under the scenario's rules.
    """
    problem = scenario.problem(window)
    rows: list[Row] = []
    shared: dict[object, tuple[Row, Row]] = {}
    for seed in seeds:
        made = plan(problem, seed=seed, baselines=False, **_options(budget))
        assert made.layout is not None
        first_fit, note = _first_fit(problem, made)
        placed = made.placement
        identity = Placement.identity(placed.num_layers, placed.num_experts, placed.ranks)
        runs = zip(LAYOUTS, (identity, placed, placed), (first_fit, first_fit, made.layout), strict=True)
        for layout, placement, cells in runs:
            mine = layout == "routepack"
            key = (seed if mine else None, cells.rows, placement.digest)
            if key not in shared:  # first fit does not depend on the seed
                shared[key] = (
                    _exact(problem, placement, cells),
                    _simulated(scenario, problem, placement, cells),
                )
            exact, simulated = shared[key]
            rows.append(
                {
                    "scenario": scenario.name,
                    "window": scenario.windows[window],
                    "seed": seed,
                    "layout": layout,
                }
                | {"samples": problem.window.size, "tokens": int(problem.window.lengths.sum())}
                | {"rows": cells.rows, "rows_status": made.rows.status}
                | exact
                | {"gap": made.gap if mine else None, "note": "" if mine else note}
                | {"plan_seconds": made.provenance.get("seconds") if mine else None}
                | simulated
            )
    return rows


def _options(budget: Mapping[str, Any]) -> dict[str, Any]:
    if budget.get("proposals") is not None:
        return {"budget": Budget(proposals=budget["proposals"])}
    return {"deadline": budget.get("deadline")}


def _first_fit(problem: Problem, made: Plan) -> tuple[Layout, str]:
    """Return the layout of Baseline and Reorder in the plan's rows, and what stands in for it."""
    assert made.layout is not None
    rows = made.layout.rows
    cells, note = fixed_row_ffd(problem, rows), ""
    if cells is None:
        assert made.rows.packing is not None
        cells = made.rows.packing
        note = f"FixedRowFFD needs more than {rows} rows: the certificate's packing stands in for it"
    return Layout.from_items(problem, cells, rows), note


def _exact(problem: Problem, placement: Placement, layout: Layout) -> Row:
    """Score a layout and take its metrics."""
    loads = loads_of(problem, demand_of(problem, placement), layout)
    found = score_of(problem, loads)
    return {
        "primary": str(found.primary),
        "total": str(found.total),
        "row_peak": str(found.row_peak),
        "denominator": str(found.denominator),
        **load_metrics(problem, placement, loads),
    }


def _simulated(scenario: Scenario, problem: Problem, placement: Placement, layout: Layout) -> Row:
    """Simulate the step of a layout, as assumed and with every coefficient halved and doubled."""
    coefficients = coefficients_of(scenario.assumptions)
    per_node = scenario.assumptions["accelerator"]["ranks_per_node"]
    volumes = volumes_of(problem, placement, layout, scenario.work(problem), per_node)
    pipeline = {"stages": scenario.pipeline, "chunks": scenario.chunks}
    tokens = int(problem.window.lengths.sum())
    step = simulate(volumes, coefficients, **pipeline)
    simulated: dict[str, float] = {
        "simulated_step_seconds": step.seconds,
        "simulated_tokens_per_second": tokens / step.seconds,
        "simulated_attention_seconds": step.attention,
        "simulated_dense_seconds": step.dense,
        "simulated_expert_seconds": step.expert,
        "simulated_exchange_seconds": step.exchange,
        "simulated_idle_share": step.idle,
        "simulated_intra_node_bytes": step.intra_node_bytes,
        "simulated_inter_node_bytes": step.inter_node_bytes,
    }
    for name in VARIED:
        for factor, word in ((0.5, "half"), (2.0, "double")):
            seconds = simulate(volumes, coefficients.scaled(name, factor), **pipeline).seconds
            simulated[f"simulated_tokens_per_second_{name}_{word}"] = tokens / seconds
    return {name: _short(value) for name, value in simulated.items()}


def _short(value: float) -> float:
    """Nine digits are more than any assumption holds, and keep the files small."""
    return value if isinstance(value, int) else float(f"{value:.9g}")
