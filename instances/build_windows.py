"""Build the suite ``windows``: recorded and generated windows at production size; stop and start at will.

Usage: ``python instances/build_windows.py [--only TEXT] [--times 1]``

Every instance is a recipe in the manifest, not a file. Rows are certified first; the best known layout is the
planner's at ``--times`` its default budget; the bounds are the counting bounds under the instance's placement
and over all placements. ``routepack gap instances/windows --update-best`` takes better layouts in.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from routepack_opt.bounds.score import any_placement_bound, placement_bound
from routepack_opt.planner import Budget, default_budget, warm_up
from routepack_opt.solvers.rows import certify_rows
from routepack_opt.suite.gap import planner_method
from routepack_opt.suite.instances import Suite
from routepack_opt.suite.production import WindowRecipe, make_instance, make_problem, window_recipes

HERE = Path(__file__).resolve().parent


def main() -> None:
    """Build what is missing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="")
    parser.add_argument("--times", type=int, default=1)
    options = parser.parse_args()
    suite = Suite(HERE / "windows")
    warm_up()
    for recipe in window_recipes():
        if options.only in recipe.name and recipe.name not in suite.records:
            _add(suite, recipe, options.times)


def _add(suite: Suite, recipe: WindowRecipe, times: int) -> None:
    certificate = certify_rows(make_problem(recipe, HERE))
    if certificate.status != "certified" or certificate.rows is None:
        print(f"{recipe.name}: rows are {certificate.status}, left out", flush=True)
        return
    instance = make_instance(replace(recipe, rows=certificate.rows), HERE)
    problem = instance.problem
    budget = Budget(proposals=times * default_budget(problem).proposals)
    attempt = planner_method(budget=budget)(instance, 0)
    record = suite.add(instance)
    suite.improve(instance, attempt.layout)
    demand = instance.placement.demand(problem.item_counts)
    suite.raise_bound(instance.name, placement_bound(problem, instance.rows, demand).components)
    record.bound_any = list(any_placement_bound(problem, instance.rows).components)
    suite.save()
    print(f"{instance.name}: gap {record.gap:.5f}, over all placements {record.gap_any:.5f}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
