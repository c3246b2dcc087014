"""Gap runs: what is measured, and that a stopped run goes on."""

import pytest
from test_instances import instance

from routepack_opt.errors import FormatError, InputError
from routepack_opt.layout import Layout
from routepack_opt.solvers.exact import solve_exact
from routepack_opt.solvers.oracle import solve_by_subsets
from routepack_opt.suite.gap import Attempt, primal_integral, read_rows, relative, run_gap, summary
from routepack_opt.suite.instances import Suite


@pytest.fixture
def suite(tmp_path):
    made, asked = Suite(tmp_path / "suite"), instance()
    made.add(asked)
    best = solve_by_subsets(asked.problem, asked.placement, 2)
    made.improve(asked, best.layout)
    made.records["tiny"].bound = list(best.score.components)
    return made


def exact(asked, seed):
    layout = solve_exact(asked.problem, placement=asked.placement, rows=asked.rows, seed=seed).layout
    best = asked.score(layout).primary
    return Attempt(layout, 2.0, [(0.5, 2 * best), (1.0, best)])


def test_an_optimum_has_no_gap(suite):
    rows = run_gap(suite, exact, range(2), name="exact")
    assert [(row.gap, row.bound_gap, row.missed, row.proven) for row in rows] == [(0.0, 0.0, None, 3)] * 2
    assert rows[0].time_to_best == 1.0
    assert rows[0].primal_integral == pytest.approx((0.5 * 1 + 0.5 * 0.5) / 2.0)
    assert summary(rows)["reached_share"] == 1.0


def test_a_worse_layout_names_its_component(suite):
    asked = suite.load("tiny")
    worse = next(
        layout
        for k in range(4**6)
        if (layout := Layout([k // 4**i % 4 for i in range(6)], 2, 2)).broken_rule(asked.problem) is None
        and asked.score(layout).primary > suite.records["tiny"].best[0]
    )
    row = run_gap(suite, lambda *_: Attempt(worse, 1.0), [0], name="worse")[0]
    assert row.missed == "primary"
    assert row.gap > 0
    assert row.primal_integral is None
    assert summary([row])["missed"]["primary"] == 1


def test_a_stopped_run_goes_on(suite, tmp_path):
    output = tmp_path / "rows.jsonl"
    run_gap(suite, exact, [0], name="exact", output=output)
    with output.open("a") as file:
        file.write('{"instance": "cut o')
    seen = []

    def counted(asked, seed):
        seen.append(seed)
        return exact(asked, seed)

    rows = run_gap(suite, counted, [0, 1], name="exact", output=output)
    assert seen == [1]
    assert [row.seed for row in rows] == [0, 1]
    assert [row.seed for row in read_rows(output)] == [0, 1]


def test_a_broken_layout_is_refused_and_a_broken_file_named(suite, tmp_path):
    with pytest.raises(InputError, match="empty"):
        run_gap(suite, lambda *_: Attempt(Layout([0, 1, 2, 0, 1, 2], 2, 2), 1.0), [0], name="bad")
    (tmp_path / "rows.jsonl").write_text("{}\n")
    with pytest.raises(FormatError, match="line 1"):
        list(read_rows(tmp_path / "rows.jsonl"))


def test_better_layouts_enter_the_suite_on_request(suite):
    record = suite.records["tiny"]
    record.best, record.bound = [value + 5 for value in record.best], None
    rows = run_gap(suite, exact, [0], name="exact", update_best=True)
    assert rows[0].score < rows[0].best
    assert suite.records["tiny"].best == rows[0].score


def test_small_numbers():
    assert relative(3, 0) is None
    assert relative(3, 2) == 0.5
    assert primal_integral([], 1, 1.0) is None
    assert primal_integral([(0.0, 4)], 4, 1.0) == 0.0
