"""Build and prove the suites ``exact-small`` and ``exact-medium``; stop and start at will.

Usage: ``python instances/build_exact.py small|medium [--seconds 60] [--limit 200] [--only TEXT]``

``small``: every instance is solved by CP-SAT and by HiGHS, and by the subset oracle where it applies; what
CP-SAT proves within the limit is kept, with who else proves it; two proofs that differ stop the build.
``medium``: missing instances are made with the planner's layout, then every open one is worked on for up to
``--seconds`` in all, from its recorded layout and bound. Records are written at once, so a second run goes on
where the first stopped; Ctrl-C keeps what is proven of the instance at hand.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from routepack_opt.errors import CheckError, InputError, NoLayoutError
from routepack_opt.planner import plan
from routepack_opt.scoring import Score
from routepack_opt.solvers.exact import ExactResult, solve_exact
from routepack_opt.solvers.oracle import refusal, solve_by_subsets
from routepack_opt.suite.instances import Instance, Suite
from routepack_opt.suite.proving import Step, note, prove_open
from routepack_opt.suite.recipes import Recipe, make, medium_recipes, small_recipes

HERE = Path(__file__).resolve().parent
ORACLE_ITEMS = 18  # 20 take minutes where a shard has two slots, and two solvers agree anyway
SKIPPED = "skipped.txt"


def main() -> None:
    """Build what is missing, and go on with what is open."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=["small", "medium"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--limit", type=int, default=10**6)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    suite = Suite(HERE / f"exact-{options.suite}")
    suite.folder.mkdir(exist_ok=True)
    recipes = small_recipes() if options.suite == "small" else medium_recipes()
    _build(suite, [r for r in recipes if options.only in r.name], options)
    if options.suite == "small":
        _complete(suite, options.only, options.seconds)
    else:
        steps = prove_open(suite, options.seconds, only=options.only, progress=_tell)
        left = sum(record.proven < 3 for record in suite.records.values())
        print(f"{len(steps)} instances worked on, {left} of {len(suite.records)} still open")


def _build(suite: Suite, recipes: list[Recipe], options: argparse.Namespace) -> None:
    """Make the instances that the suite does not have."""
    path = suite.folder / SKIPPED
    skipped = {line.split("\t")[0] for line in path.read_text().splitlines()} if path.exists() else set()
    for recipe in recipes:
        if recipe.name in suite.records or recipe.name in skipped:
            continue
        if len(suite.records) >= options.limit:
            break
        try:
            instance = make(recipe, HERE / "gsm8k-moe")
            keep = _small if options.suite == "small" else _medium
            reason = keep(suite, instance, options.seconds)
        except InputError as error:
            reason = str(error)
        if reason:
            with path.open("a") as file:
                file.write(f"{recipe.name}\t{reason}\n")
        print(f"{recipe.name}: {reason or 'kept'} ({len(suite.records)} in the suite)", flush=True)


def _small(suite: Suite, instance: Instance, seconds: float) -> str | None:
    """Keep the instance if CP-SAT proves it; return why not."""
    result, spent = _solve(instance, "cpsat", seconds)
    if result.termination != "optimal" or result.score is None or result.layout is None:
        return f"cpsat: {result.termination} {' '.join(result.infeasible)}".strip()
    record = suite.add(instance)
    suite.improve(instance, result.layout)
    record.bound = record.best
    note(record, "cpsat", 3, spent)
    suite.save()
    return None


def _complete(suite: Suite, only: str, seconds: float) -> None:
    """Ask HiGHS, and the subset oracle wherever it applies, where they were not asked yet."""
    for instance, record in suite:
        asked = {"highs", "oracle"} if _enumerable(instance) else {"highs"}
        for backend in sorted(asked - set(record.proved_by)):
            if only not in instance.name:
                continue
            proven, spent = _second_opinion(suite, instance, backend, seconds)
            note(record, backend, proven, spent)
            suite.save()
            print(f"{instance.name}: {backend} proved {proven} of 3 in {spent:.1f} s", flush=True)


def _enumerable(instance: Instance) -> bool:
    return refusal(instance.problem) is None and instance.problem.items.size <= ORACLE_ITEMS


def _second_opinion(suite: Suite, instance: Instance, backend: str, seconds: float) -> tuple[int, float]:
    """Return how many components another backend proves, and its time; it must not disagree."""
    layout = suite.layout(instance.name)
    assert layout is not None
    if backend == "highs":
        result, spent = _solve(instance, backend, seconds)
        if result.termination == "optimal":
            _agree(instance, instance.score(layout), backend, result.score)
        return sum(result.proven), spent
    started = time.perf_counter()
    exact = solve_by_subsets(instance.problem, instance.placement, instance.rows)
    _agree(instance, instance.score(layout), backend, exact.score)
    return 3, time.perf_counter() - started


def _agree(instance: Instance, score: Score, backend: str, other: Score | None) -> None:
    if other != score:
        raise CheckError(f"{instance.name}: cpsat {score} and {backend} {other} both optimal")


def _medium(suite: Suite, instance: Instance, seconds: float) -> str | None:
    """Start a record with the planner's layout."""
    try:
        known = {"placement": instance.placement, "rows": instance.rows, "baselines": False}
        layout = plan(instance.problem, **known).layout
    except NoLayoutError:
        return "the planner finds no layout"
    suite.add(instance)
    suite.improve(instance, layout)
    suite.save()
    return None


def _solve(instance: Instance, backend: str, seconds: float) -> tuple[ExactResult, float]:
    started = time.perf_counter()
    known = {"placement": instance.placement, "rows": instance.rows, "backend": backend}
    result = solve_exact(instance.problem, time_limit=seconds, **known)
    return result, time.perf_counter() - started


def _tell(step: Step, left: int) -> None:
    """Print one line per instance: what became of the first component."""
    best, bound = (part[0] if part else None for part in step.after)
    was_best, was_bound = (part[0] if part else None for part in step.before)
    gap = f"{100 * (best / bound - 1):.3f} %" if best and bound else "unknown"
    changes = f"best {was_best} -> {best}, bound {was_bound} -> {bound}, gap {gap}"
    state = f"{step.proven} of 3 proven; {left} left"
    print(f"{step.name}: {step.backend} {step.seconds:.1f} s, {changes}, {state}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
