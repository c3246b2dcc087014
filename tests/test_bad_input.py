"""Every kind of bad input in one table: the error names the value, where it stands, and the argument.

The tables of replay ids, files and row counts stand with the tests of those modules.
"""

# ruff: noqa: E501  (a table: one case, one line)

import numpy as np
import pytest

from routepack_opt.errors import InputError, RoutePackError
from routepack_opt.layout import Layout
from routepack_opt.model import MoEModel
from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.window import Window

NAN, INF = float("nan"), float("inf")


def counts(lengths=(4, 4), value=((2, 2), (2, 2)), **kwargs):
    return Window.from_counts(lengths, [list(map(list, value))] * len(lengths), **kwargs)


def changed(index, value):
    table = np.full((2, 2, 2), 2.0)
    table[index] = value
    return Window.from_counts([4, 4], table)


def problem(lengths=(4, 4), capacity=8, topology=None, stages=(), window=None, **rules):
    return Problem(
        window or Window.from_lengths(lengths),
        topology or Topology(1),
        capacity,
        stages,
        LayoutRules(**rules),
    )


# (what is wrong, how to do it, what the message says)
CASES = [
    ("empty window", lambda: Window.from_lengths([]), r"lengths: expected at least one sample, found an empty window"),
    ("empty window with counts", lambda: Window.from_counts([], np.zeros((0, 2, 2))), r"found an empty window"),
    ("length 0", lambda: Window.from_lengths([3, 0]), r"lengths: .* from 1 to 2147483647, found 0 at index 1"),
    ("negative length", lambda: Window.from_lengths([3, 4, -2]), r"lengths: .*found -2 at index 2"),
    ("fraction of a token", lambda: Window.from_lengths([3, 2.5]), r"lengths: .*found 2\.5 at index 1"),
    ("length NaN", lambda: Window.from_lengths([NAN]), r"lengths: .*found nan at index 0"),
    ("length above int32", lambda: Window.from_lengths([2**31]), r"lengths: .*found 2147483648 at index 0"),
    ("lengths of two axes", lambda: Window.from_lengths([[3]]), r"lengths: expected shape \(any,\), found shape \(1, 1\)"),
    ("text", lambda: Window.from_lengths(["3"]), r"lengths: expected whole numbers"),
    ("fractional count", lambda: changed((1, 0, 1), 1.5), r"counts: .*found 1\.5 at index \(1, 0, 1\)"),
    ("NaN count", lambda: changed((0, 1, 0), NAN), r"counts: .*found nan at index \(0, 1, 0\)"),
    ("infinite count", lambda: changed((0, 1, 0), INF), r"counts: .*found inf at index \(0, 1, 0\)"),
    ("negative count", lambda: changed((1, 1, 0), -1), r"counts: .*found -1\.0 at index \(1, 1, 0\)"),
    ("more than the tokens", lambda: changed((1, 1, 0), 5), r"from 0 to the sample's 4 tokens, found 5 for sample 1, layer 1, expert 0"),
    ("layers disagree", lambda: changed((1, 1, 0), 3), r"same number .* in every layer, found 5 in layer 1 but 4 in layer 0 of sample 1"),
    ("counts of another size", lambda: Window.from_counts([4], np.ones((2, 1, 1))), r"counts: expected shape \(1, any, any\), found shape \(2, 1, 1\)"),
    ("counts of two axes", lambda: Window.from_counts([4], np.ones((1, 1))), r"counts: expected shape \(1, any, any\)"),
    ("layers without experts", lambda: Window.from_counts([4], np.ones((1, 2, 0))), r"at least one expert, found shape \(1, 2, 0\)"),
    ("wrong layer axis", lambda: counts(model=MoEModel(3, 2, 1)), r"counts: expected the model's 3 MoE layers and 2 experts, found 2 layers and 2 experts"),
    ("wrong expert axis", lambda: counts(model=MoEModel(2, 4, 1)), r"2 MoE layers and 4 experts, found 2 layers and 2 experts"),
    ("prompts of another size", lambda: counts(prompt_ids=[1]), r"prompt_ids: expected shape \(2,\), found shape \(1,\)"),
    ("unknown routing kind", lambda: counts(routing="maybe"), r"routing: expected 'exact' or 'predicted', found 'maybe'"),

    ("capacity 0", lambda: problem(capacity=0), r"capacity: .*found 0"),
    ("fractional capacity", lambda: problem(capacity=8.5), r"capacity: .*found 8\.5"),
    ("sample over the cap", lambda: problem((4, 9, 10)), r"lengths: expected at most 8 tokens per cell, found sample 1 of 9 tokens, the first of 2 such samples"),
    ("sample over the cap once aligned", lambda: problem((4, 9), 10, length_multiple=4), r"at most 10 tokens per cell, found sample 1 of 9 tokens \(12 aligned\)\. .*oversize='alone'"),
    ("sample over the rounded cap", lambda: problem((8,), 10, cell_multiple=4, length_multiple=3), r"at most 8 tokens per cell \(capacity 10 rounded down to cell_multiple\), found sample 0 of 8 tokens \(9 aligned\)"),
    ("tuple over the cap", lambda: problem((4, 4, 4), same_cell=[(0, 2, 1)]), r"rules\.same_cell: .*found 12 tokens in the same_cell tuple \(0, 1, 2\)"),
    ("oversize tuple", lambda: problem((9, 4), same_cell=[(0, 1)], oversize="alone"), r"found 13 tokens in the same_cell tuple \(0, 1\)"),
    ("tuple over max_samples", lambda: problem((1, 1, 1), same_cell=[(0, 1, 2)], max_samples_per_cell=2), r"max_samples_per_cell=2 samples, found \(0, 1, 2\)"),
    ("no room in a cell", lambda: problem(cell_multiple=9), r"cell_multiple: .*found cell_multiple 9 above capacity 8"),
    ("experts not divisible by ranks", lambda: problem(window=counts(), topology=Topology(1, 3)), r"topology\.ep: .*found 2 experts on 3 ranks"),
    ("negative expert bytes", lambda: Problem(counts(), Topology(1), 8, expert_bytes=-1), r"expert_bytes: .*found -1"),

    ("no slots", lambda: Topology(0), r"dp: .*found 0"),
    ("no ranks", lambda: Topology(1, 0), r"ep: .*found 0"),
    ("slots not divisible by shards", lambda: Topology(4, 1, 3), r"edp_shards: expected a divisor of dp=4, found 3"),
    ("slot missing", lambda: Topology(3, 1, [[0], [2]]), r"edp_shards: expected a partition of the 3 slots, found slot 1 missing"),
    ("slot repeated", lambda: Topology(3, 1, [[0, 1], [1, 2]]), r"found slot 1 2 times"),
    ("slot beyond dp", lambda: Topology(2, 1, [[0, 1], [2]]), r"found slot 2"),
    ("empty shard", lambda: Topology(2, 1, [[0, 1], []]), r"found an empty shard"),
    ("no shard", lambda: Topology(2, 1, []), r"found an empty shard in \(\)"),
    ("flat shards", lambda: Topology(2, 1, [0, 1]), r"edp_shards: .*list of slots for every shard, found 0 at index 0"),

    ("placement repeats a slot", lambda: Placement([[0, 1], [1, 1]], 1), r"slot_of_expert: .*slot 1 at experts 0, 1 of layer 1, slot 0 missing"),
    ("placement beyond the slots", lambda: Placement([[0, 2]], 1), r"found slot 2 at layer 0, expert 1"),
    ("placement of fractions", lambda: Placement([[0.0, 0.5]], 1), r"slot_of_expert: .*found 0\.5 at index \(0, 1\)"),
    ("inverse map repeats an expert", lambda: Placement.from_expert_of_slot([[1, 1]], 1), r"expert_of_slot: .*expert 1 at slots 0, 1"),
    ("ranks do not divide", lambda: Placement.identity(1, 4, 3), r"ranks: .*found 4 experts over 3 ranks \(1 left over\)"),

    ("alpha negative", lambda: AttentionStage("kda", -1.0), r"alpha of stage 'kda': .*found -1\.0"),
    ("alpha NaN", lambda: AttentionStage("kda", NAN), r"alpha of stage 'kda': .*found nan"),
    ("beta negative", lambda: AttentionStage("kda", 1, -0.5), r"beta of stage 'kda': .*found -0\.5"),
    ("beta infinite", lambda: AttentionStage("kda", 1, INF), r"beta of stage 'kda': .*found inf"),
    ("beta no number", lambda: AttentionStage("kda", 1, "x"), r"beta of stage 'kda': .*found 'x'"),
    ("beta vanishes", lambda: AttentionStage("kda", 1, 1e-9), r"beta of stage 'kda': .*found 1e-09"),
    ("scale overflow", lambda: problem((8,) * 9, 8, stages=[AttentionStage("a", 1e17)]), r"stages: .*below 2\^62 = 4611686018427387904, found 57600000000000000000 \(scale 1, capacity 8\)"),

    ("length_multiple 0", lambda: LayoutRules(length_multiple=0), r"rules\.length_multiple: .*found 0"),
    ("cell_multiple -1", lambda: LayoutRules(cell_multiple=-1), r"rules\.cell_multiple: .*found -1"),
    ("min_rows 0", lambda: LayoutRules(min_rows=0), r"rules\.min_rows: .*found 0"),
    ("row_multiple half", lambda: LayoutRules(row_multiple=1.5), r"rules\.row_multiple: .*found 1\.5"),
    ("no samples per cell", lambda: LayoutRules(max_samples_per_cell=0), r"rules\.max_samples_per_cell: .*found 0"),
    ("equal samples by number", lambda: LayoutRules(equal_samples_per_slot=2), r"rules\.equal_samples_per_slot: expected True or False, found 2"),
    ("unknown oversize policy", lambda: LayoutRules(oversize="drop"), r"rules\.oversize: expected 'reject' or 'alone', found 'drop'"),
    ("unknown row order", lambda: LayoutRules(row_order="up"), r"rules\.row_order: .*found 'up'"),
    ("flat tuple", lambda: LayoutRules(same_cell=(0, 1)), r"rules\.same_cell: .*found 0 at index 0"),
    ("empty tuple", lambda: LayoutRules(same_cell=[(0,), ()]), r"rules\.same_cell\[1\]: .*found an empty tuple"),
    ("negative sample", lambda: LayoutRules(same_cell=[(0, -1)]), r"rules\.same_cell\[0\]: .*found -1"),
    ("sample in two tuples", lambda: LayoutRules(same_cell=[(0, 1), (1, 2)]), r"found sample 1 in tuples 0 and 1\. Join"),
    ("sample twice in a tuple", lambda: LayoutRules(same_cell=[(2, 2)]), r"found sample 2 twice in tuple 0\. Name it once"),
    ("unknown sample", lambda: problem(same_cell=[(1, 2)]), r"rules\.same_cell: expected samples from 0 to 1, found sample 2 in \(1, 2\)"),
    ("fractional class", lambda: LayoutRules(row_class=[0, 0.5]), r"rules\.row_class: .*found 0\.5 at index 1"),
    ("classes of another size", lambda: problem(row_class=[0]), r"rules\.row_class: .*found 1 classes for 2 samples"),
    ("tuple of two classes", lambda: problem(row_class=[0, 1], same_cell=[(0, 1)]), r"rules\.row_class: .*sample 1 of class 1 in an item of class 0"),
    ("unknown pad routing", lambda: LayoutRules(pad_routing="random"), r"rules\.pad_routing: .*found 'random'"),
    ("negative pad weight", lambda: LayoutRules(pad_routing=[1, -1]), r"rules\.pad_routing: .*found \[1, -1\]"),
    ("no pad weight", lambda: LayoutRules(pad_routing=[[1, 1], [0, 0]]), r"rules\.pad_routing: .*positive sum"),
    ("pad weights of text", lambda: LayoutRules(pad_routing=["a"]), r"rules\.pad_routing: .*found \['a'\]"),
    ("ragged pad weights", lambda: LayoutRules(pad_routing=[[1], [1, 2]]), r"rules\.pad_routing: "),

    ("sample missing", lambda: Layout.from_cells([[[0]]], size=2), r"cells: expected every sample exactly once, found sample 1 missing"),
    ("sample repeated", lambda: Layout.from_cells([[[0, 0]]]), r"found sample 0 in cells \(0, 0\) and \(0, 0\)"),
    ("too few samples for the rows", lambda: Layout([0, 1], 2, 2).validate(problem(topology=Topology(2))), r"layout: expected at least 4 samples.*found 2 for 2 rows of 2 slots"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "message"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_bad_input_is_named(build, message):
    with pytest.raises(InputError, match=message) as caught:
        build()
    assert isinstance(caught.value, ValueError)
    assert isinstance(caught.value, RoutePackError)
    assert "\n" not in str(caught.value)


def test_errors_survive_a_process_border():
    import pickle

    with pytest.raises(InputError) as caught:
        Window.from_lengths([])
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert (again.expected, again.where) == ("at least one sample", "lengths")
