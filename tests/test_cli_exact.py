"""The commands `solve` and `gap`: what they print, and their exit codes."""

import json

import pytest
from test_instances import instance

from routepack_opt.cli.app import run
from routepack_opt.solvers.oracle import solve_by_subsets
from routepack_opt.suite.instances import Suite


@pytest.fixture
def suite(tmp_path):
    made, asked = Suite(tmp_path), instance()
    made.add(asked)
    made.improve(asked, solve_by_subsets(asked.problem, asked.placement, 2).layout)
    made.records["tiny"].bound = list(made.records["tiny"].best)
    made.save()
    return made


def test_solve_prints_one_object(suite, capsys):
    assert run(["solve", str(suite.folder / "tiny.npz"), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["termination"] == "optimal"
    assert [int(value) for value in record["score"].values()] == suite.records["tiny"].best
    assert all(record["proven"].values())


def test_solve_for_people_and_its_log(suite, capsys):
    assert run(["solve", str(suite.folder / "tiny.npz"), "--no-hint", "--log"]) == 0
    printed = capsys.readouterr()
    assert "primary" in printed.out
    assert "incumbent" in printed.err
    assert "incumbent" not in printed.out


def test_solve_refuses_what_it_does_not_know(suite, capsys, tmp_path):
    assert run(["solve", str(suite.folder / "tiny.npz"), "--backend", "magic"]) == 2
    assert run(["solve", str(tmp_path / "none.npz")]) == 2
    assert "magic" in capsys.readouterr().err


def test_an_infeasible_instance_exits_with_its_rule(tmp_path, capsys):
    asked = instance(seed=0, rule="equal_samples", samples=5)
    asked.save(tmp_path / "odd.npz")
    assert run(["solve", str(tmp_path / "odd.npz")]) == 3
    assert "equal_samples_per_slot" in capsys.readouterr().err


def test_gap_reports_the_share(suite, capsys, tmp_path):
    rows = tmp_path / "rows.jsonl"
    command = ["gap", str(suite.folder), "--seeds", "1", "--proposals", "20000", "-o", str(rows), "--json"]
    assert run(command) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["summary"]["runs"] == 1
    assert len(rows.read_text().splitlines()) == 1
    assert run(["gap", str(tmp_path / "nowhere")]) == 2
