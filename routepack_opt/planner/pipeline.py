"""The stages of a plan: certificate, placement, seeds, search and bounds, in that order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, NamedTuple

import numpy as np

from routepack_opt._version import __version__
from routepack_opt.arrays import IntArray
from routepack_opt.certificates import RowCertificate
from routepack_opt.crossings import Crossings, count_crossings, total_assignments
from routepack_opt.errors import InfeasibleError, NoLayoutError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.planner.alternation import placement_for_forecast, placement_for_rows
from routepack_opt.planner.clock import Timer
from routepack_opt.planner.comparison import Comparison, compare_layouts
from routepack_opt.planner.request import Request
from routepack_opt.plans import Plan
from routepack_opt.plans.snapshot import Snapshot, Table, take_snapshot
from routepack_opt.problem import Problem
from routepack_opt.scoring import Score, load_metrics, loads_of, score_of
from routepack_opt.solvers.annealing.checkpoint import Checkpoint
from routepack_opt.solvers.annealing.parameters import PAPER, AnnealingParameters, Budget
from routepack_opt.solvers.annealing.population import (
    AnnealingResult,
    Executor,
    Level,
    SerialExecutor,
    anneal,
)

_ROWS_SHARE = 0.3  # of the deadline that the row certificate may take
_PLACE_SHARE = 0.15  # the placement for forecast rows
_SEED_SHARE = 0.2  # and the seeds
_FINISH = 2.0  # times the cost of describing one layout is kept for what follows the search
_FLOOR = 0.010  # seconds kept at least
_FIRST_SHARE = 0.65  # of the search before the placement is refined for its rows
_WARM = 1e-5  # hottest temperature of the search after that


def default_budget(problem: Problem) -> Budget:
    """Return the budget that is used when neither a deadline nor a budget is given.

    Notes
    -----
    2,000 proposals per item, at least a million: chosen from the sweep in ``benchmarks/annealing.py`` and the
    proven optima of ``instances/exact-small``.
    """
    return Budget(max(1_000_000, 2_000 * problem.items.size))


class Described(NamedTuple):
    """A layout with its numbers."""

    layout: Layout
    score: Score
    snapshot: Snapshot
    crossings: Crossings | None


class Planning:
    """One call of :func:`plan`, stage by stage."""

    def __init__(self, request: Request, timer: Timer) -> None:
        self.request, self.timer, self.problem = request, timer, request.problem
        self.own = request.own_layout()
        self.own_broken = self.own.broken_rule(self.problem) if self.own is not None else None
        self.checkpoint = None if request.checkpoint is None else Checkpoint(request.checkpoint)
        self.moves = 0
        self.peaks: IntArray | None = None  # least busiest rank of every layer, once placed
        self.trace: list[Level] = []
        self.proposals = 0

    def finish(self) -> Plan:
        """Run all stages."""
        held = self.checkpoint
        if held is not None and held.levels:
            self.request.tell("resumed", path=held.path, levels=held.levels, proposals=held.proposals)
        certificate = self.certify()
        rows, packing = _held(certificate)
        self.request.tell("rows", rows=rows, lower_bound=certificate.lower_bound, status=certificate.status)
        placement = self.place(rows)
        demand = placement.demand(self.problem.item_counts)
        self.request.tell("placement", moves=self.moves)
        bounds = self.bounds(rows, demand)
        comparison = self.compare(placement, rows, packing, demand)
        cells, rung, reason = self.search(placement, demand, rows, packing, bounds[0])
        if self.request.refine_placement and rung != "seed":
            start = placement
            placement, demand, cells = self.alternate(placement, demand, cells, rows)
            if placement is not start:
                bounds = self.bounds(rows, demand)
        return self.assemble(certificate, placement, demand, cells, rung, reason, comparison, bounds)

    def certify(self) -> RowCertificate:
        """Find the row count; a feasible own layout with fewer rows lowers it."""
        from routepack_opt.solvers.rows import certify_rows

        wanted = self.request.rows
        if isinstance(wanted, RowCertificate):
            return wanted
        own = self.own if self.own is not None and self.own_broken is None else None
        limit = self.timer.left(_ROWS_SHARE)
        limit = 60.0 if limit is None else max(limit, 1e-3)
        found = certify_rows(self.problem, time_limit=limit, stages="cheap", rows=wanted)
        if own is not None and wanted is None and (found.rows is None or own.rows < found.rows):
            found = certify_rows(self.problem, time_limit=limit, stages="cheap", rows=own.rows)
            return _with_packing(found, own.cell_of_item(self.problem), own.rows)
        return found

    def place(self, rows: int) -> Placement:
        """Place the experts: near the previous placement when there is one, else for forecast rows."""
        from routepack_opt.solvers.placing import place

        if self.request.placement is not None:
            self.moves = self.request.placement.moves_from(self.start_of(self.request.placement))
            return self.request.placement
        previous = self.request.previous.placement if self.request.previous is not None else None
        paper = self.request.method == "paper"
        result = place(self.problem, method="lpt" if paper else "refined", previous=previous)
        placement, self.peaks = result.placement, result.bound
        if previous is None and self.request.method == "annealing" and self.parameters().blocks_first:
            share = self.timer.left(_PLACE_SHARE)
            until = None if share is None else self.timer.clock() + share
            placement = placement_for_forecast(
                self.problem, placement, rows, lambda: until is not None and self.timer.clock() >= until
            )
        self.moves = placement.moves_from(self.start_of(placement))
        return placement

    def start_of(self, placement: Placement) -> Placement:
        """Return where the experts are now: the previous plan's placement, or identity."""
        if self.request.previous is not None:
            return self.request.previous.placement
        return Placement.identity(placement.num_layers, placement.num_experts, placement.ranks)

    def parameters(self) -> AnnealingParameters:
        """Return the shape of the search."""
        if self.request.parameters is not None:
            return self.request.parameters
        paper = self.request.method == "paper"
        return PAPER if paper else AnnealingParameters.for_items(self.problem.items.size)

    def bounds(self, rows: int, demand: Any) -> tuple[int, int]:
        """Bound the primary component under the placement and over all placements."""
        from routepack_opt.bounds.score import any_placement_bound, placement_bound

        own = placement_bound(self.problem, rows, demand).primary
        return own, any_placement_bound(self.problem, rows, self.peaks).primary

    def compare(self, placement: Placement, rows: int, packing: IntArray, demand: Any) -> Comparison | None:
        """Measure the baselines, and learn how much of the time must be kept for what follows the search."""
        if self.timer.limit is not None:
            before = self.timer.clock()
            self.describe(placement, demand, Layout.from_items(self.problem, packing, rows), {}, ())
            self.timer.reserve = max(_FLOOR, _FINISH * (self.timer.clock() - before))
        if not self.request.baselines or self.timer.late():
            return None
        return compare_layouts(self.problem, placement, rows, packing, self.own)

    def describe(
        self, placement: Placement, demand: Any, layout: Layout, table: Table, notes: tuple[str, ...]
    ) -> Described:
        """Order the rows, seat the cells, validate, score in full, and take the numbers of a layout."""
        problem = self.problem
        loads = loads_of(problem, demand, layout.validate(problem))
        if problem.rules.row_order == "largest_first":
            layout = layout.permuted_rows(np.argsort(-loads.tokens.max(axis=1), kind="stable"))
            loads = loads_of(problem, demand, layout)
        crossings = None
        if problem.topology.ranks_per_node is not None:
            score, (layout, crossings) = score_of(problem, loads), self.seat(demand, layout)
            loads = loads_of(problem, demand, layout.validate(problem))
            if score_of(problem, loads) != score:
                raise AssertionError("seating cells changed the score")
        table = dict(table) | {"routepack": load_metrics(problem, placement, loads)}
        snapshot = take_snapshot(problem, placement, loads, table, notes)
        return Described(layout, score_of(problem, loads), snapshot, crossings)

    def seat(self, demand: Any, layout: Layout) -> tuple[Layout, Crossings]:
        """Exchange cells inside rows and shards so that the fewest assignments leave their node."""
        from routepack_opt.solvers.seating import seat_cells

        seated = seat_cells(self.problem, demand, layout)
        before, after = (count_crossings(self.problem, demand, one) for one in (layout, seated))
        topology = self.problem.topology
        total, per_node = total_assignments(demand), int(topology.ranks_per_node or topology.ep)
        return seated, Crossings(before, after, total, topology.ep, per_node)

    def search(
        self, placement: Placement, demand: Any, rows: int, packing: IntArray, bound: int
    ) -> tuple[IntArray, str, str | None]:
        """Build seeds and anneal; returns the cells, the rung and why it is not the first one."""
        from routepack_opt.solvers.seeding import build_seeds

        parameters = self.parameters()
        share = self.timer.left(_SEED_SHARE)
        until = None if share is None else self.timer.clock() + share
        seeds = build_seeds(
            self.problem,
            demand,
            rows,
            packing=packing,
            own=self._own_cells(rows),
            seed=self.request.seed,
            trials=max(parameters.population - 2, 0),
            population=parameters.population,
            method="paper" if self.request.method == "paper" else "annealing",
            deadline=self._first_asked(until),
        )
        best = min(seeds, key=lambda seed: seed.score.components)
        self.request.tell("seeds", best=best.score, origin=best.origin, count=len(seeds))
        if self.request.method == "seed":
            return best.cell_of_item, "seed", "asked for"
        enough = self.request.enough
        if enough is not None and best.score.primary - bound <= enough * bound:
            return best.cell_of_item, "seed", f"searching cannot pay: within {enough:.2%} of the lower bound"
        if self.timer.late():
            return best.cell_of_item, "seed", "the deadline left no time for the search"
        if self.problem.items.size == rows * self.problem.topology.dp == 1:
            return best.cell_of_item, "annealed", None
        cells = [seed.cell_of_item for seed in ([best] + [s for s in seeds if s is not best])]
        first = _FIRST_SHARE if self.request.refine_placement else 1.0
        result = self.anneal(demand, cells, rows, parameters, self._proposals(first), first)
        if result.score > best.score.components:
            raise AssertionError("the search lost its best seed")
        if not result.complete:
            return result.cell_of_item, "incumbent", "the deadline ended the search early"
        return result.cell_of_item, "annealed", None

    def _first_asked(self, until: float | None) -> Callable[[], bool]:
        """Say whether the seeds' time is over; they ask first when the first pairing is done."""
        told = False

        def over() -> bool:
            nonlocal told
            if not told:
                told = True
                self.request.tell("paired")
            return until is not None and self.timer.clock() >= until

        return over

    def _own_cells(self, rows: int) -> IntArray | None:
        usable = self.own is not None and self.own_broken is None and self.own.rows == rows
        if usable and self.own is not None:
            return self.own.cell_of_item(self.problem)
        previous = self.request.previous
        if previous is None or previous.provenance.get("problem") != self.problem.digest:
            return None
        if previous.layout is None or previous.layout.rows != rows:
            return None
        return previous.layout.cell_of_item(self.problem)

    def _proposals(self, share: float) -> int | None:
        if self.timer.limit is not None:
            return None
        return int((self.request.budget or default_budget(self.problem)).proposals * share)

    def anneal(
        self,
        demand: Any,
        cells: list[IntArray],
        rows: int,
        parameters: AnnealingParameters,
        proposals: int | None,
        share: float = 1.0,
    ) -> AnnealingResult:
        """Run population annealing on the request's executor, for a share of the time, and keep its trace."""
        left = self.timer.left(share)
        with _executor(self.request) as executor:
            result = anneal(
                self.problem,
                demand,
                cells,
                rows,
                seed=self.request.seed,
                parameters=parameters,
                proposals=proposals,
                deadline=None if left is None else self.timer.clock() + left,
                clock=self.timer.clock,
                executor=executor,
                progress=lambda level: self.request.tell("level", level=level),
                checkpoint=self.checkpoint,
            )
        self.trace += result.trace
        self.proposals += result.proposals
        return result

    def alternate(
        self, placement: Placement, demand: Any, cells: IntArray, rows: int
    ) -> tuple[Placement, Any, IntArray]:
        """Move experts for the rows found, repack warm, and keep the result when the exact score improves."""
        problem = self.problem
        layout = Layout.from_items(problem, cells, rows)
        refined = placement_for_rows(problem, placement, layout, self.timer.late)
        before = score_of(problem, loads_of(problem, demand, layout))
        if self.timer.late():
            return placement, demand, cells
        if refined == placement:
            refined, new_demand = placement, demand  # the rest of the search goes on where it was
        else:
            new_demand = refined.demand(problem.item_counts)
        shape = self.parameters()
        hottest = min(_WARM, shape.hottest)
        warm = replace(shape, hottest=hottest, coldest=min(hottest, shape.coldest))
        result = self.anneal(new_demand, [cells], rows, warm, self._proposals(1 - _FIRST_SHARE))
        self.request.tell("alternation", before=before.primary, after=result.score[0])
        if result.score >= before.components:
            return placement, demand, cells
        self.moves = refined.moves_from(self.start_of(refined))
        return refined, new_demand, result.cell_of_item

    def assemble(
        self,
        certificate: RowCertificate,
        placement: Placement,
        demand: Any,
        cells: IntArray,
        rung: str,
        reason: str | None,
        comparison: Comparison | None,
        bounds: tuple[int, int],
    ) -> Plan:
        """Put the plan together."""
        table, notes = (comparison.table, comparison.notes) if comparison is not None else ({}, ())
        layout = Layout.from_items(self.problem, cells, int(certificate.rows or 0))
        layout, score, snapshot, crossings = self.describe(placement, demand, layout, table, notes)
        return Plan(
            layout=layout,
            placement=placement,
            rows=certificate,
            score=score,
            bound=bounds[0],
            bound_any=bounds[1],
            rung=rung,
            reason=reason,
            snapshot=snapshot,
            provenance=self.provenance(),
            trace=tuple(asdict(level) for level in self.trace),
            crossings=crossings,
        )

    def provenance(self) -> dict[str, Any]:
        """Say where the plan comes from."""
        request, window = self.request, self.problem.window
        timed = self.timer.limit is not None
        expert_bytes = self.problem.expert_bytes
        return {
            "version": __version__,
            "problem": self.problem.digest,
            "window": window.digest,
            "routing": window.routing,
            "policy_version": window.policy_version,
            "method": request.method,
            "parameters": asdict(self.parameters()),
            "seed": request.seed,
            "deadline": request.deadline,
            "proposals": self.proposals,
            "reproducible": not timed,
            "moves": self.moves,
            "bytes_moved": None if expert_bytes is None else expert_bytes * self.moves,
            "seconds": self.timer.elapsed,
        }


def _held(certificate: RowCertificate) -> tuple[int, IntArray]:
    """Return the rows and packing of a certificate, or raise what prevents a plan."""
    if certificate.status == "infeasible":
        raise InfeasibleError(certificate.rule or "rows", certificate.message or "no layout exists")
    if certificate.rows is None or certificate.packing is None:
        if certificate.rule is not None:  # the number of rows that was asked for contradicts a rule
            raise InfeasibleError(certificate.rule, certificate.message or "no layout exists")
        raise NoLayoutError("no layout was found, and none excluded: relax a rule, or certify with more time")
    return certificate.rows, np.asarray(certificate.packing, np.int64)


def _with_packing(found: RowCertificate, packing: IntArray, rows: int) -> RowCertificate:
    """Return the certificate with the trainer's own packing, which has fewer rows than the best known."""
    status = "certified" if found.lower_bound == rows else "best_known"
    return replace(found, rows=rows, packing=packing, status=status)


@contextmanager
def _executor(request: Request) -> Iterator[Executor]:
    """Use the caller's executor, or threads that end with the call."""
    if request.executor is not None:
        yield request.executor
        return
    if request.threads == 1:
        yield SerialExecutor()
        return
    from routepack_opt.solvers.annealing.threads import ThreadExecutor

    own = ThreadExecutor(request.threads)
    try:
        yield own
    finally:
        own.close()
