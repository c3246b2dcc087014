"""Plans: views, files, hashes, and what `validate` refuses."""

import json
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from strategies import problems_with_layouts

import routepack_opt as rp
from routepack_opt import files
from routepack_opt.plans import RUNGS
from routepack_opt.plans.views import inverse_order, order_by_slot, slot_view

STAGES = (rp.AttentionStage("mla", 2.0, 0.25),)


def problem_of(capacity=12, **rules):
    rng = np.random.default_rng(4)
    lengths = [9, 8, 7, 7, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1]
    counts = np.array([[rng.multinomial(n, np.full(8, 1 / 8)) for _ in range(2)] for n in lengths])
    topology = rp.Topology(dp=2, ep=4, edp_shards=2)
    return rp.Problem(
        rp.Window.from_counts(lengths, counts, policy_version="v7"),
        topology,
        capacity,
        STAGES,
        rp.LayoutRules(**rules),
        expert_bytes=10,
    )


@pytest.fixture(scope="module")
def problem():
    return problem_of()


@pytest.fixture(scope="module")
def plan(problem):
    return rp.plan(problem, budget=rp.Budget(500))


# Views.


@given(problems_with_layouts())
def test_the_view_of_a_slot_tiles_what_it_runs(case):
    _, layout = case
    seen = []
    for d in range(layout.dp):
        view = slot_view(layout, d)
        assert [k for row in view.rows for k in row] == list(range(len(view.samples)))
        assert [tuple(view.samples[k] for k in row) for row in view.rows] == [row[d] for row in layout.cells]
        seen += view.samples
    assert sorted(seen) == list(range(layout.cell_of_sample.size))
    assert order_by_slot(layout).tolist() == seen


@given(problems_with_layouts())
def test_results_in_execution_order_are_brought_back(case):
    _, layout = case
    order = order_by_slot(layout)
    data = np.arange(order.size) * 10
    assert data[order][inverse_order(order)].tolist() == data.tolist()
    assert order[inverse_order(order)].tolist() == list(range(order.size))


def test_a_plan_offers_its_views(plan):
    assert plan.cells == plan.layout.cells
    assert [i for d in range(2) for i in plan.slot(d).samples] == plan.order.tolist()
    assert plan.order[plan.inverse].tolist() == list(range(14))
    assert plan.placement.expert_of_slot[0, plan.placement.slot_of_expert[0]].tolist() == list(range(8))
    for array in (plan.order, plan.inverse, plan.placement.slot_of_expert):
        assert not array.flags.writeable


@pytest.mark.parametrize("slot", [2, -1, "0", 1.5])
def test_a_slot_that_is_none_is_refused(plan, slot):
    with pytest.raises(rp.InputError, match="slot"):
        plan.slot(slot)


def test_gaps_are_relative_to_the_bounds(plan):
    assert plan.gap == (plan.score.primary - plan.bound) / plan.bound >= 0
    assert plan.gap_any == (plan.score.primary - plan.bound_any) / plan.bound_any >= 0
    assert replace(plan, bound=None).gap is None
    assert replace(plan, bound=0).gap is None
    assert replace(plan, score=None).gap_any is None


# Files.


def test_a_plan_file_gives_the_plan_back(plan, problem, tmp_path):
    plan.save(tmp_path / "plan.npz")
    found = rp.Plan.load(tmp_path / "plan.npz").validate(problem)
    assert found.cells == plan.cells
    assert (found.hash, found.score, found.placement) == (plan.hash, plan.score, plan.placement)
    for name in ("bound", "bound_any", "rung", "reason", "feasible", "broken_rule", "gap"):
        assert getattr(found, name) == getattr(plan, name), name
    assert found.rows.to_json() == plan.rows.to_json()
    assert rp.verify(found.rows, problem).status == "certified"
    assert found.provenance == json.loads(json.dumps(plan.provenance))
    assert list(found.trace) == json.loads(json.dumps(plan.trace))
    assert rp.metrics(found) == rp.metrics(plan)


def test_the_snapshot_comes_back_and_holds_the_numbers_of_the_score(plan, problem, tmp_path):
    plan.save(tmp_path / "plan.npz")
    found, made = rp.Plan.load(tmp_path / "plan.npz").snapshot, plan.snapshot
    for name in (
        "lengths",
        "aligned",
        "alone",
        "cell_tokens",
        "attention",
        "expert",
        "loads_identity",
        "loads_plan",
    ):
        np.testing.assert_array_equal(getattr(found, name), getattr(made, name))
    assert (found.table, found.notes, found.stages) == (made.table, made.notes, made.stages)
    assert (found.capacity, found.cell_cap, found.fill) == (12, 12, made.fill)
    assert found.fill == 66 / 72
    assert found.joint.sum(axis=0).max() == plan.score.primary
    assert found.loads_plan.sum() == found.loads_identity.sum() == problem.window.counts.sum()


def test_equal_plans_are_equal_bytes(plan, tmp_path):
    plan.save(tmp_path / "a.npz")
    rp.Plan.load(tmp_path / "a.npz").save(tmp_path / "b.npz")
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def rewritten(plan, path, change):
    """Save a plan with its header or arrays changed by hand."""
    plan.save(path)
    meta, arrays = files.load_npz(path, "plan", 1)
    meta = {key: value for key, value in meta.items() if key not in ("kind", "schema")}
    change(meta, arrays)
    files.save_npz(path, "plan", 1, meta, arrays)
    return path


def swap_cells(meta, arrays):
    arrays["cell_of_sample"] = arrays["cell_of_sample"][::-1].copy()


def swap_experts(meta, arrays):
    arrays["slot_of_expert"] = arrays["slot_of_expert"][:, ::-1].copy()


def lower_score(meta, arrays):
    meta["score"][0] = "1"


def other_problem(meta, arrays):
    meta["provenance"]["problem"] = "0" * 64


def no_rung(meta, arrays):
    meta["rung"] = "perfect"


def no_table(meta, arrays):
    del meta["snapshot"]["table"]


def out_of_range(meta, arrays):
    arrays["cell_of_sample"] = arrays["cell_of_sample"] + 100


def no_placement(meta, arrays):
    del arrays["slot_of_expert"]


def text_score(meta, arrays):
    meta["score"] = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    "change",
    [
        swap_cells,
        swap_experts,
        lower_score,
        other_problem,
        no_rung,
        no_table,
        out_of_range,
        no_placement,
        text_score,
    ],
)
def test_a_tampered_file_is_refused(plan, tmp_path, change):
    with pytest.raises(rp.FormatError, match=r"plan\.npz"):
        rp.Plan.load(rewritten(plan, tmp_path / "plan.npz", change))


def test_damaged_and_foreign_files_are_refused(plan, problem, tmp_path):
    path = tmp_path / "plan.npz"
    plan.save(path)
    whole = path.read_bytes()
    for size in (0, 10, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(rp.FormatError, match="plan"):
            rp.Plan.load(path)
    problem.window.save(path)
    with pytest.raises(rp.FormatError, match="a window file"):
        rp.Plan.load(path)
    plan.save(path)
    meta, arrays = files.load_npz(path, "plan", 1)
    meta = {key: value for key, value in meta.items() if key not in ("kind", "schema")}
    files.save_npz(path, "plan", 2, meta, arrays)
    with pytest.raises(rp.FormatError, match="schema 2"):
        rp.Plan.load(path)
    with pytest.raises(rp.FormatError, match="no such file"):
        rp.Plan.load(tmp_path / "none.npz")


def test_a_plan_file_needs_no_pickle(plan, tmp_path):
    plan.save(tmp_path / "plan.npz")
    with zipfile.ZipFile(tmp_path / "plan.npz") as archive:
        assert all(b"\x80\x04" not in archive.read(name)[:2] for name in archive.namelist())
    with np.load(tmp_path / "plan.npz", allow_pickle=False) as archive:
        assert all(archive[name].dtype.kind in "iub" for name in archive.files)


# Hash and validation.


def test_the_hash_covers_decisions_and_nothing_else(plan, problem):
    assert len(plan.hash) == 64
    assert rp.plan(problem, budget=rp.Budget(500)).hash == plan.hash
    assert replace(plan, provenance=dict(plan.provenance) | {"seconds": 99.0}).hash == plan.hash
    other = rp.Layout(plan.layout.cell_of_sample[::-1].copy(), plan.layout.rows, 2)
    assert replace(plan, layout=other).hash != plan.hash
    assert replace(plan, placement=rp.Placement.identity(2, 8, 4)).hash != plan.hash
    assert replace(plan, provenance={"problem": "another"}).hash != plan.hash


@pytest.mark.parametrize("other", [{"capacity": 13}, {"row_order": "largest_first"}, {"min_rows": 2}])
def test_a_plan_of_another_problem_is_refused(plan, other):
    with pytest.raises(rp.CheckError, match="problem"):
        plan.validate(problem_of(**other))


def test_what_a_plan_states_is_checked(plan, problem):
    assert plan.validate(problem) is plan
    wrong = replace(plan.score, primary=plan.score.primary - 1)
    with pytest.raises(rp.CheckError, match="states"):
        replace(plan, score=wrong).validate(problem)
    with pytest.raises(rp.CheckError, match="bound"):
        replace(plan, bound=plan.score.primary + 1).validate(problem)
    with pytest.raises(rp.CheckError, match="bound"):
        replace(plan, bound_any=plan.score.primary + 1).validate(problem)
    piled = rp.Layout(np.where(np.arange(14) < 9, 0, np.arange(14) - 8), 3, 2)
    with pytest.raises(rp.CheckError, match="tokens in a cell"):
        replace(plan, layout=piled).validate(problem)
    with pytest.raises(rp.CheckError, match="rows"):
        replace(plan, rows=replace(plan.rows, rows=2)).validate(problem)
    with pytest.raises(rp.CheckError, match="rows"):
        replace(plan, rows=replace(plan.rows, digest="0" * 64)).validate(problem)


def test_the_order_of_rows_is_checked():
    problem = problem_of(row_order="largest_first", capacity=14)
    plan = rp.plan(problem, budget=rp.Budget(300))
    fullest = plan.snapshot.cell_tokens.max(axis=1)
    if len(set(fullest.tolist())) == 1:
        pytest.skip("all rows are as full")
    turned = plan.layout.permuted_rows(np.arange(plan.layout.rows)[::-1])
    with pytest.raises(rp.CheckError, match="row_order"):
        replace(plan, layout=turned).validate(problem)


def test_a_plan_without_a_layout_says_so(plan, problem):
    empty = replace(plan, layout=None, score=None, rung="none", reason="no layout was found")
    assert empty.cells == ()
    assert empty.gap is None
    for ask in (lambda: empty.order, lambda: empty.slot(0), lambda: empty.validate(problem)):
        with pytest.raises(rp.InputError, match="no layout was found"):
            ask()


# Metrics.

NAMES = {
    "joint", "attention", "ep_peak_sum", "ep_tail_peak", "ep_balance_efficiency", "cv_global",
    "joint_over_baseline", "rows", "rows_lower_bound", "rows_certified", "gap", "gap_any", "rung", "feasible",
    "seconds", "experts_moved", "bytes_moved", "proposals", "token_fill",
    "predicted",
}  # fmt: skip


def test_metrics_are_few_flat_and_named_as_documented(plan):
    found = rp.metrics(plan)
    assert set(found) == {f"routepack/{name}" for name in NAMES}
    assert len(found) <= 20
    assert all(value is None or isinstance(value, (int, float)) for value in found.values())
    assert found["routepack/rung"] == RUNGS.index("annealed") == 0
    assert found["routepack/rows_certified"] == found["routepack/feasible"] == 1.0
    assert found["routepack/token_fill"] == 66 / 72
    assert 0 < found["routepack/joint_over_baseline"] <= 1


def test_metrics_of_a_plan_without_numbers_are_unknown_not_zero(plan):
    bare = replace(
        plan, layout=None, score=None, snapshot=None, bound=None, bound_any=None, rung="none", provenance={}
    )
    found = rp.metrics(bare)
    assert set(found) == {f"routepack/{name}" for name in NAMES}
    for name in ("joint", "gap", "seconds", "proposals", "token_fill", "joint_over_baseline"):
        assert found[f"routepack/{name}"] is None
