"""`plan`: the one call that turns a problem into a plan."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from routepack_opt.certificates import RowCertificate
from routepack_opt.placement import Placement
from routepack_opt.planner.clock import Timer
from routepack_opt.planner.pipeline import Planning
from routepack_opt.planner.request import Method, OwnLayout, Progress, Request
from routepack_opt.plans import Plan
from routepack_opt.problem import Problem
from routepack_opt.solvers.annealing.parameters import AnnealingParameters, Budget
from routepack_opt.solvers.annealing.population import Executor


def plan(
    problem: Problem,
    *,
    seed: int = 0,
    deadline: float | None = None,
    budget: Budget | None = None,
    method: Method = "annealing",
    parameters: AnnealingParameters | None = None,
    refine_placement: bool = False,
    placement: Placement | None = None,
    rows: int | RowCertificate | None = None,
    previous: Plan | None = None,
    own: OwnLayout | None = None,
    executor: Executor | None = None,
    threads: int = 1,
    baselines: bool = True,
    enough: float | None = None,
    progress: Progress | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Plan:
    """Place the experts of a window and lay out its samples.

    Parameters
    ----------
    problem : Problem
        Window, topology, capacity, stages and rules.
    seed : int, default 0
        Of every random stream.
    deadline : float, optional
        Seconds, counted from the call; call :func:`warm_up` first. The plan is marked as not reproducible.
    budget : Budget, optional
        Reproducible amount of search. Neither deadline nor budget means :func:`default_budget`.
    method : {"annealing", "paper", "seed"}
        The search; "paper" is Algorithms 2 and 3 as published, "seed" stops at the best seed.
    parameters : AnnealingParameters, optional
        Shape of the search in place of the method's own: population, levels, temperatures, moves.
    refine_placement : bool, default False
        Alternate between moving experts for the rows found and repacking.
    placement : Placement, optional
        Use this placement instead of placing.
    rows : int or RowCertificate, optional
        Use this number of rows, or this certificate, instead of certifying.
    previous : Plan, optional
        The plan of the step before: its placement is the one to move away from as little as possible, and,
        for the same problem, its layout is a seed.
    own : Layout or nested sequence, optional
        The trainer's own layout; the plan is never worse at the same number of rows.
    executor : Executor, optional
        Where the search runs; overrides `threads`.
    threads : int, default 1
        Threads of the search. The plan does not depend on it.
    baselines : bool, default True
        Measure the layouts that a plan is compared with.
    enough : float, optional
        Return the best seed when it is within this fraction of its lower bound: a search could not gain more.
    progress : callable, optional
        Called as ``progress(stage, facts)`` after every stage and level.
    checkpoint : path-like, optional
        File that the search is saved to after every level. When it exists, the search goes on from there, and
        the plan is the one of an uninterrupted call, bit for bit; all else must be asked for as before. Not
        with a deadline: how far a search comes in seconds is not reproducible.
    clock : callable
        Seconds; injected by tests.

    Returns
    -------
    Plan

    Raises
    ------
    InputError
        When an option is wrong or does not fit the problem, or a checkpoint is damaged or of another search.
    InfeasibleError
        When no layout keeps the rules, with the rule that binds.
    NoLayoutError
        When no layout was found and none excluded.
    """
    timer = Timer(deadline, clock)
    request = Request(
        problem,
        seed=seed,
        deadline=deadline,
        budget=budget,
        method=method,
        parameters=parameters,
        refine_placement=refine_placement,
        placement=placement,
        rows=rows,
        previous=previous,
        own=own,
        executor=executor,
        threads=threads,
        baselines=baselines,
        enough=enough,
        progress=progress,
        checkpoint=checkpoint,
    )
    return Planning(request, timer).finish()
