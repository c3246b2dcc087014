"""Instances and suites: what is stored is what was meant, and only checked solutions enter."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_exact import RULES, best_score, random_placement, random_problem

from routepack_opt.errors import CheckError, FormatError, InputError
from routepack_opt.layout import Layout
from routepack_opt.solvers.exact import solve_exact
from routepack_opt.solvers.oracle import refusal, solve_by_subsets
from routepack_opt.suite.instances import Instance, Suite
from routepack_opt.suite.recipes import RULES as RECIPE_RULES
from routepack_opt.suite.recipes import make, medium_recipes, small_recipes

INSTANCES = Path(__file__).parent.parent / "instances"


def instance(seed=4, rule="none", samples=6, rows=2):
    problem = random_problem(seed, samples=samples, dp=2, ep=2, layers=2, stages=3, rule=rule)
    return Instance("tiny", problem, random_placement(problem), rows, {"licence": "generated"})


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rule=st.sampled_from(RULES))
def test_a_file_gives_back_the_same_question(tmp_path_factory, seed, rule):
    path = tmp_path_factory.mktemp("one") / "tiny.npz"
    asked = instance(seed, rule)
    asked.save(path)
    assert Instance.load(path).digest == asked.digest
    assert Instance.load(path).provenance == asked.provenance


def test_a_suite_takes_better_layouts_only(tmp_path):
    asked = instance()
    suite = Suite(tmp_path)
    suite.add(asked)
    best = solve_by_subsets(asked.problem, asked.placement, 2)
    worse = next(
        layout
        for cells in [[0, 1, 2, 3, 0, 1], [0, 0, 1, 2, 3, 3], [0, 1, 1, 2, 2, 3], [3, 2, 1, 0, 0, 1]]
        if (layout := Layout(np.array(cells), 2, 2)).broken_rule(asked.problem) is None
        and asked.score(layout) != best.score
    )
    assert suite.improve(asked, worse)
    assert suite.improve(asked, best.layout)
    assert not suite.improve(asked, worse)
    suite.records["tiny"].bound = list(best.score.components)
    suite.save()
    again = Suite(tmp_path)
    assert again.verify() == []
    assert again.records["tiny"].proven == 3


def test_verify_finds_lies(tmp_path):
    asked, suite = instance(), Suite(tmp_path)
    suite.add(asked)
    suite.improve(asked, solve_by_subsets(asked.problem, asked.placement, 2).layout)
    suite.records["tiny"].best[0] -= 1
    assert "scores" in suite.verify()[0]
    suite.records["tiny"].digest = "0" * 64
    with pytest.raises(CheckError, match="digest"):
        suite.load("tiny")
    assert "digest" in suite.verify()[0]


def test_a_layout_below_the_bound_is_not_believed(tmp_path):
    asked, suite = instance(), Suite(tmp_path)
    layout = solve_by_subsets(asked.problem, asked.placement, 2).layout
    suite.add(asked).bound = [asked.score(layout).primary + 1] * 3
    with pytest.raises(CheckError, match="below the recorded bound"):
        suite.improve(asked, layout)


def test_wrong_rows_and_broken_manifests(tmp_path):
    with pytest.raises(InputError, match="2 rows"):
        instance().score(Layout(np.arange(6), 3, 2))
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(FormatError, match="manifest"):
        Suite(tmp_path)


def test_recipes_cover_what_the_suite_promises():
    recipes = small_recipes()
    assert len(recipes) >= 120
    assert len({r.name for r in recipes}) == len(recipes)
    assert {r.rule for r in recipes} == set(RECIPE_RULES)
    assert any(r.lengths.startswith("window-") for r in recipes)
    assert {r.shards for r in recipes} == {1, 2}
    assert len(medium_recipes()) >= 40


@pytest.mark.parametrize("recipe", small_recipes()[::11], ids=lambda r: r.name)
def test_recipes_are_reproducible_and_small(recipe, tmp_path):
    one, two = (make(recipe, INSTANCES / "gsm8k-moe") for _ in range(2))
    assert one.digest == two.digest
    one.save(tmp_path / "one.npz")
    assert Instance.load(tmp_path / "one.npz").digest == one.digest
    work = one.problem.linear.sum() * one.problem.items.tokens.sum()
    assert work < 2**40


@pytest.mark.parametrize("name", ["exact-small", "exact-medium"])
def test_the_shipped_suites_hold(name):
    suite = Suite(INSTANCES / name)
    assert suite.records
    assert suite.verify() == []
    if name == "exact-small":
        assert all(record.proven == 3 for record in suite.records.values())
        assert all(len(record.proved_by) >= 2 for record in suite.records.values())


def test_the_medium_suite_has_bounds_and_enough_open_instances():
    records = Suite(INSTANCES / "exact-medium").records.values()
    assert sum(record.proven < 3 for record in records) >= 40
    for record in records:
        assert record.best and record.bound and record.proved_by
        assert record.gap < 0.2
        closed = any(entry["components"] == 3 for entry in record.proved_by.values())
        assert closed == (record.proven == 3)


def proven_by(backend):
    """Instances of exact-small that a backend proved, fastest first."""
    records = Suite(INSTANCES / "exact-small").records
    entries = {n: r.proved_by[backend] for n, r in records.items() if backend in r.proved_by}
    return sorted(
        (n for n, e in entries.items() if e["components"] == 3), key=lambda n: entries[n]["seconds"]
    )


def test_who_proved_what_is_written_down():
    suite = Suite(INSTANCES / "exact-small")
    counts = {backend: len(proven_by(backend)) for backend in ("cpsat", "highs", "oracle")}
    assert counts == {"cpsat": 165, "highs": 160, "oracle": 114}
    for asked, record in suite:
        if asked.problem.items.size <= 18:
            assert ("oracle" in record.proved_by) == (refusal(asked.problem) is None)
        for entry in record.proved_by.values():
            assert set(entry) == {"by", "components", "seconds", "runs", "date"}


@pytest.mark.parametrize("backend", ["cpsat", "highs"])
def test_a_backend_proves_again_what_the_manifest_says(backend):
    suite = Suite(INSTANCES / "exact-small")
    for name in proven_by(backend)[:60:8]:
        asked = suite.load(name)
        again = solve_exact(asked.problem, placement=asked.placement, rows=asked.rows, backend=backend)
        assert again.termination == "optimal"
        assert list(again.score.components) == suite.records[name].best


def test_the_oracle_proves_again_what_the_manifest_says():
    suite = Suite(INSTANCES / "exact-small")
    for name in proven_by("oracle"):
        asked = suite.load(name)
        if asked.problem.items.size <= 14:
            again = solve_by_subsets(asked.problem, asked.placement, asked.rows)
            assert list(again.score.components) == suite.records[name].best


def test_the_smallest_shipped_optima_are_those_of_enumeration():
    suite = Suite(INSTANCES / "exact-small")
    chosen = [name for name, record in suite.records.items() if record.shape["N"] < 8]
    assert len(chosen) >= 10
    for name in chosen[::2]:
        asked = suite.load(name)
        assert list(best_score(asked.problem, asked.placement, asked.rows)) == suite.records[name].best
