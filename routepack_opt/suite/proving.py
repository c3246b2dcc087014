"""Proving a suite's optima, a little at a time: every run starts from what the manifest holds.

Guarantees: a record never gets worse (only rescored layouts and exact bounds enter, and only better ones);
the manifest is written after every instance, so a run that is stopped loses at most the instance it was at.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from importlib.metadata import version
from typing import Any

from routepack_opt._version import __version__
from routepack_opt.errors import CheckError
from routepack_opt.layout import Layout
from routepack_opt.solvers.exact import solve_exact
from routepack_opt.solvers.oracle import refusal, solve_by_subsets
from routepack_opt.solvers.patterns import closing
from routepack_opt.suite.instances import Instance, Record, Suite

#: What a backend of `proved_by` is made of.
_PACKAGES = {"cpsat": "ortools", "highs": "highspy", "pyomo": "pyomo"}
_ORACLE_ITEMS = 16  # more take longer than row patterns
_LEAST_SECONDS = 1.0  # what is left of an instance's time below this is not worth building a model for


@dataclass(frozen=True)
class Step:
    """What one run on one instance changed.

    Parameters
    ----------
    name : str
        Instance.
    backend : str
        Who worked on it: "oracle", "patterns" or "cpsat".
    seconds : float
        Wall-clock time it took.
    before, after : tuple of (list of int or None, list of int or None)
        Best known score and bound.
    proven : int
        Leading components that are proven now.
    interrupted : bool
        Whether Ctrl-C ended it.
    """

    name: str
    backend: str
    seconds: float
    before: tuple[list[int] | None, list[int] | None]
    after: tuple[list[int] | None, list[int] | None]
    proven: int
    interrupted: bool = False


def prove_open(
    suite: Suite, seconds: float, *, only: str = "", progress: Callable[[Step, int], None] | None = None
) -> list[Step]:
    """Give every instance that is not proven a share of solver time, those that had least first.

    Parameters
    ----------
    suite : Suite
        Changed in place, and on disk after every instance.
    seconds : float
        Wall-clock time per instance over all runs; what an instance has had counts, so a second run with the
        same time only finishes what the first left, and a longer time goes on from where it stopped.
    only : str
        Part of the instance names to work on.
    progress : callable, optional
        Called after every instance with the step and how many are left.

    Returns
    -------
    list of Step
        In the order of work; the last one says whether Ctrl-C ended the run.
    """
    names = [name for name, record in suite.records.items() if record.proven < 3 and only in name]
    names.sort(key=lambda name: (_spent(suite.records[name]), name))
    steps: list[Step] = []
    for k, name in enumerate(names):
        left = seconds - _spent(suite.records[name])
        if left < _LEAST_SECONDS:
            continue
        steps.append(prove(suite, name, left))
        if progress is not None:
            progress(steps[-1], len(names) - k - 1)
        if steps[-1].interrupted:
            break
    return steps


def prove(suite: Suite, name: str, seconds: float) -> Step:
    """Work on one instance, from its best known layout and bound, and keep what is better.

    Parameters
    ----------
    suite : Suite
        Changed in place and on disk.
    name : str
        Instance.
    seconds : float
        Time limit. The subset oracle is asked where it applies, else row patterns, else CP-SAT.

    Raises
    ------
    CheckError
        When a solver contradicts what is recorded.
    """
    asked, record = suite.load(name), suite.records[name]
    before = (record.best, record.bound)
    started = time.perf_counter()
    backend = _backend(asked, record)
    found = _BACKENDS[backend](suite, asked, record, seconds)
    if found.layout is not None:
        suite.improve(asked, found.layout)
    suite.raise_bound(name, found.bound)
    spent = time.perf_counter() - started
    note(record, backend, record.proven, spent)
    suite.save()
    return Step(name, backend, spent, before, (record.best, record.bound), record.proven, found.interrupted)


@dataclass(frozen=True)
class _Found:
    """What a backend brings back."""

    layout: Layout | None
    bound: Sequence[int | None]
    interrupted: bool = False


def _backend(asked: Instance, record: Record) -> str:
    """Choose what is most likely to prove the instance."""
    if refusal(asked.problem) is None and asked.problem.items.size <= _ORACLE_ITEMS:
        return "oracle"
    if closing.refusal(asked.problem) is None and record.layout is not None:
        return "patterns"
    return "cpsat"


def _by_oracle(suite: Suite, asked: Instance, record: Record, seconds: float) -> _Found:
    exact = solve_by_subsets(asked.problem, asked.placement, asked.rows)
    if exact.layout is None or exact.score is None:
        raise CheckError(f"{asked.name}: the subset oracle finds no layout")
    return _Found(exact.layout, exact.score.components)


def _by_patterns(suite: Suite, asked: Instance, record: Record, seconds: float) -> _Found:
    layout = suite.layout(asked.name)
    assert layout is not None
    known = (asked.problem, asked.placement, asked.rows, layout)
    result = closing.solve_by_patterns(*known, seconds=seconds)
    return _Found(result.layout, result.bound, result.interrupted)


def _by_cpsat(suite: Suite, asked: Instance, record: Record, seconds: float) -> _Found:
    result = solve_exact(
        asked.problem,
        placement=asked.placement,
        rows=asked.rows,
        hint=suite.layout(asked.name),
        bound=record.bound,
        seed=record.proved_by.get("cpsat", {}).get("runs", 0),  # another run searches in another order
        time_limit=seconds,
    )
    if result.termination in ("error", "infeasible"):
        raise CheckError(f"{asked.name}: {result.message or result.infeasible}")
    bound = [low if isinstance(low, int) else None for low in result.bound]
    return _Found(result.layout, bound, result.termination == "interrupted")


_BACKENDS: dict[str, Callable[[Suite, Instance, Record, float], _Found]] = {
    "oracle": _by_oracle,
    "patterns": _by_patterns,
    "cpsat": _by_cpsat,
}


def note(record: Record, backend: str, components: int, seconds: float) -> None:
    """Write down who worked on a record, adding to what that backend did before.

    Parameters
    ----------
    record : Record
        Changed in place.
    backend : str
        As in `solve_exact`, or "oracle" or "patterns".
    components : int
        Leading components proven when it stopped.
    seconds : float
        Wall-clock time it took.
    """
    past: dict[str, Any] = record.proved_by.get(backend, {})
    package = _PACKAGES.get(backend)
    record.proved_by[backend] = {
        "by": f"{package} {version(package)}" if package else f"routepack_opt {__version__}",
        "components": max(components, past.get("components", 0)),
        "seconds": round(seconds + past.get("seconds", 0.0), 2),
        "runs": past.get("runs", 0) + 1,
        "date": date.today().isoformat(),
    }


def _spent(record: Record) -> float:
    """Wall-clock time that solvers have had for an instance."""
    return float(sum(entry["seconds"] for entry in record.proved_by.values()))
