"""What a caller of `plan` asks for, checked once.

Guarantees: a :class:`Request` is consistent with its problem; what a caller got wrong is an InputError before
any work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from routepack_opt.arrays import whole_number
from routepack_opt.certificates import RowCertificate
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.plans import Plan
from routepack_opt.problem import Problem
from routepack_opt.solvers.annealing.parameters import AnnealingParameters, Budget
from routepack_opt.solvers.annealing.population import Executor

Method = Literal["annealing", "paper", "seed"]
OwnLayout = Layout | Sequence[Sequence[Sequence[int]]]
Progress = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, eq=False)
class Request:
    """Options of one call of :func:`routepack_opt.plan`; see there."""

    problem: Problem
    seed: int = 0
    deadline: float | None = None
    budget: Budget | None = None
    method: Method = "annealing"
    parameters: AnnealingParameters | None = None
    refine_placement: bool = False
    placement: Placement | None = None
    rows: int | RowCertificate | None = None
    previous: Plan | None = None
    own: OwnLayout | None = None
    executor: Executor | None = None
    threads: int = 1
    baselines: bool = True
    enough: float | None = None
    progress: Progress | None = None
    checkpoint: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.method not in ("annealing", "paper", "seed"):
            raise InputError("'annealing', 'paper' or 'seed'", repr(self.method), "method")
        if self.deadline is not None and self.budget is not None:
            raise InputError("at most one of deadline and budget", "both", "plan")
        if self.checkpoint is not None and (self.deadline is not None or self.method == "seed"):
            found = "a deadline" if self.deadline is not None else "method 'seed', which does not search"
            remedy = "Give budget=Budget(proposals=...), or nothing for the default budget"
            raise InputError("a search in proposals with a checkpoint", found, "checkpoint", remedy)
        if self.budget is not None and not isinstance(self.budget, Budget):
            raise InputError(
                "a Budget", repr(self.budget), "budget", "Write budget=Budget(proposals=100_000)"
            )
        if self.parameters is not None and not isinstance(self.parameters, AnnealingParameters):
            raise InputError("AnnealingParameters", repr(self.parameters), "parameters")
        whole_number(self.seed, "seed")
        whole_number(self.threads, "threads", low=1, high=4096)
        if isinstance(self.rows, RowCertificate):
            self._check_certificate(self.rows)
        elif self.rows is not None:
            whole_number(self.rows, "rows", low=1)
        if self.placement is not None:
            self._check_placement(self.placement, "placement")
        if self.previous is not None:
            if not isinstance(self.previous, Plan):
                raise InputError("a Plan", repr(self.previous), "previous", "Load it with Plan.load")
            self._check_placement(self.previous.placement, "previous")

    def _check_placement(self, placement: object, where: str) -> None:
        if not isinstance(placement, Placement):
            raise InputError("a Placement", repr(placement), where)
        window = self.problem.window
        wanted = (window.num_layers, window.num_experts, self.problem.topology.ep)
        found = (placement.num_layers, placement.num_experts, placement.ranks)
        if found != wanted:
            raise InputError(f"(layers, experts, ranks) {wanted}", f"{found}", where)

    def _check_certificate(self, certificate: RowCertificate) -> None:
        problem = self.problem
        if certificate.digest != problem.rows_digest:
            found = f"one for {certificate.digest[:12]}, not {problem.rows_digest[:12]}"
            raise InputError("a certificate of this problem", found, "rows")
        if certificate.rows is None or certificate.packing is None:
            return  # the planner says why it has no packing
        if certificate.packing.shape != (problem.items.size,):
            found = f"{certificate.packing.size}"
            raise InputError(f"a packing of {problem.items.size} items", found, "rows")
        Layout.from_items(problem, certificate.packing, certificate.rows).validate(problem)

    def own_layout(self) -> Layout | None:
        """Return the trainer's own layout, whether or not it keeps the rules."""
        if self.own is None or isinstance(self.own, Layout):
            return self.own
        return Layout.from_cells(self.own, size=self.problem.window.size)

    def tell(self, stage: str, **facts: Any) -> None:
        """Report a finished stage."""
        if self.progress is not None:
            self.progress(stage, facts)
