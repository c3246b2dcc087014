"""The suite of windows at production size: recipes give what the manifest says, and its best improves."""

import json
from pathlib import Path

import pytest

from routepack_opt.cli.app import run
from routepack_opt.errors import CheckError
from routepack_opt.solvers.rows import certify_rows
from routepack_opt.suite.gap import planner_method
from routepack_opt.suite.instances import Suite
from routepack_opt.suite.production import make_problem, window_recipes

INSTANCES = Path(__file__).parent.parent / "instances"
NAMES = sorted(recipe.name for recipe in window_recipes())
QUICK = [*(name for name in NAMES if name.startswith("gsm8k")), "qwen-0-g2"]
SLOW = [name for name in NAMES if name not in QUICK]


def check(name):
    suite = Suite(INSTANCES / "windows")
    suite.records = {name: suite.records[name]}
    assert suite.verify() == []
    record = suite.records[name]
    assert 0 < record.gap <= record.gap_any < 0.02
    recipe = next(r for r in window_recipes() if r.name == name)
    rows = certify_rows(make_problem(recipe, INSTANCES))
    assert (rows.status, rows.rows) == ("certified", record.shape["R"])


def test_every_recipe_is_in_the_manifest_and_nothing_else():
    records = Suite(INSTANCES / "windows").records
    assert sorted(records) == NAMES
    assert [path.name for path in (INSTANCES / "windows").iterdir()] == ["manifest.json"]
    for recipe in window_recipes():
        made_from = records[recipe.name].provenance["made_from"]
        assert made_from | {"rows": 0, "stages": recipe.stages} == vars(recipe)
        assert records[recipe.name].provenance["licence"]


@pytest.mark.parametrize("name", QUICK)
def test_a_record_holds(name):
    check(name)


@pytest.mark.long
@pytest.mark.parametrize("name", SLOW)
def test_a_record_of_the_larger_windows_holds(name):
    check(name)


@pytest.fixture
def poor(tmp_path, monkeypatch):
    """A copy of one record with a seed's layout as its best, below a working directory."""
    folder = tmp_path / "instances" / "windows"
    folder.mkdir(parents=True)
    (tmp_path / "instances" / "gsm8k-moe").symlink_to(INSTANCES / "gsm8k-moe")
    suite, name = Suite(INSTANCES / "windows"), "gsm8k-00-g2"
    suite.folder, suite.records = folder, {name: suite.records[name]}
    asked, record = suite.load(name), suite.records[name]
    record.best = record.layout = None
    suite.improve(asked, planner_method("seed")(asked, 0).layout)
    suite.save()
    monkeypatch.chdir(tmp_path)
    return suite


def test_gap_finds_the_suite_by_name_and_improves_it(poor, capsys):
    (name,) = poor.records
    command = ["gap", "windows", "--seeds", "1", "--proposals", "20000", "--update-best", "--json"]
    assert run(command) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["score"] < row["best"]
    again = Suite(poor.folder)
    assert again.records[name].best == row["score"]
    assert again.records[name].bound == poor.records[name].bound
    assert again.verify() == []


def test_what_a_recipe_makes_must_be_what_the_manifest_means(poor):
    (name,) = poor.records
    poor.records[name].provenance["made_from"]["capacity"] += 1
    with pytest.raises(CheckError, match="digest"):
        poor.load(name)


def test_a_wrong_bound_over_all_placements_is_found(poor):
    (name,) = poor.records
    poor.records[name].bound_any[0] += 1
    assert "over all placements" in poor.verify()[0]
