"""Every shipped window, with one and two shards: certified rows, a valid plan, and a small gap."""

from pathlib import Path

import pytest

import routepack_opt as rp

FOLDER = Path(__file__).parents[1] / "instances" / "gsm8k-moe"
STAGES = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.npz")))
def test_a_shipped_window_is_planned_with_certified_rows(name, shards):
    window = rp.Window.load(FOLDER / f"{name}.npz")
    problem = rp.Problem(window, rp.Topology(dp=8, ep=8, edp_shards=shards), capacity=2048, stages=STAGES)
    plan = rp.plan(problem, budget=rp.Budget(20_000)).validate(problem)
    least = -(-int(problem.aligned.sum()) // (2048 * 8))
    assert (plan.rows.status, plan.rows.rows, plan.rows.lower_bound) == ("certified", least, least)
    assert rp.verify(plan.rows, problem).status == "certified"
    table = plan.snapshot.table
    assert table["routepack"]["joint"] <= table["reorder"]["joint"] < table["baseline"]["joint"]
    assert 0 <= plan.gap_any <= 0.02  # what little search reaches; a second's search is in the benchmarks
