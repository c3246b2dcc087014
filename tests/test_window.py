"""Windows: digest, round trips through files, what is kept and what identifies a window."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import windows

from routepack_opt.errors import FormatError, InputError
from routepack_opt.files import save_npz
from routepack_opt.model import MoEModel
from routepack_opt.window import KIND, SCHEMA, Window

COUNTS = [[[2, 0], [1, 1]], [[1, 3], [2, 2]]]


@pytest.fixture
def window():
    return Window.from_counts(
        [2, 4], COUNTS, prompt_ids=[7, -1], routing="predicted", policy_version="step-12",
        model=MoEModel(4, 2, 1, dense_layers=(0, 3)), source={"rows": {"kept": 6, "lost": 0}},
    )  # fmt: skip


@given(windows())
def test_a_round_trip_keeps_the_digest(tmp_path_factory, window):
    path = tmp_path_factory.getbasetemp() / "window.npz"
    window.save(path)
    again = Window.load(path)
    assert again.digest == window.digest
    assert again.lengths.tolist() == window.lengths.tolist()
    assert again.counts.tolist() == window.counts.tolist()
    assert again.model == window.model


def test_a_round_trip_keeps_every_field(window, tmp_path):
    window.save(tmp_path / "w.npz")
    again = Window.load(tmp_path / "w.npz")
    assert again.prompt_ids.tolist() == [7, -1]
    assert (again.routing, again.policy_version, again.source) == ("predicted", "step-12", window.source)
    assert again.model == MoEModel(4, 2, 1, dense_layers=(0, 3))
    again.save(tmp_path / "again.npz")
    assert (tmp_path / "again.npz").read_bytes() == (tmp_path / "w.npz").read_bytes()


def test_the_digest_is_pinned(window):
    # Certificates and plans name windows by digest, on any host and in any later version.
    assert window.digest == "d19f25a3e8e01dea0a667a181a0c261baab36b6a8ae5e612f5454ed43aebf2c2"


def test_the_digest_knows_what_the_planner_sees_and_nothing_else(window):
    fields = {"prompt_ids": [7, -1], "routing": "predicted", "policy_version": "step-12"}

    def digest(lengths=(2, 4), counts=COUNTS, **changed):
        return Window.from_counts(lengths, counts, **{**fields, **changed}).digest

    assert digest() == window.digest
    assert digest(counts=np.array(COUNTS, np.uint8), source={"file": "x"}) == window.digest
    others = [
        digest(lengths=(3, 4)),
        digest(counts=[[[1, 1], [1, 1]], COUNTS[1]]),
        digest(prompt_ids=None),
        digest(prompt_ids=[7, 0]),
        digest(routing="exact"),
        digest(policy_version=None),
        digest(policy_version="step-13"),
    ]
    assert len({window.digest, *others}) == 8


def test_sizes_and_loads(window):
    assert (window.size, window.num_layers, window.num_experts) == (2, 2, 2)
    assert window.loads.tolist() == [[3, 3], [3, 3]]
    assert window.loads.dtype == np.int64
    assert window.counts.dtype == np.int32


def test_a_window_does_not_change_with_what_it_was_built_from():
    lengths, counts = np.array([2, 4]), np.array(COUNTS)
    window = Window.from_counts(lengths, counts)
    digest = window.digest
    lengths[:], counts[:] = 1, 0
    assert Window.from_counts(window.lengths, window.counts).digest == digest
    for array in (window.lengths, window.counts, window.loads):
        assert not array.flags.writeable


def test_big_readonly_counts_are_not_copied():
    counts = np.array(COUNTS, np.int32)
    counts.setflags(write=False)
    assert Window.from_counts([2, 4], counts).counts is counts


def test_lengths_alone_make_a_window():
    window = Window.from_lengths([5, 1])
    assert (window.size, window.num_layers, window.num_experts) == (2, 0, 0)
    assert window.loads.shape == (0, 0)
    # a model says nothing about the counts of a window that has none
    assert Window.from_lengths([5], model=MoEModel(2, 4, 1)).model is not None


@pytest.mark.parametrize("missing", ["lengths", "counts"])
def test_a_file_without_a_field_is_refused(missing, tmp_path):
    arrays = {"lengths": np.array([2, 4]), "counts": np.array(COUNTS, np.int32)}
    del arrays[missing]
    save_npz(tmp_path / "w.npz", KIND, SCHEMA, {}, arrays)
    with pytest.raises(FormatError, match=f"a field '{missing}'"):
        Window.load(tmp_path / "w.npz")


@pytest.mark.parametrize(
    ("meta", "message"),
    [
        ({"model": {"layers": 2}}, "a model with dense_layers, experts, layers, name, top_k"),
        ({"model": 5}, "a model with dense_layers"),
        ({"model": {"layers": 2, "experts": 2, "top_k": 3, "dense_layers": [], "name": None}}, "top_k"),
        ({"routing": "guessed"}, "'guessed'"),
        ({"source": [1]}, "source"),
        ({"policy_version": 3}, "policy_version"),
    ],
)
def test_a_file_with_a_wrong_header_is_refused(meta, message, tmp_path):
    arrays = {"lengths": np.array([2, 4]), "counts": np.array(COUNTS, np.int32)}
    save_npz(tmp_path / "w.npz", KIND, SCHEMA, meta, arrays)
    with pytest.raises(InputError, match=message):
        Window.load(tmp_path / "w.npz")


@given(windows(layers=2), st.data())
def test_a_single_changed_count_is_noticed(window, data):
    counts = window.counts.astype(np.int64)
    index = tuple(data.draw(st.integers(0, n - 1)) for n in counts.shape)
    counts[index] += data.draw(st.sampled_from([-1, 1, 1000]))
    with pytest.raises(InputError, match="counts: expected"):
        Window.from_counts(window.lengths, counts)
