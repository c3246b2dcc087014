"""Parts of row certification: heuristics keep the rules, stops are honest, forced rows and progress work."""

import subprocess
import sys
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_rows import least_bins
from rows_cases import row_problem, small_problems

from routepack_opt.errors import InputError
from routepack_opt.solvers.highs_child import solve_file
from routepack_opt.solvers.rows import certify_rows, pipeline, verify, warm_up_rows
from routepack_opt.solvers.rows.anneal import anneal_bins
from routepack_opt.solvers.rows.columns import stage
from routepack_opt.solvers.rows.columns.branch import BranchAndPrice
from routepack_opt.solvers.rows.columns.dive import dive
from routepack_opt.solvers.rows.columns.enumeration import enumerate_within, solve_cover
from routepack_opt.solvers.rows.columns.generate import generate, items_of
from routepack_opt.solvers.rows.columns.guide import Guide
from routepack_opt.solvers.rows.columns.master import Sizes
from routepack_opt.solvers.rows.heuristics import (
    best_fit_decreasing,
    first_fit_decreasing,
    least_loaded_bins,
    subset_sum_fill,
)
from routepack_opt.solvers.rows.instance import RowTask
from routepack_opt.solvers.rows.reduction import core_of, filled
from routepack_opt.solvers.rows.state import ClassState, RowState

cases = st.integers(2, 30).flatmap(
    lambda cap: st.tuples(st.just(cap), st.lists(st.integers(1, cap), min_size=1, max_size=10))
)


def keeps(bins, where, count):
    load, held = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    np.add.at(load, where, bins.tokens)
    np.add.at(held, where, bins.samples)
    limit = bins.max_samples or 10**9
    return where.min() >= 0 and where.max() < count and load.max() <= bins.cap and held.max() <= limit


@settings(max_examples=100, deadline=None)
@given(small_problems())
def test_heuristics_keep_capacity_and_samples(problem):
    for bins in RowTask.from_problem(problem).classes:
        if not bins.items.size:
            continue
        for heuristic in (first_fit_decreasing, best_fit_decreasing, subset_sum_fill):
            where, used = heuristic(bins)
            assert keeps(bins, where, used), heuristic.__name__
            assert np.unique(where).size == used
        for where in (least_loaded_bins(bins, used), anneal_bins(bins, used, 2000)):
            assert where is None or keeps(bins, where, used)


@settings(max_examples=300, deadline=None)
@given(cases)
def test_fixed_bins_cost_nothing(case):
    cap, lengths = case
    bins = RowTask.from_problem(row_problem(lengths, dp=1, capacity=cap)).classes[0]
    core = core_of(bins)
    best = least_bins(lengths, cap)
    assert core.used + least_bins((core.bins.tokens * bins.unit).tolist(), cap) == best
    where, used = first_fit_decreasing(core.bins)
    assert keeps(bins, core.whole(where), core.used + used)


@settings(max_examples=200, deadline=None)
@given(cases, st.integers(0, 6), st.integers(0, 20))
def test_filling_wastes_no_more_than_allowed(case, keep, waste):
    cap, lengths = case
    bins = RowTask.from_problem(row_problem(lengths, dp=1, capacity=cap)).classes[0]
    found = filled(bins, keep, waste)
    load = np.bincount(found.fixed[found.fixed >= 0], bins.tokens[found.fixed >= 0], found.used)
    assert (load <= bins.cap).all()
    assert (bins.cap - load).sum() <= waste
    assert np.unique(found.fixed[found.fixed >= 0]).size == found.used


@settings(max_examples=60, deadline=None)
@given(cases)
def test_every_exact_method_finds_the_optimum(case):
    cap, lengths = case
    tokens = np.array(sorted(lengths, reverse=True), dtype=np.int64)
    sizes, index = Sizes.of(tokens, cap)
    best, late = least_bins(lengths, cap), time.monotonic() + 60
    columns = generate(sizes, [], 10**9, late)
    assert columns.bins <= best
    assert columns.converged
    for count in (best - 1, best):
        packs = count == best
        if count < 1:
            continue
        search = BranchAndPrice(late)
        status, found = search.search(sizes, [], count)
        assert (status == "feasible") == packs
        dived = dive(sizes, columns, count, late)
        listed = enumerate_within(sizes, columns, count, 60.0)
        answers = [found, dived]
        if listed is not None:
            status, chosen = solve_cover(sizes, listed.patterns, count, 60.0)
            assert (status == "feasible") == packs
            answers.append(chosen)
        for patterns in answers:
            if patterns is not None:
                assert len(patterns) <= count
                assert all(int(sizes.size @ p) <= cap for p in patterns)
                assert items_of(patterns, index) is not None


@settings(max_examples=60, deadline=None)
@given(cases)
def test_a_guide_places_every_item(case):
    cap, lengths = case
    (bins,) = RowTask.from_problem(row_problem(lengths, capacity=cap)).classes
    sizes, index = Sizes.of(bins.tokens, bins.cap)
    guide = Guide.of(generate(sizes, [], 10**9, time.monotonic() + 60), index)
    for count in (1, len(guide.patterns), len(lengths)):
        where = guide.start(bins, count)
        assert (where is None) == (count < max(1, len(guide.patterns)))
        assert where is None or (where.min() >= 0 and where.max() < count)


def test_forced_rows():
    problem = row_problem([5, 5, 5, 5, 2, 2], dp=1, row_multiple=2)
    assert (certify_rows(problem).rows, certify_rows(problem).status) == (4, "certified")
    more = certify_rows(problem, rows=6)
    assert (more.rows, more.lower_bound, more.status) == (6, 4, "best_known")
    verify(more, problem)
    for rows, rule in ((5, "row_multiple"), (2, "rows"), (8, "rows")):
        found = certify_rows(problem, rows=rows)
        assert (found.rows, found.status, found.rule) == (None, "unknown", rule)


def test_forced_rows_under_equal_counts():
    problem = row_problem([3] * 8, dp=2, equal_samples_per_slot=True)
    for rows in (2, 3, 4):
        found = certify_rows(problem, rows=rows)
        assert found.rows == rows
        verify(found, problem)


@pytest.mark.parametrize("bad", [{"stages": "some"}, {"time_limit": 0}, {"rows": 0}])
def test_bad_arguments(bad):
    with pytest.raises(InputError):
        certify_rows(row_problem([1]), **bad)


def test_interrupt_keeps_what_is_known(monkeypatch):
    def interrupt(state):
        raise KeyboardInterrupt

    problem = row_problem([7, 6, 5, 4, 4, 3, 2, 2], capacity=11)
    full = pipeline._stages("all")
    monkeypatch.setattr(pipeline, "_stages", lambda which: [*full[:1], full[1], ("stop", interrupt)])
    monkeypatch.setattr("routepack_opt.solvers.rows.state.RowState.closed", property(lambda self: False))
    found = certify_rows(problem)
    assert found.stop == "interrupted"
    assert found.rows is not None
    verify(found, problem)


def test_time_limit_is_reported_and_kept():
    rng = np.random.default_rng(5)
    problem = row_problem(rng.integers(250, 501, 3000), capacity=1000)
    warm_up_rows()
    found = certify_rows(problem, time_limit=0.001)
    assert found.stop == "time_limit"
    assert found.status == "best_known"
    verify(found, problem)


@pytest.mark.parametrize(("left", "tried"), [(0.3, False), (30.0, True)])
def test_columns_start_only_where_their_first_patterns_fit_the_time(monkeypatch, left, tried):
    lengths = np.random.default_rng(0).integers(1, 65_537, 4_000)
    problem = row_problem(lengths, capacity=65_536)
    task = RowTask.from_problem(problem)
    state = RowState(problem, task, [ClassState(c) for c in task.classes], left, clock=lambda: 0.0)
    monkeypatch.setattr(stage, "generate", lambda *_: pytest.fail("columns"))
    if tried:
        with pytest.raises(pytest.fail.Exception, match="columns"):
            stage.finest_bounds(state)
    else:
        stage.finest_bounds(state)


def test_cheap_stages_repeat_and_report():
    rng = np.random.default_rng(6)
    problem = row_problem(rng.integers(100, 501, 300), dp=2, capacity=1000)
    events = []
    first = certify_rows(problem, stages="cheap", progress=events.append)
    second = certify_rows(problem, stages="cheap")
    assert first.packing.tolist() == second.packing.tolist()
    assert [e["stage"] for e in events] == [name for name, _ in first.stages]
    assert all(a["lower"] <= b["lower"] for a, b in pairwise(events))


def test_a_child_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("routepack_opt.solvers.highs_child._CHILD", "import time\ntime.sleep(60)\n")
    started = time.monotonic()
    assert solve_file(tmp_path / "none.mps", 0.1).termination == "killed"
    assert time.monotonic() - started < 30


def test_nothing_is_printed_and_nothing_heavy_is_imported():
    code = (
        "import sys, routepack_opt.solvers.rows\n"
        "assert not {'ortools', 'highspy', 'pyomo', 'numba'} & set(sys.modules)\n"
        "from routepack_opt.solvers.highs import quiet_highs\n"
        "quiet_highs().run()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""
