"""Population annealing (Algorithm 3): levels of fixed-temperature chains with resampling in between.

Guarantees: the result is never worse than the best seed; for a budget in proposals it depends on the problem,
the seeds and the random seed alone, not on threads, workers or hosts; with a deadline the best state so far
is returned.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.problem import Problem
from routepack_opt.solvers.annealing._kernels.chain import energy_of
from routepack_opt.solvers.annealing._kernels.state import Instance, copy_state
from routepack_opt.solvers.annealing.checkpoint import (
    Checkpoint,
    Part,
    identity_of,
    pack_members,
    unpack_members,
)
from routepack_opt.solvers.annealing.instance import build_instance, from_kernel, new_state, to_kernel
from routepack_opt.solvers.annealing.members import Member, Step
from routepack_opt.solvers.annealing.parameters import AnnealingParameters
from routepack_opt.solvers.annealing.resampling import copies

PHASES = ("cells", "blocks", "inside", "finish")
_CHAINS, _RESAMPLING = 1, 2  # what random streams are spawned for
_BEFORE_COMPLETE = 0.5  # of the time left, where a complete search follows
_PILOT = 2_000  # proposals per member that measure the speed before the first level of a timed run


class Executor(Protocol):
    """Whatever runs the step of every member: a thread pool, Ray, or the calling thread."""

    workers: int

    def map(self, step: Step, members: Sequence[Member]) -> list[Member]:
        """Return the stepped members in the order given."""


class SerialExecutor:
    """Runs every member in the calling thread."""

    workers = 1

    def map(self, step: Step, members: Sequence[Member]) -> list[Member]:
        """Return the stepped members in the order given."""
        return [step(member) for member in members]


@dataclass(frozen=True)
class Level:
    """What happened on one temperature level; the trace of a run is a list of these."""

    phase: str
    seconds: float
    temperature: float
    incumbent: tuple[int, int, int]
    energy_mean: float
    energy_spread: float
    survivors: int
    proposals: int
    evaluated: int
    accepted: int


@dataclass(frozen=True)
class AnnealingResult:
    """The incumbent and how the run went.

    Attributes
    ----------
    cell_of_item : numpy.ndarray of int64, shape (M,)
        Flat cell of every item in the problem's slot order.
    score : tuple of int
        Its three scaled components.
    stopped : str
        ``"finished"`` or ``"deadline"``.
    complete : bool
        Whether every temperature was reached.
    proposals : int
        Proposals made over all chains.
    trace : list of Level
        One entry per level.
    """

    cell_of_item: IntArray
    score: tuple[int, int, int]
    stopped: str
    complete: bool
    proposals: int
    trace: list[Level] = field(default_factory=list)


@dataclass(frozen=True)
class Limits:
    """When a search stops, and what runs it.

    Attributes
    ----------
    proposals, deadline : int, float
        Exactly one: proposals over all chains, or the value of `clock` at which to stop.
    clock : callable
        Seconds; injected by tests.
    executor : Executor
        Where members run; the calling thread by default.
    progress : callable, optional
        Called after every level, those of a checkpoint included.
    checkpoint : Checkpoint, optional
        Where a search in proposals is saved after every level, and goes on from.
    """

    proposals: int | None = None
    deadline: float | None = None
    clock: Callable[[], float] = time.perf_counter
    executor: Executor = field(default_factory=SerialExecutor)
    progress: Callable[[Level], None] | None = None
    checkpoint: Checkpoint | None = None

    def __post_init__(self) -> None:
        if (self.proposals is None) == (self.deadline is None):
            raise AssertionError("exactly one of proposals and deadline")
        if self.checkpoint is not None and self.deadline is not None:
            raise AssertionError("a checkpoint holds a search in proposals")

    def until(self, share: float) -> Limits:
        """Return the limits of a first part: all proposals, or a share of the time left."""
        if self.deadline is None:
            return self
        now = self.clock()
        return replace(self, deadline=now + (self.deadline - now) * share)


def anneal(
    problem: Problem,
    demand: npt.NDArray[Any],
    seeds: Sequence[IntArray],
    rows: int,
    *,
    seed: int = 0,
    parameters: AnnealingParameters | None = None,
    proposals: int | None = None,
    deadline: float | None = None,
    clock: Callable[[], float] = time.perf_counter,
    executor: Executor | None = None,
    progress: Callable[[Level], None] | None = None,
    checkpoint: Checkpoint | None = None,
) -> AnnealingResult:
    """Improve a population of layouts.

    Parameters
    ----------
    problem : Problem
        What is planned.
    demand : numpy.ndarray of int, shape (M, L, P)
        q under the placement.
    seeds : sequence of numpy.ndarray of int, shape (M,)
        Valid layouts as flat cells, best first; repeated cyclically up to the population.
    rows : int
        R of all of them.
    seed : int
        Of all random streams.
    parameters : AnnealingParameters, optional
        Shape of the search.
    proposals, deadline, clock, executor, progress, checkpoint
        See :class:`Limits`.

    Returns
    -------
    AnnealingResult
    """
    from routepack_opt.solvers.annealing.blocks import anneal_blocks_first, blocks_pay
    from routepack_opt.solvers.annealing.complete import covers, finish_completely

    parameters = parameters or AnnealingParameters()
    instance, starts = build_instance(problem, demand), [to_kernel(problem, cells) for cells in seeds]
    limits = Limits(proposals, deadline, clock, executor or SerialExecutor(), progress, checkpoint)
    blocks = parameters.blocks_first and blocks_pay(instance, rows)
    search = anneal_blocks_first if blocks else anneal_cells
    complete = parameters.complete and covers(instance, rows)
    part = limits.until(_BEFORE_COMPLETE) if complete else limits
    result = search(instance, starts, rows, seed=seed, parameters=parameters, limits=part)
    if complete:
        result = finish_completely(instance, result, rows, limits)
    return replace(result, cell_of_item=from_kernel(problem, result.cell_of_item))


def anneal_cells(
    instance: Instance,
    starts: Sequence[IntArray],
    rows: int,
    *,
    seed: int,
    parameters: AnnealingParameters,
    limits: Limits,
    phase: str = "cells",
) -> AnnealingResult:
    """Improve a population of kernel layouts, all moves at once; arguments as for :func:`anneal`.

    Parameters
    ----------
    phase : str
        Name in the trace; phases draw from random streams of their own.
    """
    return _Run(instance, starts, rows, seed, parameters, limits, phase).finish()


class _Run:
    """State of one call of :func:`anneal_cells`."""

    def __init__(
        self,
        instance: Instance,
        starts: Sequence[IntArray],
        rows: int,
        seed: int,
        parameters: AnnealingParameters,
        limits: Limits,
        phase: str,
    ) -> None:
        self.instance, self.parameters, self.limits, self.phase = instance, parameters, limits, phase
        self.clock, self.deadline = limits.clock, limits.deadline
        self.mix = parameters.mix.thresholds()
        stream = PHASES.index(phase)

        def spawned(*key: int) -> np.random.SeedSequence:
            return np.random.SeedSequence(seed, spawn_key=(*key[:1], stream, *key[1:]))

        self.resampling = np.random.Generator(np.random.PCG64(spawned(_RESAMPLING)))
        self.members = []
        for m in range(parameters.population):
            words = spawned(_CHAINS, m).generate_state(4, np.uint64).astype(np.uint64)
            state = new_state(self.instance, rows, starts[m % len(starts)], words)
            self.members.append(Member(state, state.cell.copy(), state.score.copy()))
        self.best_cell = self.members[0].best_cell.copy()
        self.best_score = self.members[0].best_score.copy()
        self.adopt()
        self.made = 0
        self.trace: list[Level] = []
        self.identity: dict[str, Any] = {}
        if limits.checkpoint is not None:
            proposals = limits.proposals
            self.identity = identity_of(instance, starts, rows, seed, parameters, proposals, phase)
            self.resume(limits.checkpoint)

    def resume(self, checkpoint: Checkpoint) -> None:
        """Go back to the last saved level, if there is one, and report the levels up to it."""
        part = checkpoint.begin(self.identity)
        if part is None:
            return
        if part.facts["level"] < self.parameters.levels:
            unpack_members(part, self.members, checkpoint.path)
        self.best_cell, self.best_score = part.arrays["best_cell"], np.array(part.facts["score"], np.int64)
        self.made = part.facts["made"]
        self.resampling.bit_generator.state = part.facts["resampling"]
        for level in part.facts["trace"]:
            self.append(Level(**(level | {"incumbent": tuple(level["incumbent"])})))

    def save(self, checkpoint: Checkpoint) -> None:
        """Save where the search stands; its members only while levels are left."""
        facts = {
            "identity": self.identity,
            "level": len(self.trace),
            "made": self.made,
            "score": self.best_score.tolist(),
            "trace": [asdict(level) for level in self.trace],
            "resampling": self.resampling.bit_generator.state,
        }
        arrays = pack_members(self.members) if len(self.trace) < self.parameters.levels else {}
        checkpoint.save(Part(facts, arrays | {"best_cell": self.best_cell.copy()}))

    def adopt(self) -> None:
        """Take the best state of all members as the incumbent, ties by lowest member."""
        for member in self.members:
            if tuple(member.best_score) < tuple(self.best_score):
                self.best_score[:] = member.best_score
                self.best_cell[:] = member.best_cell
        for member in self.members:
            member.best_score[:] = self.best_score

    def late(self) -> bool:
        """Say whether the deadline has passed."""
        return self.deadline is not None and self.clock() >= self.deadline

    def finish(self) -> AnnealingResult:
        """Run all levels and return the incumbent."""
        done, proposals = len(self.trace), self.limits.proposals
        start = self.clock() - (self.trace[-1].seconds if done else 0.0)
        temperatures = self.parameters.temperatures()
        speed = self.pilot(temperatures[0]) if proposals is None else 0.0
        for n, temperature in enumerate(temperatures[done:], done):
            if self.late():
                break
            left = len(temperatures) - n
            each = self.share(proposals, n, left) if proposals is not None else self.timed_share(speed, left)
            before, made = self.clock(), self.made
            self.level(temperature, each)
            self.record(start, temperature, made)
            elapsed = self.clock() - before
            if proposals is None and elapsed > 0:
                speed = (self.made - made) / elapsed
            if n + 1 < len(temperatures):
                self.resample(temperature, temperatures[n + 1])
            if self.limits.checkpoint is not None:
                self.save(self.limits.checkpoint)
        score = (int(self.best_score[0]), int(self.best_score[1]), int(self.best_score[2]))
        stopped = "deadline" if self.late() else "finished"
        complete = len(self.trace) == len(temperatures)
        return AnnealingResult(self.best_cell, score, stopped, complete, self.made, self.trace)

    def share(self, proposals: int, n: int, left: int) -> int:
        """Proposals per member on level n of a reproducible run; remainders go to the first levels."""
        size = len(self.members)
        base, rest = divmod(proposals // size, left + n)
        return base + (n < rest)

    def timed_share(self, speed: float, left: int) -> int:
        """Proposals per member that fill this level's part of the time left."""
        assert self.deadline is not None
        return max(1, int(speed * (self.deadline - self.clock()) / left / len(self.members)))

    def pilot(self, temperature: float) -> float:
        """Make a few proposals to learn the speed, in proposals per second over all workers."""
        before = self.clock()
        self.level(temperature, _PILOT)
        elapsed = self.clock() - before
        return self.made / elapsed if elapsed > 0 else float(_PILOT)

    def level(self, temperature: float, proposals: int) -> None:
        """Run every member for `proposals` steps and take over the best."""
        late = self.late if self.deadline is not None else None
        step = Step(self.instance, self.mix, temperature, proposals, late)
        self.members = self.limits.executor.map(step, self.members)
        self.made += sum(member.proposals for member in self.members)
        self.adopt()

    def energies(self) -> list[float]:
        """E of the terminal states."""
        return [float(energy_of(self.instance, member.state.score)) for member in self.members]

    def resample(self, temperature: float, colder: float) -> None:
        """Replace members by copies of the terminal states; random streams stay with the member."""
        chosen = copies(self.energies(), temperature, colder, float(self.resampling.random()))
        keep = set(chosen)
        free = [m for m in range(len(chosen)) if m not in keep]
        for j in sorted(keep):
            for _ in range(chosen.count(j) - 1):
                copy_state(self.members[j].state, self.members[free.pop(0)].state)

    def record(self, start: float, temperature: float, made: int) -> None:
        """Describe the level that has just ended."""
        energies = self.energies()
        mean = sum(energies) / len(energies)
        level = Level(
            phase=self.phase,
            seconds=self.clock() - start,
            temperature=temperature,
            incumbent=(int(self.best_score[0]), int(self.best_score[1]), int(self.best_score[2])),
            energy_mean=mean,
            energy_spread=max(energies) - min(energies),
            survivors=len({member.state.cell.tobytes() for member in self.members}),
            proposals=self.made - made,
            evaluated=sum(int(member.counts[0]) for member in self.members),
            accepted=sum(int(member.counts[1]) for member in self.members),
        )
        self.append(level)

    def append(self, level: Level) -> None:
        """Add a level to the trace and report it."""
        self.trace.append(level)
        if self.limits.progress is not None:
            self.limits.progress(level)
