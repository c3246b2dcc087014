"""Evaluation runs: the table, that a stopped run ends in the same one, and the statistics by hand."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

import routepack_opt as rp
from routepack_opt.cli.app import run
from routepack_opt.errors import FormatError, InputError
from routepack_opt.suite.evaluation import read_results, read_suite, run_evaluation, summary
from routepack_opt.suite.evaluation.significance import bonferroni, compare_all, holm, spread

ROOT = Path(__file__).parents[1]


@pytest.fixture
def suite_file(tmp_path):
    rng = np.random.default_rng(3)
    for k in range(3):
        lengths = rng.integers(20, 60, 24)
        weights = rng.dirichlet(np.ones(8), 2)
        counts = np.stack([[rng.multinomial(2 * n, w) for w in weights] for n in lengths])
        rp.Window.from_counts(lengths, counts).save(tmp_path / f"w-{k}.npz")
    common = {"files": ["w-*.npz"], "dp": 2, "ep": 4, "capacity": 256, "accelerator": "H100 SXM"}
    common |= {"stages": ["a:6:0", "b:2:2"], "shape": {"hidden": 64, "expert_width": 32}}
    record = {"kind": "routepack-evaluation", "schema": 1, "name": "tiny"}
    record["scenarios"] = [{"name": "one", **common}, {"name": "two", **common, "edp_shards": 2}]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps(record))
    return path


def timeless(rows):
    return [{k: v for k, v in row.items() if k != "plan_seconds"} for row in rows]


OPTIONS = {"seeds": 2, "proposals": 2000}


def test_the_table_has_every_layout_and_plans_win(suite_file, tmp_path):
    output = tmp_path / "r.jsonl"
    found = run_evaluation(read_suite(suite_file), **OPTIONS, output=output)
    keys = [(row["scenario"], row["window"], row["seed"], row["layout"]) for row in found.rows]
    layouts = ("baseline", "reorder", "routepack")
    names = [
        (s, f"w-{k}", seed, lay)
        for s in ("one", "two")
        for k in range(3)
        for seed in (0, 1)
        for lay in layouts
    ]
    assert keys == names
    assert read_results(output) == found
    for base, reorder, mine in zip(*(found.rows[k::3] for k in range(3)), strict=True):
        assert int(mine["primary"]) <= int(reorder["primary"])
        assert base["rows"] == reorder["rows"] == mine["rows"]
        assert base["cv_global"] > reorder["cv_global"] == mine["cv_global"]
        rate = mine["tokens"] / mine["simulated_step_seconds"]
        assert mine["simulated_tokens_per_second"] == pytest.approx(rate)
    with output.with_suffix(".csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["primary"] for row in table] == [row["primary"] for row in found.rows]
    documented = (ROOT / "docs/reference/formats.md").read_text()
    plain = [name for name in found.rows[0] if not name.endswith(("_half", "_double"))]
    assert all(f"`{name}`" in documented for name in plain)


def test_a_row_is_what_the_plan_says(suite_file):
    suite = read_suite(suite_file)
    mine = run_evaluation(suite, **OPTIONS).rows[5]
    problem = suite.scenarios[0].problem(0)
    plan = rp.plan(problem, seed=1, budget=rp.Budget(proposals=2000))
    assert mine["primary"] == str(plan.score.primary)
    assert mine["gap"] == plan.gap
    assert {k: mine[k] for k in plan.snapshot.table["routepack"]} == plan.snapshot.table["routepack"]


class Stop(Exception):  # noqa: N818
    pass


def stopping_after(windows):
    def progress(done, total, rows):
        if done == windows:
            raise Stop

    return progress


@pytest.mark.parametrize("cut", [0, 40])
def test_a_stopped_run_ends_in_the_same_table(suite_file, tmp_path, cut):
    whole = run_evaluation(read_suite(suite_file), **OPTIONS)
    output = tmp_path / "r.jsonl"
    with pytest.raises(Stop):
        run_evaluation(read_suite(suite_file), **OPTIONS, output=output, progress=stopping_after(2))
    text = output.read_text()
    assert 0 < len(read_results(output).rows) < len(whole.rows)
    output.write_text(text[: len(text) - cut])  # as if it was killed while writing
    with pytest.raises(Stop):  # and once more
        run_evaluation(read_suite(suite_file), **OPTIONS, output=output, progress=stopping_after(3))
    assert len(read_results(output).rows) == 3 * 6
    again = []
    found = run_evaluation(
        read_suite(suite_file), **OPTIONS, output=output, progress=lambda done, *_: again.append(done)
    )
    assert len(again) == 3
    assert timeless(found.rows) == timeless(whole.rows)
    assert timeless(read_results(output).rows) == timeless(whole.rows)


def test_processes_do_not_change_the_table(suite_file):
    suite = read_suite(suite_file)
    one = run_evaluation(suite, proposals=500)
    two = run_evaluation(suite, proposals=500, processes=2)
    assert timeless(one.rows) == timeless(two.rows)


def test_another_run_is_not_mixed_in(suite_file, tmp_path):
    output = tmp_path / "r.jsonl"
    run_evaluation(read_suite(suite_file), proposals=500, output=output)
    with pytest.raises(InputError, match="another run"):
        run_evaluation(read_suite(suite_file), proposals=600, output=output)
    more = run_evaluation(read_suite(suite_file), proposals=500, seeds=2, output=output)
    less = run_evaluation(read_suite(suite_file), proposals=500, seeds=1, output=output)
    assert timeless(more.rows) == timeless(less.rows)  # nothing is thrown away


def test_the_summary_is_over_windows(suite_file):
    found = run_evaluation(read_suite(suite_file), **OPTIONS)
    first = summary(found)[0]
    rates = {
        k: np.mean(
            [row["simulated_tokens_per_second"] for row in found.rows[2:18:3] if row["window"] == f"w-{k}"]
        )
        for k in range(3)
    }
    values = np.array(list(rates.values()))
    rate = first["simulated_tokens_per_second"]["routepack"]
    assert rate["count"] == 3
    assert rate["mean"] == pytest.approx(values.mean())
    assert rate["deviation"] == pytest.approx(np.sqrt(((values - values.mean()) ** 2).sum() / 2))
    assert len(first["comparisons"]) == 3
    assert first["loads"]["joint"] <= 0
    assert (
        first["sensitivity"]["expert_flops_half"]["routepack"]
        != first["sensitivity"]["as assumed"]["routepack"]
    )


def test_spread_by_hand():
    found = spread([1.0, 2.0, 3.0, 6.0])
    assert found.mean == 3.0
    assert found.deviation == pytest.approx(np.sqrt((4 + 1 + 0 + 9) / 3))
    assert found.tenth == pytest.approx(1.3)  # 0.3 of the way from the first to the second
    assert spread([4.0]).deviation is None


def test_corrections_by_hand():
    assert bonferroni([0.01, 0.04, 0.5]) == [pytest.approx(0.03), pytest.approx(0.12), 1.0]
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.5, 0.6]) == [1.0, 1.0]


def test_mann_whitney_by_hand():
    found = compare_all({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]})
    assert found[0].p == pytest.approx(2 / 20)  # two of the 20 ways to deal six ranks are as extreme
    assert found[0].ratio == pytest.approx(2.5)
    three = compare_all({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0], "c": [7.0, 8.0, 9.0]})
    assert [c.bonferroni for c in three] == pytest.approx([0.3] * 3)


def test_the_command(suite_file, tmp_path, capsys):
    output = tmp_path / "out.jsonl"
    arguments = ["evaluate", str(suite_file), "--proposals", "500", "--only", "two", "-o", str(output)]
    assert run([*arguments, "--json"]) == 0
    printed = capsys.readouterr()
    record = json.loads(printed.out)
    assert [scenario["scenario"] for scenario in record["summary"]] == ["two"]
    assert record["assumptions"]["two"]["accelerator"]["source"]
    assert "3 of 3 windows" in printed.err
    assert run(arguments) == 0
    text = capsys.readouterr().out
    assert "throughput simulated" in text
    assert "H100 SXM" in text
    assert run(["evaluate", str(suite_file), "--only", "nothing"]) == 2


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"accelerator": "abacus"}, "H100 SXM"),
        ({"files": ["none-*.npz"]}, "0 found"),
        ({"stages": []}, "no preset"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_is_wrong_in_a_suite_is_named(suite_file, change, words):
    record = json.loads(suite_file.read_text())
    record["scenarios"][0] |= change
    suite_file.write_text(json.dumps(record))
    with pytest.raises((InputError, FormatError), match=words):
        read_suite(suite_file)


def test_windows_without_routing_are_refused(suite_file, tmp_path):
    rp.Window.from_lengths([30, 40]).save(tmp_path / "w-0.npz")
    with pytest.raises(InputError, match=r"^w-0: .*routing"):
        run_evaluation(read_suite(suite_file))


def test_the_committed_suite_can_be_read():
    suite = read_suite(ROOT / "instances/evaluation/paper.json")
    assert {scenario.edp_shards for scenario in suite.scenarios if scenario.preset} == {1, 2}
    for scenario in suite.scenarios:
        assert scenario.dp * scenario.devices in (scenario.ep, scenario.ep * scenario.edp_shards)
        assert scenario.preset or len(scenario.files) == 7
