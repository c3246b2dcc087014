"""What a plan is compared with: the same window in the layouts that trainers use.

Guarantees: Baseline and Reorder share one layout (they differ by the placement alone); a layout that was not
found, or that stands in for another, is said in the notes.
"""

from __future__ import annotations

from dataclasses import dataclass

from routepack_opt.arrays import IntArray
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.plans.snapshot import Table
from routepack_opt.problem import Problem
from routepack_opt.scoring import load_metrics, loads_of
from routepack_opt.solvers.seeding import fixed_row_ffd, least_loaded


@dataclass(frozen=True, eq=False)
class Comparison:
    """Metrics by layout, and what their reader must know."""

    table: Table
    notes: tuple[str, ...]


def compare_layouts(
    problem: Problem, placement: Placement, rows: int, packing: IntArray, own: Layout | None
) -> Comparison:
    """Measure the layouts that a plan is compared with.

    Parameters
    ----------
    problem, placement : Problem, Placement
        The problem and the plan's placement.
    rows : int
        R.
    packing : numpy.ndarray of int64, shape (M,)
        The row certificate's packing.
    own : Layout, optional
        The trainer's own layout; not measured when it breaks a rule.

    Returns
    -------
    Comparison
        ``baseline`` (identity placement, FixedRowFFD), ``reorder`` (the plan's placement, the same layout),
        ``least_loaded`` (identity placement, token-balanced greedy) and ``own`` where given.
    """
    identity = Placement.identity(placement.num_layers, placement.num_experts, placement.ranks)
    before = identity.demand(problem.item_counts)
    notes = []
    cells = fixed_row_ffd(problem, rows)
    if cells is None:
        notes.append(f"FixedRowFFD needs more than {rows} rows: the certificate's packing stands in for it")
        cells = packing

    def measured(of: Placement, layout: Layout) -> dict[str, float]:
        demand = before if of is identity else of.demand(problem.item_counts)
        return load_metrics(problem, of, loads_of(problem, demand, layout))

    first_fit = Layout.from_items(problem, cells, rows)
    table: dict[str, dict[str, float] | None] = {
        "baseline": measured(identity, first_fit),
        "reorder": measured(placement, first_fit),
    }
    greedy = least_loaded(problem, rows)
    table["least_loaded"] = None
    if greedy is not None:
        table["least_loaded"] = measured(identity, Layout.from_items(problem, greedy, rows))
    else:
        notes.append(f"least-loaded greedy does not fit {rows} rows")
    if own is not None:
        broken = own.broken_rule(problem)
        table["own"] = measured(identity, own) if broken is None else None
        if broken is not None:
            notes.append(f"the own layout breaks a rule: expected {broken[0]}, found {broken[1]}")
        elif own.rows != rows:
            notes.append(f"the own layout has {own.rows} rows, the plan {rows}")
    return Comparison(table, tuple(notes))
