"""Exact solves: every backend against enumeration, under every rule, and what interrupted solves keep."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles_exact import RULES, best_score, obeys, random_placement, random_problem

import routepack_opt as rp
from routepack_opt.errors import InputError
from routepack_opt.models.layout import COMPONENTS, build_layout_model
from routepack_opt.scoring import score
from routepack_opt.solvers.exact import solve_exact
from routepack_opt.solvers.exact.cpsat import explain
from routepack_opt.solvers.oracle import solve_by_subsets

shapes = st.sampled_from(
    [(5, 1, 1), (5, 1, 3), (5, 2, 1), (5, 2, 2), (6, 3, 1), (5, 4, 1), (4, 2, 2), (6, 1, 2)]
)
problems = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 10**6),
        "shape": shapes,
        "ep": st.integers(1, 3),
        "layers": st.integers(0, 2),
        "stages": st.integers(0, 4),
        "rule": st.sampled_from(RULES),
    }
)


def build(case):
    samples, dp, rows = case["shape"]
    rest = {key: case[key] for key in ("ep", "layers", "stages", "rule")}
    problem = random_problem(case["seed"], samples=samples, dp=dp, **rest)
    return problem, random_placement(problem, case["seed"]), rows


def check(case, backend, symmetry=True):
    problem, placement, rows = build(case)
    result = solve_exact(problem, placement=placement, rows=rows, backend=backend, symmetry=symmetry)
    wanted = best_score(problem, placement, rows)
    if wanted is None:
        assert (result.termination, result.solution_status, result.score) == ("infeasible", "none", None)
        assert result.infeasible
        return
    assert (result.termination, result.solution_status) == ("optimal", "optimal"), result
    assert result.score.components == wanted
    assert result.proven == (True, True, True)
    assert score(problem, placement, result.layout) == result.score
    assert obeys(problem, [[list(cell) for cell in row] for row in result.layout.cells])


@settings(max_examples=60, deadline=None)
@given(problems, st.booleans())
def test_cpsat_equals_enumeration(case, symmetry):
    check(case, "cpsat", symmetry)


@settings(max_examples=20, deadline=None)
@given(problems)
def test_highs_equals_enumeration(case):
    check(case, "highs")


@settings(max_examples=6, deadline=None)
@given(problems)
def test_pyomo_equals_enumeration(case):
    check(case, "pyomo")


@settings(max_examples=60, deadline=None)
@given(problems, st.booleans())
def test_a_hint_satisfies_every_row_and_scores_alike(case, symmetry):
    problem, placement, rows = build(case)
    from oracles_exact import all_layouts

    from routepack_opt.layout import Layout

    if problem.items.size < rows * problem.topology.dp:
        return
    model = build_layout_model(problem, placement.demand(problem.item_counts), rows, symmetry=symmetry)
    for k, cells in zip(range(40), all_layouts(problem, rows), strict=False):
        if k % 3:
            continue
        layout = Layout.from_cells(cells)
        values = model.hint(layout)
        assert model.linear.violated(values) is None
        parts = tuple(values[model.objective[c]] * model.unit for c in COMPONENTS)
        assert parts == score(problem, placement, layout).components
        assert score(problem, placement, model.layout(values)) == score(problem, placement, layout)


def medium(seed=11, samples=13, layers=3):
    problem = random_problem(seed, samples=samples, dp=2, ep=4, layers=layers, stages=3)
    return problem, random_placement(problem, seed)


@pytest.mark.parametrize("backend", ["cpsat", "highs", "patterns"])
def test_agrees_with_the_subset_oracle(backend):
    problem, placement = medium()
    wanted = solve_by_subsets(problem, placement, 2)
    result = solve_exact(problem, placement=placement, rows=2, backend=backend)
    assert result.score == wanted.score
    assert result.termination == "optimal"


def test_rows_and_placement_have_defaults():
    problem, _ = medium(samples=6, layers=1)
    result = solve_exact(problem)
    assert result.termination == "optimal"
    assert result.rows == result.layout.rows >= 1


def test_no_time_means_bounds_but_no_layout():
    problem, placement = medium()
    result = solve_exact(problem, placement=placement, rows=2, time_limit=0.0)
    assert (result.termination, result.solution_status, result.layout) == ("time_limit", "none", None)
    assert all(isinstance(value, int) for value in result.bound)


@pytest.mark.parametrize("backend", ["cpsat", "highs", "patterns"])
def test_an_interrupted_solve_keeps_the_hint(backend):
    problem, placement = medium(samples=18, layers=6)
    hint = solve_by_subsets(problem, placement, 1).layout
    result = solve_exact(problem, placement=placement, rows=1, backend=backend, hint=hint, time_limit=0.3)
    assert result.score <= score(problem, placement, hint)
    assert result.solution_status in ("feasible", "optimal")
    assert all(bound <= value for bound, value in zip(result.bound, result.score.components, strict=True))


def test_integers_beyond_doubles_stay_exact():
    """Scores near 2^60, where a double loses the last digits and a lock would be off."""
    from routepack_opt.problem import AttentionStage, Problem

    small, placement = medium(samples=8, layers=1)
    stages = [AttentionStage("a", 700.000001, 300.000007)]
    problem = Problem(small.window, small.topology, 2**20 + 7, stages)
    result = solve_exact(problem, placement=placement, rows=2)
    assert result.score.components[0] > 2**53
    assert result.score == solve_by_subsets(problem, placement, 2).score
    assert result.termination == "optimal"


def test_infeasibility_names_the_rules():
    problem = random_problem(0, samples=5, dp=2, ep=1, layers=1, stages=1, rule="equal_samples")
    result = solve_exact(problem, rows=2)  # five samples cannot be shared evenly by two slots
    assert result.termination == "infeasible"
    assert result.infeasible == ("equal_samples_per_slot",)


def test_explaining_a_feasible_model_names_nothing():
    problem, placement = medium(samples=8)
    model = build_layout_model(problem, placement.demand(problem.item_counts), 2)
    assert explain(model) == ()


def test_too_many_rows_and_bad_arguments():
    problem, placement = medium(samples=8)
    assert solve_exact(problem, placement=placement, rows=5).infeasible == ("non-empty cells",)
    with pytest.raises(InputError, match="backend"):
        solve_exact(problem, backend="magic")
    hint = solve_by_subsets(problem, placement, 2).layout
    with pytest.raises(InputError, match="hint"):
        solve_exact(problem, placement=placement, rows=3, hint=hint)


@pytest.mark.parametrize("backend", ["cpsat", "highs", "pyomo", "patterns"])
def test_nothing_reaches_standard_output(backend):
    code = f"""
import sys; sys.path.insert(0, 'tests')
from test_exact import medium, solve_exact
problem, placement = medium(samples=7)
solve_exact(problem, placement=placement, rows=2, backend={backend!r})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == ""


def test_a_missing_package_is_named_with_its_remedy(monkeypatch):
    monkeypatch.setattr("routepack_opt.solvers.exact.lexicographic.find_spec", lambda name: None)
    problem = rp.Problem(rp.Window.from_lengths([3, 2]), rp.Topology(dp=1), capacity=8, stages=())
    with pytest.raises(InputError, match=r"the package highspy.*routepack_opt\[exact\]"):
        solve_exact(problem, rows=1, backend="highs")
