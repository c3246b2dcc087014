"""Proving a suite a little at a time: what is stored is gone on from, and nothing ever gets worse."""

import numpy as np
import pytest
from test_instances import instance

from routepack_opt.errors import CheckError, InputError
from routepack_opt.layout import Layout
from routepack_opt.solvers.exact import solve_exact
from routepack_opt.solvers.oracle import solve_by_subsets
from routepack_opt.suite import proving
from routepack_opt.suite.instances import Suite
from routepack_opt.suite.proving import note, prove, prove_open


@pytest.fixture
def asked():
    return instance(samples=7)


@pytest.fixture
def optimum(asked):
    return solve_by_subsets(asked.problem, asked.placement, 2)


@pytest.fixture
def suite(tmp_path, asked, optimum):
    """A suite with a layout that is not the best one."""
    made = Suite(tmp_path)
    made.add(asked)
    worse = next(
        layout
        for k in range(4**7)
        if (layout := Layout([k // 4**i % 4 for i in range(7)], 2, 2)).broken_rule(asked.problem) is None
        and asked.score(layout).primary > optimum.score.primary
    )
    made.improve(asked, worse)
    made.save()
    return made


def always(monkeypatch, backend):
    monkeypatch.setattr(proving, "_backend", lambda asked, record: backend)


@pytest.mark.parametrize("backend", ["oracle", "patterns", "cpsat"])
def test_an_open_instance_is_proven_and_noted(suite, optimum, monkeypatch, backend):
    always(monkeypatch, backend)
    (step,) = prove_open(suite, 60.0)
    record = Suite(suite.folder).records["tiny"]  # it is on disk
    assert record.best == record.bound == list(optimum.score.components)
    assert record.proven == step.proven == 3
    entry = record.proved_by[backend]
    assert (entry["components"], entry["runs"]) == (3, 1)
    assert suite.verify() == []
    assert prove_open(suite, 1000.0) == []  # nothing is open


def test_a_solve_starts_from_what_is_stored(asked, optimum):
    """With two components settled by stored bounds, only the third is solved."""
    best = optimum.score.components
    known = [best[0], best[1], None]
    settled = {"placement": asked.placement, "rows": 2, "hint": optimum.layout, "bound": known}
    result = solve_exact(asked.problem, **settled)
    assert result.termination == "optimal"
    assert {entry.component for entry in result.log} <= {"row_peak"}
    unsolved = solve_exact(asked.problem, time_limit=0.0, **settled)
    assert unsolved.proven[:2] == (True, True)
    assert unsolved.bound[:2] == best[:2]


@pytest.mark.parametrize("backend", ["cpsat", "highs"])
def test_stored_bounds_do_not_change_the_optimum(asked, optimum, backend):
    bound = [value - 1 for value in optimum.score.components]
    result = solve_exact(asked.problem, placement=asked.placement, rows=2, backend=backend, bound=bound)
    assert result.termination == "optimal"
    assert result.score == optimum.score


def test_a_bound_above_a_layout_is_refused(asked, optimum, suite):
    high = [value + 1 for value in optimum.score.components]
    with pytest.raises(InputError, match="bound"):
        solve_exact(asked.problem, placement=asked.placement, rows=2, hint=optimum.layout, bound=high)
    suite.improve(asked, optimum.layout)
    with pytest.raises(CheckError, match="above the best known"):
        suite.raise_bound("tiny", high)


def test_bounds_only_rise(suite, optimum):
    best = optimum.score.components
    assert suite.raise_bound("tiny", [best[0] - 2, None, 3])
    assert not suite.raise_bound("tiny", [best[0] - 5, 0, None])
    assert suite.records["tiny"].bound == [best[0] - 2, 0, 3]


def test_time_is_counted_over_runs(suite, monkeypatch):
    always(monkeypatch, "cpsat")
    given = []

    def run(suite, name, seconds):
        given.append(seconds)
        note(suite.records[name], "cpsat", 0, 4.0)
        return proving.Step(name, "cpsat", 4.0, (None, None), (None, None), 0)

    monkeypatch.setattr(proving, "prove", run)
    for seconds in (10.0, 10.0, 8.5):  # the last leaves too little to begin
        prove_open(suite, seconds)
    assert given == [10.0, 6.0]
    assert suite.records["tiny"].proved_by["cpsat"]["runs"] == 2


def test_ctrl_c_keeps_the_instance_and_ends_the_run(suite, asked, optimum, monkeypatch, tmp_path):
    always(monkeypatch, "cpsat")
    suite.add(type(asked)("zweite", asked.problem, asked.placement, 2, {}))
    from routepack_opt.solvers.exact.cpsat import CpSatBackend
    from routepack_opt.solvers.exact.result import Outcome

    def stopped(self, model, component, locks, hint, seconds, report):
        return Outcome("interrupted", model.hint(optimum.layout), optimum.score.primary // model.unit - 1)

    monkeypatch.setattr(CpSatBackend, "minimise", stopped)
    steps = prove_open(suite, 60.0)
    assert [step.interrupted for step in steps] == [True]
    record = Suite(suite.folder).records[steps[0].name]
    assert record.best == list(optimum.score.components)
    assert record.bound[0] > 0
    assert suite.verify() == []


def test_a_contradiction_stops_the_run(suite, optimum, monkeypatch):
    monkeypatch.setattr(proving, "solve_by_subsets", lambda *_: type(optimum)(None, None))
    before = np.copy(suite.records["tiny"].best)
    with pytest.raises(CheckError, match="no layout"):
        prove(suite, "tiny", 10.0)
    assert (suite.records["tiny"].best == before).all()
