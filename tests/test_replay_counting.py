"""Counting: every id is looked at, rows are sorted into kept and lost, policies do what they say."""

import numpy as np
import oracles_replay
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay import read
from routepack_opt.replay.policies import rescale
from routepack_opt.replay.pool import in_order

DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "int64")


def valid_rows(rng, rows, layers, top_k, experts):
    """Random rows whose experts are distinct."""
    return np.argsort(rng.random((rows, layers, experts)), axis=2)[:, :, :top_k]


@st.composite
def windows(draw):
    """A model, and samples whose rows are valid, unset, filler or corrupt."""
    layers, experts = draw(st.integers(1, 6)), draw(st.integers(2, 9))
    dense = draw(st.sets(st.integers(0, layers - 1), max_size=layers - 1))
    model = MoEModel(layers, experts, draw(st.integers(2, min(experts, 4))), tuple(dense))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    axis = draw(st.sampled_from(["all", "moe"]))
    width = layers if axis == "all" else model.num_moe_layers
    dtype = draw(st.sampled_from(DTYPES))
    lengths, samples = [], []
    for _ in range(draw(st.integers(1, 4))):
        length = draw(st.integers(1, 9))
        ids = valid_rows(rng, draw(st.integers(0, length)), width, model.top_k, experts)
        for row in range(len(ids)):
            kind = draw(st.sampled_from(["valid"] * 4 + ["zero", "unset", "corrupt", "torn", "count"]))
            if kind == "zero":
                ids[row] = 0
            elif kind == "count":
                ids[row] = np.arange(model.top_k)
            elif kind in ("unset", "corrupt", "torn") and not dtype.startswith("u"):
                place = {"unset": ..., "corrupt": (-1, 0), "torn": -1}[kind]
                ids[row][place] = -1
        lengths.append(length)
        samples.append(ids.astype(dtype))
    return model, axis, lengths, samples


@settings(max_examples=150, deadline=None)
@given(windows(), st.integers(1, 3))
def test_counts_and_report_equal_the_oracle(window, threads):
    model, axis, lengths, samples = window
    columns = list(model.moe_layers if axis == "all" else range(model.num_moe_layers))
    expected = [oracles_replay.count(ids[:, columns], columns, model.experts) for ids in samples]
    options = {"lengths": lengths, "layer_axis": axis, "policy": "count", "threads": threads}
    if any(loses_a_layer(ids[:, columns], model.experts) for ids in samples):
        with pytest.raises(InputError, match="pipeline stage"):
            read(samples, model, **options)
        return
    got = read(samples, model, **options)
    report = got.report
    for i, (states, counts) in enumerate(expected):
        assert got.counts[i].tolist() == counts
        last = len(states) == lengths[i] and states and states[-1] in ("missing", "filler")
        inner = states[:-1] if last else states
        assert report.padded[i] == bool(last)
        assert report.expected[i] == (lengths[i] if len(inner) == lengths[i] else lengths[i] - 1)
        assert report.kept[i] == inner.count("valid")
        assert report.filler[i] == inner.count("filler")
        assert report.corrupt[i] == inner.count("corrupt")
        assert report.missing[i] == report.expected[i] - len(inner) + inner.count("missing")
    assert (report.kept + report.missing + report.filler + report.corrupt == report.expected).all()
    assert (got.counts.sum(axis=2) == model.top_k * report.kept[:, None]).all()


def loses_a_layer(rows, experts):
    """Tell whether some layer has no valid row while another has two."""
    layers = range(rows.shape[1])
    valid = [sum(oracles_replay.layer_state(row[k], experts) == "valid" for row in rows) for k in layers]
    return len(rows) > 1 and min(valid) == 0 and max(valid) > 1


@pytest.mark.parametrize("dtype", DTYPES)
def test_no_dtype_changes_the_counts(dtype):
    model = MoEModel(4, 30, 5)
    ids = valid_rows(np.random.default_rng(3), 40, 4, 5, 30).astype(dtype)
    _, counts = oracles_replay.count(ids, range(4), 30)
    for order in ("<", ">"):
        swapped = ids.astype(ids.dtype.newbyteorder(order))
        assert read([swapped], model, lengths=[41]).counts[0].tolist() == counts
    assert read([np.asfortranarray(ids)[:, :, :]], model, lengths=[41]).counts[0].tolist() == counts


MODEL = MoEModel(4, 16, 4, name="test")
GOOD = valid_rows(np.random.default_rng(0), 9, 4, 4, 16).astype(np.int16)


def changed(row, layer, value, ids=GOOD):
    """A copy with other ids at one row and layer."""
    copy = ids.copy()
    copy[row, layer] = value
    return copy


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (
            changed(4, 2, [1, 2, 16, 3]),
            "token 4, MoE layer 2, choice 2: expected expert ids 0..15, found 16.*physical",
        ),
        (changed(4, 2, -1), "1 missing.*first: token 4"),
        (changed(4, 2, [1, -1, 2, 3]), "1 corrupt"),
        (changed(4, 2, [1, -7, -7, -7]), "1 corrupt"),
        (changed(4, slice(None), 0), "1 filler"),
        (changed(4, slice(None), [0, 1, 2, 3]), "1 filler"),
        (changed(4, slice(None), np.arange(16).reshape(4, 4)), "1 filler"),
        (changed(4, slice(None), (np.arange(16).reshape(4, 4) + 5) % 16), "1 filler"),
        (GOOD[:7], "2 missing.*first: token 7"),
        (np.concatenate([GOOD, GOOD[:2]]), "at most 10 rows"),
        (None, "9 missing"),
        (GOOD[:, :3], "3 layers"),
        (GOOD[:, :, :3], "top_k = 4"),
        (np.concatenate([GOOD, GOOD[:, :, :1]], axis=2), "fused shared expert"),
        (np.concatenate([GOOD, GOOD[:, :, :1]], axis=2).reshape(9, 20), "fused shared expert"),
        (np.concatenate([GOOD, GOOD[:, :, :1]], axis=2).ravel(), "fused shared expert"),
        (GOOD.ravel()[:-1], "9 or 10 rows"),
        (GOOD.astype(float), "float64"),
        (GOOD[None, None], "1 to 3 axes"),
        (np.array(["a"]), "dtype"),
        (np.repeat(GOOD[:1], 9, axis=0), None),
    ],
)
def test_bad_routes_are_named(ids, words):
    if words is None:
        assert read([ids], MODEL, lengths=[10]).report.longest_run[0] == 9
        return
    with pytest.raises(InputError, match=f"sample 0.*{words}"):
        read([ids], MODEL, lengths=[10])


def test_identical_rows_beyond_the_limit_are_refused():
    ids = np.concatenate([GOOD, np.repeat(GOOD[:1], 64, axis=0)])
    with pytest.raises(InputError, match=r"found 64, rows 9\.\.72"):
        read([ids], MODEL, lengths=[74])
    assert read([ids], MODEL, lengths=[74], repeat_limit=None).report.longest_run[0] == 64


def test_policies_count_what_is_there_or_rescale_it():
    ids = changed(4, slice(None), 0)[:7]
    counted = read([ids, GOOD], MODEL, lengths=[10, 10], policy="count")
    assert counted.report.total == {
        "expected": 18, "kept": 15, "missing": 2, "filler": 1, "corrupt": 0, "padded": 0,
    }  # fmt: skip
    assert counted.report.as_dict()["samples_with_losses"] == [
        {"sample": 0, "expected": 9, "kept": 6, "missing": 2, "filler": 1, "corrupt": 0}
    ]
    scaled = read([ids, GOOD], MODEL, lengths=[10, 10], policy="rescale")
    assert (scaled.counts.sum(axis=2) == 36).all()
    assert (scaled.counts[1] == counted.counts[1]).all()
    assert (abs(scaled.counts[0] - counted.counts[0] * 1.5) < 1).all()


def test_a_sample_without_routes_borrows_the_profile_of_the_window():
    result = read([None, GOOD], MODEL, lengths=[10, 10], policy="rescale")
    assert result.report.borrowed.tolist() == [True, False]
    assert result.report.as_dict()["borrowed"] == [0]
    assert (result.counts[0] == result.counts[1]).all()
    assert not read([None, GOOD], MODEL, lengths=[10, 10], policy="count").counts[0].any()
    with pytest.raises(InputError, match="one valid row"):
        read([None], MODEL, lengths=[10], policy="rescale")


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(0, 60), st.integers(0, 2**32))
def test_rescaling_keeps_sums_and_never_exceeds_the_rows(kept, more, seed):
    rows = valid_rows(np.random.default_rng(seed), kept, 3, 4, 10)
    counts = np.stack([np.bincount(rows[:, layer].ravel(), minlength=10) for layer in range(3)]).astype(
        np.int32
    )
    scaled = rescale(counts, kept, kept + more)
    assert (scaled.sum(axis=1) == 4 * (kept + more)).all()
    assert scaled.max() <= kept + more
    assert (abs(scaled - counts * (kept + more) / kept) < 1).all()


def test_a_lost_pipeline_stage_is_refused_under_every_policy():
    ids = GOOD.copy()
    ids[:, :2] = 0
    for policy in ("error", "count", "rescale"):
        with pytest.raises(InputError, match=r"MoE layers \[0, 1\].*pipeline stage"):
            read([ids], MODEL, lengths=[10], policy=policy)


def test_one_expert_per_token_needs_a_mask():
    model, ids = MoEModel(2, 8, 1), np.array([[[1], [2]], [[0], [0]], [[3], [3]]])
    with pytest.raises(InputError, match="mask"):
        read([ids], model, lengths=[4])
    vouched = read([ids], model, lengths=[4], mask=True)
    assert vouched.counts[0].sum(axis=1).tolist() == [3, 3]
    masked = read([ids], model, lengths=[4], mask=[[True, False, True]], policy="count")
    assert masked.counts[0, :, 0].tolist() == [0, 0]
    assert masked.report.missing.tolist() == [1]
    for wrong in ([True, False], np.zeros(0, bool)):
        with pytest.raises(InputError, match="mask of 3 rows"):
            read([ids], model, lengths=[4], mask=[wrong])
    with pytest.raises(InputError, match="mask of booleans"):
        read([ids], model, lengths=[4], mask=[[0.5, 1.0, 1.0]])


def test_the_last_of_n_rows_counts_when_it_is_a_route_and_not_when_it_is_filler():
    full = np.concatenate([GOOD, GOOD[:1]])
    assert read([full], MODEL, lengths=[10]).report.expected.tolist() == [10]
    for filler in (0, -1, np.arange(4)):
        padded = read([changed(9, slice(None), filler, full)], MODEL, lengths=[10])
        assert padded.report.total["padded"] == 1
        assert (padded.counts == read([GOOD], MODEL, lengths=[10]).counts).all()


def test_flat_routes_with_two_readings_ask_for_the_layer_axis():
    model = MoEModel(4, 16, 4, (0, 1))
    ids = GOOD[:4].ravel()
    with pytest.raises(InputError, match=r'8 rows of 2 layers or 4 rows of 4 layers.*layer_axis="all"'):
        read([ids], model, lengths=[20], policy="count")
    assert read([ids], model, lengths=[20], policy="count", layer_axis="all").report.kept[0] == 4
    assert read([ids], model, lengths=[5]).report.kept[0] == 4
    assert read([ids], model, lengths=[9]).report.kept[0] == 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"lengths": [10, 10]}, "2 samples"),
        ({"lengths": []}, "0 samples"),
        ({"lengths": [0]}, "lengths"),
        ({"lengths": [10.5]}, "lengths"),
        ({}, "pass lengths="),
        ({"lengths": [10], "policy": "skip"}, "policy"),
        ({"lengths": [10], "form": "tape"}, "form"),
        ({"lengths": [10], "layer_axis": "some"}, "layer_axis"),
        ({"lengths": [10], "routing": "sure"}, "routing"),
        ({"lengths": [10], "side": "top"}, "side"),
        ({"lengths": [10], "threads": 0}, "threads"),
        ({"lengths": [10], "repeat_limit": 1}, "repeat_limit"),
        ({"lengths": [10], "prompt_ids": [1, 2]}, "prompt_ids"),
        ({"lengths": [10], "mask": [[True] * 9] * 2}, "2 samples, as many as masks"),
        ({"lengths": [10], "mask": []}, "0 samples, as many as masks"),
    ],
)
def test_bad_options_are_named(options, words):
    with pytest.raises(InputError, match=words):
        read([GOOD], MODEL, **options)


def test_routing_kind_and_policy_version_travel():
    result = read([GOOD], MODEL, lengths=[10], routing="predicted", policy_version="step-7", prompt_ids=[5])
    assert (result.report.routing, result.report.policy_version) == ("predicted", "step-7")
    assert result.prompt_ids.tolist() == [5]


def test_an_empty_replay_is_refused():
    with pytest.raises(InputError, match="at least one sample"):
        read([], MODEL, lengths=[])


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_work_on_threads_is_ordered_lazy_and_raises_the_first_error(threads):
    taken = []

    def items():
        for item in range(100):
            taken.append(item)
            yield item

    results = in_order(lambda item: 60 // (50 - item), items(), threads)
    assert [next(results) for _ in range(10)] == [60 // (50 - item) for item in range(10)]
    assert len(taken) <= 10 + 2 * threads + 1
    with pytest.raises(ZeroDivisionError):
        list(results)
