"""What `plan` guarantees, one test for each promise."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import oracles
import pytest
from annealing_cases import oracle_score
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import placements_of, problems, problems_with_layouts
from validity import broken_by, plain_rules

import routepack_opt as rp
from routepack_opt.planner import Budget, plan
from routepack_opt.solvers import rows as row_solvers
from routepack_opt.solvers.annealing.parameters import AnnealingParameters

SHORT = Budget(400)
STAGES = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))


def window_of(lengths, layers=2, experts=8, seed=0):
    rng = np.random.default_rng(seed)
    skew = rng.dirichlet(np.full(experts, 0.5), (len(lengths), layers))
    counts = [[rng.multinomial(n, p) for p in row] for n, row in zip(lengths, skew, strict=True)]
    return rp.Window.from_counts(lengths, np.array(counts))


LENGTHS = [9, 8, 7, 7, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1]  # 66 tokens


def problem_of(lengths=LENGTHS, capacity=12, dp=2, seed=0, stages=STAGES, **rules):
    topology = rp.Topology(dp=dp, ep=4, edp_shards=2 if dp % 2 == 0 else 1)
    return rp.Problem(window_of(lengths, seed=seed), topology, capacity, stages, rp.LayoutRules(**rules))


@pytest.fixture(scope="module")
def problem():
    return problem_of()


@pytest.fixture(scope="module")
def best(problem):
    return plan(problem, budget=Budget(20_000))


def exact(problem, found):
    score = oracle_score(problem, found.placement, found.cells)
    return tuple(int(x * problem.denominator) for x in score)


# 1. Every rule is kept.


@settings(max_examples=25)
@given(problems_with_layouts(), st.data())
def test_plans_of_feasible_problems_are_valid_and_exactly_scored(case, data):
    problem, layout = case
    own = data.draw(st.none() | st.just(layout))
    found = plan(
        problem,
        seed=data.draw(st.integers(0, 3)),
        budget=Budget(200),
        method=data.draw(st.sampled_from(["annealing", "paper"])),
        refine_placement=data.draw(st.booleans()),
        placement=data.draw(st.none() | placements_of(problem)),
        own=own,
    )
    assert broken_by(problem, found.cells) == []
    assert found.score.components == exact(problem, found)
    assert found.validate(problem) is found
    assert found.rows.rows == len(found.cells) <= layout.rows
    assert found.score.primary >= found.bound
    assert found.score.primary >= found.bound_any
    if own is not None and own.rows == found.rows.rows:
        assert found.score <= rp.score(problem, found.placement, own)


@settings(max_examples=60)
@given(problems(max_samples=6))
def test_no_feasible_problem_is_called_infeasible(problem):
    rules = plain_rules(problem.rules) | {"row_order": "none"}
    lengths = problem.window.lengths.tolist()
    fewest = oracles.least_rows(lengths, dp=problem.topology.dp, capacity=problem.capacity, **rules)
    try:
        found = plan(problem, budget=Budget(50))
    except rp.InfeasibleError:
        assert fewest is None
    except rp.NoLayoutError:
        assert fewest is None, f"{fewest} rows hold it, none was found"
    else:
        assert broken_by(problem, found.cells) == []
        assert found.rows.lower_bound <= fewest <= found.rows.rows
        assert found.rows.status != "certified" or found.rows.rows == fewest


def test_rows_are_ordered_when_asked(problem, best):
    ordered = plan(problem_of(row_order="largest_first"), budget=Budget(20_000))
    fullest = ordered.snapshot.cell_tokens.max(axis=1)
    assert fullest.tolist() == sorted(fullest.tolist(), reverse=True)
    assert ordered.score == best.score
    assert broken_by(problem_of(row_order="largest_first"), ordered.cells) == []


def test_oversize_samples_are_alone_and_flagged():
    problem = problem_of([30, *LENGTHS], oversize="alone")
    found = plan(problem, budget=SHORT)
    assert any(cell == (0,) for row in found.cells for cell in row)
    assert broken_by(problem, found.cells) == []
    assert found.snapshot.alone.tolist() == [True] + [False] * len(LENGTHS)


# 2. The number of rows.


def test_the_certificate_is_the_plans(problem, best):
    assert (best.rows.status, best.rows.rows, best.rows.lower_bound) == ("certified", 3, 3)
    assert rp.verify(best.rows, problem).status == "certified"


def test_more_rows_can_be_asked_for(problem):
    found = plan(problem, rows=5, budget=SHORT)
    assert (found.rows.rows, len(found.cells)) == (5, 5)
    assert found.rows.lower_bound == 3
    assert broken_by(problem, found.cells) == []


@pytest.mark.parametrize(
    ("rows", "rules", "rule"),
    [
        (2, {}, "rows"),
        (8, {}, "rows"),
        (3, {"min_rows": 4}, "min_rows"),
        (3, {"row_multiple": 2}, "row_multiple"),
    ],
)
def test_rows_that_cannot_be_are_refused_with_the_rule(rows, rules, rule):
    with pytest.raises(rp.InfeasibleError, match=f"{rows} rows") as caught:
        plan(problem_of(**rules), rows=rows, budget=SHORT)
    assert caught.value.rule == rule


def test_a_certificate_can_be_given(problem, best):
    again = plan(problem, rows=best.rows, budget=Budget(20_000))
    assert again.hash == best.hash
    with pytest.raises(rp.InputError, match="certificate of this problem"):
        plan(problem_of(capacity=13), rows=best.rows)


@pytest.mark.parametrize("packing", [np.zeros(14, np.int64), np.arange(3), np.arange(14) - 1])
def test_a_certificate_whose_packing_breaks_a_rule_is_refused(problem, best, packing):
    with pytest.raises(rp.InputError):
        plan(problem, rows=replace(best.rows, packing=packing), budget=SHORT)


def test_infeasible_windows_name_the_rule():
    with pytest.raises(rp.InfeasibleError) as caught:
        plan(problem_of([5, 5, 5], dp=4))
    assert caught.value.rule == "samples"
    assert "1 dummy" in str(caught.value)


def test_a_window_without_a_known_layout_is_neither_planned_nor_called_infeasible(problem, best, monkeypatch):
    unknown = replace(best.rows, rows=None, packing=None, status="unknown")
    monkeypatch.setattr(row_solvers, "certify_rows", lambda *_, **__: unknown)
    with pytest.raises(rp.NoLayoutError, match="none excluded"):
        plan(problem)


# 3. Never worse than the seeds and the trainer's own layout.


def test_more_search_is_never_worse_than_the_seed(problem):
    seed = plan(problem, method="seed")
    assert (seed.rung, seed.reason) == ("seed", "asked for")
    for method in ("annealing", "paper"):
        found = plan(problem, method=method, placement=seed.placement, budget=Budget(100))
        assert found.rung == "annealed"
        assert found.score <= seed.score or method == "paper"


def test_an_own_layout_is_a_seed(problem, best):
    found = plan(problem, own=best.cells, placement=best.placement, method="seed")
    assert found.score <= best.score
    assert found.snapshot.table["own"]["joint"] > 0


def test_an_own_layout_with_fewer_rows_sets_the_row_count(problem, best, monkeypatch):
    certify = row_solvers.certify_rows

    def short_sighted(problem, rows=None, **options):
        return certify(problem, rows=4 if rows is None else rows, **options)

    monkeypatch.setattr(row_solvers, "certify_rows", short_sighted)
    assert plan(problem, method="seed").rows.rows == 4
    found = plan(problem, own=best.layout, method="seed")
    assert (found.rows.rows, found.rows.status) == (3, "certified")
    assert found.validate(problem).score <= rp.score(problem, found.placement, best.layout)
    assert rp.verify(found.rows, problem).status == "certified"


@pytest.mark.parametrize(
    "own",
    [
        [[list(range(13)), [13]]],  # over the cap
        [[[*range(7)], [*range(7, 14)], []]],  # three slots, one empty
        [[[0], [1]], [[2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13], []]],  # an empty cell
    ],
)
def test_an_own_layout_that_breaks_a_rule_is_noted_and_not_used(problem, best, own):
    found = plan(problem, own=own, budget=Budget(20_000))
    assert found.hash == best.hash
    assert found.snapshot.table["own"] is None
    assert any("own layout" in note for note in found.snapshot.notes)


@pytest.mark.parametrize("own", [[[[0], [1]]], [[[0], [0]]], [[[99], [1]]], [], [[1, 2]], "cells"])
def test_an_own_layout_that_is_none_is_refused(problem, own):
    with pytest.raises(rp.InputError, match="cells"):
        plan(problem, own=own)


def test_a_previous_plan_keeps_experts_where_they_are(problem, best):
    other = problem_of(seed=3)
    fresh = plan(other, budget=SHORT)
    near = plan(other, budget=SHORT, previous=best)
    assert near.provenance["moves"] == near.placement.moves_from(best.placement)
    assert near.provenance["moves"] <= fresh.placement.moves_from(best.placement)
    again = plan(problem, method="seed", previous=best)
    assert (again.score <= best.score, again.provenance["moves"]) == (True, 0)


def test_a_placement_can_be_given(problem):
    identity = rp.Placement.identity(2, 8, 4)
    found = plan(problem, placement=identity, budget=SHORT)
    assert found.placement == identity
    assert found.provenance["moves"] == 0
    with pytest.raises(rp.InputError, match="placement"):
        plan(problem, placement=rp.Placement.identity(2, 8, 2))


def test_a_refined_placement_never_makes_the_score_worse(problem):
    shape = AnnealingParameters(population=2, levels=4)
    for seed in range(4):
        first = plan(problem, seed=seed, budget=Budget(650), parameters=shape)
        refined = plan(problem, seed=seed, budget=Budget(1000), parameters=shape, refine_placement=True)
        assert refined.score <= first.score
        assert refined.score.primary >= refined.bound
        refined.validate(problem)


# 5. Reproducible.


def test_threads_and_executors_do_not_change_the_plan(problem):
    plans = [plan(problem, seed=2, budget=Budget(3_000), threads=threads) for threads in (1, 2, 3)]
    assert len({found.hash for found in plans}) == 1
    assert all(found.provenance["reproducible"] for found in plans)
    assert not plan(problem, deadline=30.0, clock=lambda: 0.0).provenance["reproducible"]


def test_the_default_budget_is_reproducible(problem, best):
    assert best.provenance["proposals"] == 20_000
    assert plan(problem, budget=Budget(0)).provenance["proposals"] == 0


# 6. The deadline and its ladder, by a clock that tests move.


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_with_time_enough_the_plan_is_annealed(problem):
    found = plan(problem, deadline=1.0, clock=Clock())
    assert (found.rung, found.reason) == ("annealed", None)


def test_a_deadline_during_the_search_returns_the_incumbent(problem):
    clock, seen = Clock(), []

    def progress(stage, facts):
        seen.append(stage)
        if stage == "seeds":
            progress.seed = facts["best"]
        if seen.count("level") == 3:
            clock.now = 2.0

    found = plan(problem, deadline=1.0, clock=clock, progress=progress)
    assert (found.rung, seen.count("level")) == ("incumbent", 3)
    assert "deadline" in found.reason
    assert found.score <= progress.seed
    found.validate(problem)


@pytest.mark.parametrize("stage", ["rows", "placement", "seeds"])
def test_a_deadline_before_the_search_returns_a_seed(problem, stage):
    clock = Clock()

    def progress(done, facts):
        if done == stage:
            clock.now = 2.0

    found = plan(problem, deadline=1.0, clock=clock, progress=progress)
    assert found.rung == "seed"
    assert "deadline" in found.reason
    found.validate(problem)


def test_the_time_of_finishing_is_kept_back(problem):
    ticking = iter(np.linspace(0.0, 10.0, 20_001))  # every look at the clock takes half a millisecond
    found = plan(problem, deadline=1.0, clock=lambda: float(next(ticking)))
    assert found.provenance["seconds"] <= 1.0 + 8 * 0.002  # only looking at this clock takes time


def test_progress_tells_every_stage(problem):
    seen = []
    plan(problem, budget=SHORT, progress=lambda stage, facts: seen.append((stage, dict(facts))))
    stages = [stage for stage, _ in seen]
    assert stages[:4] == ["rows", "placement", "paired", "seeds"]
    assert set(stages[4:]) == {"level"}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"deadline": 0}, "deadline"),
        ({"deadline": -1.0}, "deadline"),
        ({"deadline": math.nan}, "deadline"),
        ({"deadline": math.inf}, "deadline"),
        ({"deadline": True}, "deadline"),
        ({"deadline": "1"}, "deadline"),
        ({"deadline": 1.0, "budget": SHORT}, "at most one"),
        ({"budget": 1000}, "Budget"),
        ({"method": "tabu"}, "method"),
        ({"parameters": {"levels": 3}}, "AnnealingParameters"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"threads": 0}, "threads"),
        ({"rows": 0}, "rows"),
        ({"rows": "3"}, "rows"),
        ({"placement": [[0, 1]]}, "placement"),
        ({"previous": "plan.npz"}, "previous"),
    ],
)
def test_wrong_options_are_refused_by_name(problem, options, named):
    with pytest.raises(rp.InputError, match=named):
        plan(problem, **options)


def test_a_previous_plan_of_another_model_is_refused(problem, best):
    window = window_of(LENGTHS, layers=3)
    other = rp.Problem(window, rp.Topology(dp=2, ep=4), 12)
    with pytest.raises(rp.InputError, match="previous"):
        plan(other, previous=best, budget=SHORT)


# Windows of lengths alone, and other edges.


@pytest.mark.parametrize("method", ["annealing", "paper", "seed"])
@pytest.mark.parametrize("stages", [(), STAGES])
def test_windows_of_lengths_alone_are_packed(method, stages):
    problem = rp.Problem(rp.Window.from_lengths(LENGTHS), rp.Topology(dp=2), 12, stages)
    found = plan(problem, method=method, budget=SHORT, refine_placement=True)
    assert broken_by(problem, found.cells) == []
    assert found.rows.rows == 3
    assert (found.gap is None) == (not stages)


@pytest.mark.parametrize(("lengths", "dp"), [([5], 1), ([5, 4], 2), ([5, 4], 1), ([5, 4, 3, 2], 4)])
def test_the_smallest_windows_are_planned(lengths, dp):
    problem = problem_of(lengths, dp=dp)
    found = plan(problem, budget=Budget(200))
    assert broken_by(problem, found.cells) == []
    assert found.rows.rows == 1


def test_bytes_moved_are_known_when_an_expert_has_a_size(problem):
    sized = rp.Problem(problem.window, problem.topology, 12, STAGES, expert_bytes=1000)
    found = plan(sized, budget=SHORT)
    assert found.provenance["bytes_moved"] == 1000 * found.provenance["moves"] > 0


# Kernels.

AFTER_WARM_UP = """
import numpy as np
import routepack_opt as rp
from numba.core.dispatcher import Dispatcher

rp.warm_up()
late, compile_ = [], Dispatcher.compile
def watched(self, signature):
    late.append(f"{self.py_func.__module__}.{self.py_func.__name__}{signature}")
    return compile_(self, signature)
Dispatcher.compile = watched

STAGES = (rp.AttentionStage("a", 1.0, 0.5),)
def check(window, stages=STAGES, dp=2, ep=2, shards=1, capacity=None, rules=None, **options):
    capacity, rules = capacity or int(window.lengths.max()) * 3, rp.LayoutRules(**(rules or {}))
    problem = rp.Problem(window, rp.Topology(dp, ep, shards), capacity, stages, rules)
    return rp.plan(problem, **{"budget": rp.Budget(200), **options})

rng = np.random.default_rng(0)
for longest in (90, 9000, 90_000):
    lengths = rng.integers(longest // 3, longest, 16)
    counts = np.stack([rng.multinomial(n, np.full(8, 1 / 8), 3) for n in lengths])
    window = rp.Window.from_counts(lengths, counts, model=rp.MoEModel(3, 8, 1))
    first = check(window)
    for options in (
        {"dp": 4, "shards": 2}, {"ep": 8}, {"stages": ()}, {"method": "paper"}, {"method": "seed"},
        {"threads": 2}, {"previous": first}, {"refine_placement": True}, {"own": first.cells},
        {"deadline": 0.2, "budget": None},
        {"rows": first.rows}, {"rows": first.rows.rows + 1},
        {"rules": {"equal_samples_per_slot": True}}, {"rules": {"max_samples_per_cell": 4}},
        {"rules": {"same_cell": [(0, 1), (2, 3)]}}, {"rules": {"row_class": [0] * 8 + [1] * 8}},
        {"rules": {"row_multiple": 2, "length_multiple": 8, "pad_routing": "uniform"}},
        {"rules": {"oversize": "alone"}, "capacity": longest - longest // 9},
        {"capacity": int(lengths.max())},
    ):
        check(window, **options)
    check(rp.Window.from_lengths(lengths), ep=1)
print("\\n".join(late))
"""


def run_after_warm_up(**environment):
    environment = {**os.environ, "PYTHONPATH": str(Path(rp.__file__).parents[1]), **environment}
    done = subprocess.run(
        [sys.executable, "-c", AFTER_WARM_UP], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_nothing_is_compiled_or_loaded_after_the_warm_up():
    assert run_after_warm_up() == ""


@pytest.mark.long
def test_nothing_is_compiled_after_a_first_warm_up(tmp_path):
    assert run_after_warm_up(NUMBA_CACHE_DIR=str(tmp_path)) == ""


def test_what_a_plan_records_is_plain_json(best):
    json.dumps([best.provenance, best.trace, best.snapshot.table])
