"""Build and prove the suites ``exact-small`` and ``exact-medium``; stop and start at will.

Usage: ``python instances/build_exact.py small|medium [--seconds 60] [--limit 200] [--only TEXT]``

Every instance is solved by CP-SAT and by HiGHS (small: also by the subset oracle where it applies) and its
record written at once, so a second run goes on where the first stopped. ``small`` keeps what CP-SAT proves
within the limit, marks what HiGHS proves too, and leaves the rest out; two proofs that differ stop the build.
"""

from __future__ import annotations

import argparse
import sys
import time
from datetime import date
from importlib.metadata import version
from pathlib import Path

from routepack_opt import __version__
from routepack_opt.errors import CheckError, InputError, NoLayoutError
from routepack_opt.layout import Layout
from routepack_opt.planner import plan
from routepack_opt.solvers.exact import ExactResult, solve_exact
from routepack_opt.solvers.oracle import refusal, solve_by_subsets
from routepack_opt.suite.instances import Instance, Record, Suite
from routepack_opt.suite.recipes import make, medium_recipes, small_recipes

HERE = Path(__file__).resolve().parent
ORACLE_ITEMS = 16  # more take long, and two solvers agree anyway
SKIPPED = "skipped.txt"


def main() -> None:
    """Build what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suite", choices=["small", "medium"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--limit", type=int, default=10**6)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    suite = Suite(HERE / f"exact-{options.suite}")
    recipes = small_recipes() if options.suite == "small" else medium_recipes()
    suite.folder.mkdir(exist_ok=True)
    skipped = _skipped(suite)
    for recipe in recipes:
        if recipe.name in suite.records or recipe.name in skipped or options.only not in recipe.name:
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
            with (suite.folder / SKIPPED).open("a") as file:
                file.write(f"{recipe.name}\t{reason}\n")
        print(f"{recipe.name}: {reason or 'kept'} ({len(suite.records)} in the suite)", flush=True)


def _skipped(suite: Suite) -> set[str]:
    path = suite.folder / SKIPPED
    return {line.split("\t")[0] for line in path.read_text().splitlines()} if path.exists() else set()


def _small(suite: Suite, instance: Instance, seconds: float) -> str | None:
    """Keep the instance if two solvers prove the same optimum; return why not."""
    result, record_of = _solve(instance, "cpsat", seconds)
    if result.termination != "optimal" or result.score is None or result.layout is None:
        return f"cpsat: {result.termination} {' '.join(result.infeasible)}".strip()
    proofs = [record_of]
    other, record_of = _solve(instance, "highs", seconds)
    if other.termination == "optimal" and other.score != result.score:
        raise CheckError(f"{instance.name}: cpsat {result.score} and highs {other.score} both optimal")
    proofs.append(record_of)  # with fewer than three components where HiGHS needs longer
    if refusal(instance.problem) is None and instance.problem.items.size <= ORACLE_ITEMS:
        started = time.perf_counter()
        exact = solve_by_subsets(instance.problem, instance.placement, instance.rows)
        if exact.score != result.score:
            raise CheckError(f"{instance.name}: cpsat {result.score} and the oracle {exact.score}")
        proofs.append(
            _proof(f"subset oracle (routepack_opt {__version__})", 3, time.perf_counter() - started)
        )
    record = suite.add(instance)
    suite.improve(instance, result.layout)
    record.bound, record.proofs = record.best, proofs
    suite.save()
    return None


def _medium(suite: Suite, instance: Instance, seconds: float) -> str | None:
    """Record the best layout and bound that CP-SAT finds in the time, started from the planner's layout."""
    known = {"placement": instance.placement, "rows": instance.rows, "baselines": False}
    try:
        hint = plan(instance.problem, **known).layout
    except NoLayoutError:
        hint = None
    result, proof = _solve(instance, "cpsat", seconds, hint)
    if result.layout is None:
        return f"cpsat: {result.termination}, no layout"
    record: Record = suite.add(instance)
    suite.improve(instance, result.layout)
    record.bound = [int(value or 0) for value in result.bound]
    record.proofs = [proof]
    suite.save()
    return None


def _solve(
    instance: Instance, backend: str, seconds: float, hint: Layout | None = None
) -> tuple[ExactResult, dict[str, object]]:
    started = time.perf_counter()
    result = solve_exact(
        instance.problem,
        placement=instance.placement,
        rows=instance.rows,
        backend=backend,
        hint=hint,
        time_limit=seconds,
    )
    package = {"cpsat": "ortools", "highs": "highspy"}[backend]
    by = f"{backend} ({package} {version(package)})"
    return result, _proof(by, sum(result.proven), time.perf_counter() - started)


def _proof(by: str, components: int, seconds: float) -> dict[str, object]:
    today = date.today().isoformat()
    return {"by": by, "components": components, "seconds": round(seconds, 2), "date": today}


if __name__ == "__main__":
    sys.exit(main())
