"""Problems: topology, rules, items, the scale S, the overflow guard and the routing of pads."""

import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import oracles
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import problems, topologies

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.problem.pads import largest_remainder
from routepack_opt.scoring import score
from routepack_opt.window import Window


def length_problem(lengths, capacity, stages=(), dp=1, **rules):
    return Problem(Window.from_lengths(lengths), Topology(dp), capacity, stages, LayoutRules(**rules))


# -- topology ---------------------------------------------------------------------------------------------


@given(topologies())
def test_shards_partition_the_slots(topology):
    assert sorted(d for part in topology.shards for d in part) == list(range(topology.dp))
    for g, part in enumerate(topology.shards):
        assert list(part) == sorted(part)
        assert topology.shard_of_slot[list(part)].tolist() == [g] * len(part)
    assert topology.num_shards == len(topology.shards)


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        (1, ((0, 1, 2, 3),)),
        (2, ((0, 1), (2, 3))),
        ([[3, 0], [2, 1]], ((0, 3), (1, 2))),
        (np.array([[0, 2], [1, 3]]), ((0, 2), (1, 3))),
        (({0}, range(1, 4)), ((0,), (1, 2, 3))),
    ],
)
def test_shards_are_blocks_or_what_is_given(shards, expected):
    assert Topology(4, edp_shards=shards).shards == expected


# -- rules ------------------------------------------------------------------------------------------------


def test_rules_are_plain_values_that_hash():
    rules = LayoutRules(same_cell=[[3, 1], np.array([0])], row_class=np.array([1, 0]), pad_routing=[1, 2])
    assert (rules.same_cell, rules.row_class, rules.pad_routing) == (((1, 3), (0,)), (1, 0), (1.0, 2.0))
    again = LayoutRules(same_cell=((1, 3), (0,)), row_class=(1, 0), pad_routing=(1.0, 2.0))
    assert rules == again
    assert hash(rules) == hash(again)


def test_the_cap_is_rounded_down_and_the_units_keep_c():
    problem = length_problem([5], 23, [AttentionStage("a", 1, 1)], cell_multiple=10)
    assert problem.cell_cap == 20
    assert problem.denominator == 23 * 23


def test_lengths_are_rounded_up_to_the_multiple():
    problem = length_problem([1, 4, 5, 8], 8, length_multiple=4)
    assert problem.aligned.tolist() == [4, 4, 8, 8]
    assert problem.window.lengths.tolist() == [1, 4, 5, 8]


# -- items ------------------------------------------------------------------------------------------------


@given(problems())
def test_items_sum_their_samples(problem):
    items, aligned = problem.items, problem.aligned.tolist()
    groups = [items.samples_of(m) for m in range(items.size)]
    assert sorted(i for group in groups for i in group) == list(range(problem.window.size))
    assert [group[0] for group in groups] == sorted(group[0] for group in groups)
    assert {tuple(g) for g in groups if len(g) > 1} == {g for g in problem.rules.same_cell if len(g) > 1}
    for m, group in enumerate(groups):
        assert group == sorted(group)
        assert items.of_sample[group].tolist() == [m] * len(group)
        assert items.samples[m] == len(group)
        assert items.tokens[m] == sum(aligned[i] for i in group)
        assert items.squares[m] == sum(aligned[i] ** 2 for i in group)
        assert items.alone[m] == (items.tokens[m] > problem.cell_cap)
        assert items.row_class[m] == (problem.rules.row_class or [0] * 99)[group[0]]
        assert problem.item_counts[m].tolist() == problem.counts[group].sum(axis=0).tolist()


def test_oversize_is_measured_against_the_rounded_cap():
    problem = length_problem([8, 9, 11], 10, cell_multiple=4, oversize="alone")
    assert problem.items.alone.tolist() == [False, True, True]


# -- scale and units --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coefficients", "scale"),
    [
        ([(6, 0), (2, 2)], 1),
        ([(0.5, 0)], 10),
        ([(0.25, 3)], 100),
        ([(3, 0.125), (0.5, 0)], 1000),
        ([(1e-6, 0)], 10**6),
        ([(1 / 3, 0)], 10**6),
        ([(1e16, 0.1)], 10),
        ([], 1),
    ],
)
def test_the_scale_is_the_smallest_that_makes_every_coefficient_whole(coefficients, scale):
    stages = [AttentionStage(f"s{k}", a, b) for k, (a, b) in enumerate(coefficients)]
    problem = length_problem([1], 2, stages)
    assert problem.scale == scale
    assert problem.denominator == 4 * scale
    assert problem.expert_unit == 2 * scale


def test_beyond_six_decimals_the_rounded_values_are_the_coefficients():
    problem = length_problem([1], 2, [AttentionStage("a", "0.0000015", "0.0000025")])
    assert problem.stages[0].decimals == (Decimal("0.000002"), Decimal("0.000002"))
    assert problem.linear.tolist() == [2 * 2]
    assert problem.quadratic.tolist() == [2]


@given(problems())
def test_scaled_coefficients_are_the_stages_exactly(problem):
    for s, stage in enumerate(problem.stages):
        alpha, beta = (Fraction(d) for d in stage.decimals)
        assert alpha == Fraction(int(problem.linear[s]), problem.scale * problem.capacity)
        assert beta == Fraction(int(problem.quadratic[s]), problem.scale)


# -- overflow guard ---------------------------------------------------------------------------------------


def test_the_guard_lets_pass_what_is_just_below_the_limit():
    # B = C t alpha + t^2 beta + C a with C = t = 2^20; one sample on one slot and rank reaches it.
    def build(count):
        window = Window.from_counts([2**20], [[[count]]])
        return Problem(window, Topology(1), 2**20, [AttentionStage("a", 2**22 - 8, 7)])

    found = score(build(2**20 - 1), Placement.identity(1, 1, 1), [[[0]]])
    assert found.components == (2**62 - 2**20,) * 3
    with pytest.raises(
        InputError, match=rf"below 2\^62 = {2**62}, found {2**62} \(scale 1, capacity {2**20}\)"
    ):
        build(2**20)


def test_the_scale_is_lowered_when_no_coefficient_changes_by_more_than_a_thousandth():
    window = Window.from_lengths([2**20] * 4)

    def build(alpha):
        return Problem(window, Topology(1), 2**22, [AttentionStage("a", alpha)])

    with pytest.warns(UserWarning, match="rounded to 1/100000, not 1/1000000"):
        lowered = build(2.000001)
    assert lowered.scale == 10**5
    assert lowered.linear.tolist() == [200000 * 2**22]
    assert build(2**18 - 1).scale == 1
    with pytest.raises(InputError, match=r"stages: expected a bound.*\(scale 1, capacity 4194304\)"):
        build(2**18)


def test_small_coefficients_are_never_lowered_away():
    window = Window.from_lengths([2**20] * 4)
    stages = [AttentionStage("a", 2.0), AttentionStage("b", 0.000123)]
    with pytest.raises(InputError, match="scale 1000000"):
        Problem(window, Topology(1), 2**22, stages)


@pytest.mark.parametrize("alpha", [1e30, 1e308])
def test_huge_coefficients_are_refused_in_one_short_line(alpha):
    with pytest.raises(InputError, match="stages: expected a bound on the score below") as caught:
        Problem(Window.from_lengths([2**30] * 9), Topology(1), 2**31 - 1, [AttentionStage("a", alpha, alpha)])
    assert len(str(caught.value)) < 200


def test_no_warning_without_need():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        length_problem([4, 5], 8, [AttentionStage("a", 0.123456, 0.3)])


def test_squares_of_aligned_lengths_do_not_wrap():
    kept = length_problem([2**31 - 1], 10, length_multiple=2**31, oversize="alone")
    assert kept.items.squares.tolist() == [2**62]
    with pytest.raises(
        InputError, match=r"length_multiple: .*up to 2147483648, found 2147483650 for sample 0"
    ):
        length_problem([2**31 - 1], 10, length_multiple=10, oversize="alone")


# -- pads -------------------------------------------------------------------------------------------------


@given(st.integers(0, 200), st.lists(st.integers(0, 9), min_size=1, max_size=6).filter(any))
def test_shares_go_to_the_largest_remainders(total, weights):
    shares = largest_remainder(total, np.array(weights))
    assert shares.tolist() == oracles.shares_by_largest_remainder(total, weights)
    assert shares.sum() == total


def pad_problem(routing, model=True, multiple=4):
    window = Window.from_counts(
        [1, 8], [[[1, 1, 0, 0]] * 2, [[8, 8, 0, 0]] * 2], model=MoEModel(2, 4, 2) if model else None
    )
    rules = LayoutRules(length_multiple=multiple, pad_routing=routing)
    return Problem(window, Topology(1, 2), 12, rules=rules)


@pytest.mark.parametrize(
    ("routing", "added"),
    [
        ("none", [[0, 0, 0, 0]] * 2),
        ("uniform", [[2, 2, 1, 1]] * 2),  # three pads, top-2: six assignments
        ([1, 0, 0, 0], [[6, 0, 0, 0]] * 2),
        ([[0, 1, 1, 0], [3, 2, 1, 0]], [[0, 3, 3, 0], [3, 2, 1, 0]]),
        ([0.1, 0.2, 0.3, 0.4], [[1, 1, 2, 2]] * 2),  # 0.6 1.2 1.8 2.4: units left go to 0.8 and 0.6
    ],
)
def test_pads_are_routed_once_by_largest_remainder(routing, added):
    problem = pad_problem(routing)
    assert (problem.counts[0] - problem.window.counts[0]).tolist() == added
    assert problem.counts[1].tolist() == problem.window.counts[1].tolist()
    assert problem.loads.tolist() == (problem.window.loads + np.array(added)).tolist()
    assert not problem.counts.flags.writeable


@pytest.mark.parametrize(("routing", "each"), [("uniform", [25] * 8), ([1] + [0] * 7, [200] + [0] * 7)])
def test_a_hundred_pads_are_two_hundred_assignments(routing, each):
    window = Window.from_counts([28], np.zeros((1, 1, 8)), model=MoEModel(1, 8, 2))
    rules = LayoutRules(length_multiple=128, pad_routing=routing)
    assert Problem(window, Topology(1), 128, rules=rules).counts[0, 0].tolist() == each


def test_pads_need_a_model_only_when_there_are_some():
    with pytest.raises(
        InputError, match=r"pad_routing: .*top_k, found no model\. Build the window with model="
    ):
        pad_problem("uniform", model=False)
    assert pad_problem("uniform", model=False, multiple=1).counts.sum() == 36


@pytest.mark.parametrize("multiple", [1, 4])
@pytest.mark.parametrize("routing", [[1, 2], [[1, 1, 1, 1]]])
def test_pad_weights_of_another_shape_are_refused(routing, multiple):
    with pytest.raises(InputError, match=r"weights of shape \(4,\) or \(2, 4\), found"):
        pad_problem(routing, multiple=multiple)


# -- digests ----------------------------------------------------------------------------------------------


def test_the_digests_know_what_plans_and_row_counts_depend_on():
    def build(lengths=(3, 3, 4, 4), dp=2, ep=1, shards=1, capacity=10, stage="a:1", top_k=1, **rules):
        window = Window.from_counts(lengths, [[[0] * 2]] * len(lengths), model=MoEModel(1, 2, top_k))
        stages = [AttentionStage.parse(stage)]
        return Problem(window, Topology(dp, ep, shards), capacity, stages, LayoutRules(**rules))

    base = build()
    assert build().digest == base.digest
    rows_too = [
        build(dp=1), build(capacity=11), build(min_rows=2), build(row_multiple=2),
        build(max_samples_per_cell=2), build(equal_samples_per_slot=True), build(cell_multiple=9),
        build(length_multiple=2), build(lengths=(3, 3, 4, 5)), build(row_class=[0, 0, 1, 1]),
        build(same_cell=[(0, 1)]), build(lengths=(3, 3, 11, 4), oversize="alone"),
    ]  # fmt: skip
    plans_only = [
        build(ep=2), build(shards=2), build(stage="a:2"), build(stage="b:1"),
        build(row_order="largest_first"),
        build(pad_routing="uniform", length_multiple=2, top_k=1),
        build(pad_routing="uniform", length_multiple=2, top_k=2),
        build(same_cell=[(0, 2)]), build(same_cell=[(0, 3)]),
    ]  # fmt: skip
    every = [base, *rows_too, *plans_only]
    assert len({p.digest for p in every}) == len(every)
    assert len({p.rows_digest for p in [base, *rows_too]}) == 1 + len(rows_too)
    assert {p.rows_digest for p in plans_only[:5]} == {base.rows_digest}
    assert plans_only[5].rows_digest == plans_only[6].rows_digest


@given(problems())
def test_a_problem_is_frozen(problem):
    arrays = [
        problem.aligned,
        problem.counts,
        problem.item_counts,
        problem.loads,
        problem.linear,
        problem.quadratic,
    ]
    arrays += [getattr(problem.items, name) for name in problem.items.__dataclass_fields__]
    assert not any(array.flags.writeable for array in arrays)
