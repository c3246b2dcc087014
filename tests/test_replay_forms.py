"""Every form gives the same counts of the same real samples, recognised or named, from file or memory."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay import FORMS, read

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
import make_replay_forms as forms

DENSE = (0, 5)
MODELS = {(): MoEModel(8, 32, 4), DENSE: MoEModel(10, 32, 4, DENSE)}


def truth(samples, model):
    """Counts by plain bincount over the MoE columns."""
    width = samples[0].ids.shape[1]
    layers = model.moe_layers if width == model.layers else range(width)
    tallies = [[np.bincount(s.ids[:, k].ravel(), minlength=32) for k in layers] for s in samples]
    return np.array(tallies)


@pytest.mark.parametrize("dense", [(), DENSE], ids=["all-moe", "two-dense"])
@pytest.mark.parametrize("name", forms.MAKERS)
def test_a_file_of_every_form_is_recognised_and_counted(name, dense, tmp_path):
    samples, model = forms.load(8, dense), MODELS[dense]
    made = forms.make(name, tmp_path, samples)
    for form in (None, made.form):
        result = read(str(made.path), model, form=form, **made.options)
        assert result.report.form == made.form
        assert (result.counts == truth(samples, model)).all()
        assert result.lengths.tolist() == [s.length for s in samples]
        if result.prompt_ids is not None:
            assert result.prompt_ids.tolist() == [s.group for s in samples]


@pytest.mark.parametrize("name", forms.MAKERS)
def test_moe_layers_alone_are_read_with_a_model_that_has_dense_ones(name, tmp_path):
    samples, model = forms.load(8), MODELS[DENSE]
    made = forms.make(name, tmp_path, samples)
    result = read(made.path, model, layer_axis="moe", **made.options)
    assert (result.counts == truth(samples, model)).all()


def test_every_form_has_a_fixture(tmp_path):
    made = {forms.make(name, tmp_path, forms.load(4)).form for name in forms.MAKERS}
    assert made | {"arrays"} == set(FORMS)


@pytest.mark.parametrize("name", ["sglang", "vllm-pair", "skyrl", "slime", "verl-padded", "megatron"])
def test_the_layer_axis_must_fit_the_model(name, tmp_path):
    made = forms.make(name, tmp_path, forms.load(4))
    with pytest.raises(InputError, match=r"9 layers|\(for 9 layers\)|found 8 layers|of 36 ids"):
        read(made.path, MoEModel(9, 32, 4), **made.options)


def test_the_whole_real_replay_in_memory():
    with np.load(forms.REPLAY) as file:
        fields = {name: file[name] for name in file.files}
    from_file, from_memory = read(forms.REPLAY, MODELS[()]), read(fields, MODELS[()])
    assert (from_file.counts == from_memory.counts).all()
    assert from_file.report.total["kept"] == int(fields["lengths"].sum()) - 512
    assert from_file.prompt_ids.tolist() == fields["groups"].tolist()


def test_a_dump_written_by_torch_itself_is_read_without_torch():
    result = read(Path(forms.REPLAY).with_name("torch-dump.pt"), MODELS[()])
    assert (result.counts == truth(forms.load(2), MODELS[()])).all()


class TensorLike:
    """What readers may expect of a tensor: an array on request."""

    def __init__(self, array):
        self._array, self.ndim, self.shape = array, array.ndim, array.shape

    def __array__(self, dtype=None, copy=None):
        return self._array

    def __len__(self):
        return len(self._array)


@pytest.mark.parametrize("wrap", [np.asarray, TensorLike])
def test_arrays_and_tensor_likes_in_memory(wrap):
    samples, model = forms.load(8), MODELS[()]
    ids, lengths = [s.ids for s in samples], [s.length for s in samples]
    expected = truth(samples, model)
    generator = (wrap(one.reshape(len(one), -1)) for one in ids)
    assert (read(generator, model, lengths=lengths).counts == expected).all()
    joined = wrap(np.concatenate(ids))
    assert (read(joined, model, lengths=lengths).counts == expected).all()
    batch = {name: wrap(value) for name, value in forms.padded_batch(samples).items()}
    assert (read(batch, model).counts == expected).all()
    assert (read({"samples": forms.slime_samples(samples)}, model).counts == expected).all()


def test_the_padding_side_and_lengths_stand_in_for_a_mask():
    samples, model = forms.load(4), MODELS[()]
    lengths = [s.length for s in samples]
    rows = [forms.padded_rows(s, s.length, "zero") for s in samples]
    size = max(lengths) + 2
    for side in ("left", "right"):
        batch = np.zeros((4, size, 8, 4), np.int16)
        for ids, own in zip(batch, rows, strict=True):
            ids[slice(size - len(own), size) if side == "left" else slice(len(own))] = own
        source = {"routed_experts": batch, "lengths": lengths}
        assert (read(source, model, side=side).counts == truth(samples, model)).all()
        other = "left" if side == "right" else "right"
        with pytest.raises(InputError, match="misaligned"):
            read(source, model, side=other)
    with pytest.raises(InputError, match="as lengths say"):
        read(source, model, side="right", lengths=[n - 1 for n in lengths])


class Nested:
    """What a jagged tensor shows of itself."""

    is_nested = True

    def __init__(self, rows):
        self._rows = rows

    def values(self):
        return np.concatenate(self._rows)

    def offsets(self):
        return np.cumsum([0] + [len(rows) for rows in self._rows])


def test_jagged_tensors_are_opened():
    samples = forms.load(4)
    batch = {"routed_experts": Nested([forms.padded_rows(s, s.length, "zero") for s in samples])}
    result = read(batch, MODELS[()])
    assert result.report.form == "jagged"
    assert (result.counts == truth(samples, MODELS[()])).all()


def test_objects_with_attributes_are_records():
    class Response:
        def __init__(self, sample):
            self.input_tokens = forms.tokens(sample.prompt_length)
            self.output_tokens = forms.tokens(sample.length - sample.prompt_length)
            self.routed_experts = sample.ids.reshape(len(sample.ids), -1).astype(np.int32)

    samples = forms.load(3)
    result = read([Response(s) for s in samples], MODELS[()])
    assert result.report.form == "areal"
    assert (result.counts == truth(samples, MODELS[()])).all()


def test_sequence_major_layers_of_a_microbatch():
    samples, model = forms.load(4), MODELS[()]
    size = max(s.length for s in samples)
    batch = np.stack([forms.padded_rows(s, size, "zero") for s in samples], axis=1)  # [s, b, layers, K]
    layers = [batch[:, :, k].reshape(size * 4, 4) for k in range(8)]
    lengths = [s.length for s in samples]
    result = read({"layers": layers, "batch": 4}, model, lengths=lengths)
    assert (result.counts == truth(samples, model)).all()
    alone = [forms.padded_rows(samples[0], lengths[0], "zero")[:, k] for k in range(8)]
    one = read(alone, model, form="megatron", lengths=lengths[:1])
    assert (one.counts == truth(samples[:1], model)).all()


def sglang(sample, start=0, **more):
    """One response whose rows begin at `start`."""
    meta = {"prompt_tokens": sample.prompt_length, "completion_tokens": sample.length - sample.prompt_length}
    meta |= {"routed_experts": forms.raw64(sample.ids[start:], "int32"), **more}
    return {"meta_info": meta}


def test_start_offsets_given_ignored_and_ambiguous():
    sample, model = forms.load(1)[0], MODELS[()]
    delta = read([sglang(sample, 10, routed_experts_start_len=10)], model, policy="count")
    assert delta.report.missing.tolist() == [10]
    assert (delta.counts[0].sum(axis=1) == 4 * (sample.length - 11)).all()
    ignored = read([sglang(sample, 0, routed_experts_start_len=10)], model)
    assert (ignored.counts == truth([sample], model)).all()
    beyond = read([sglang(sample, len(sample.ids), routed_experts_start_len=9999)], model, policy="count")
    assert beyond.report.kept.tolist() == [0]
    with pytest.raises(InputError, match=r"one reading.*from token 1 on as well as from the first"):
        read([sglang(sample, 0, routed_experts_start_len=1)], model)


def test_turns_without_starts_are_joined_only_when_one_reading_fits():
    sample, model = forms.load(1)[0], MODELS[()]
    ids, length = sample.ids, sample.length

    def turns(*parts, **more):
        return [{"length": length, "parts": [{"routed_experts": part} for part in parts], **more}]

    expected = truth([sample], model)
    assert (read(turns(ids[:20], ids[20:]), model).counts == expected).all()
    assert (read(turns(ids[:20], ids[:50], ids), model).counts == expected).all()
    with pytest.raises(InputError, match="one after the other and each from the start"):
        read(turns(ids[:1], ids), model)
    with pytest.raises(InputError, match="Give start offsets"):
        read(turns(ids[:20], ids[:50]), model)
    halves = [{"routed_experts": ids[:20], "start": 0}, {"routed_experts": ids[20:]}]
    with pytest.raises(InputError, match="every part or for none"):
        read([{"length": length, "parts": halves}], model)


def test_unset_rows_of_one_turn_are_taken_from_another():
    sample, model = forms.load(1)[0], MODELS[()]
    ids = sample.ids.astype(np.int8)
    cached = ids.copy()
    cached[:30] = -1
    parts = [{"routed_experts": part, "start": 0} for part in (ids[:40], cached)]
    expected = truth([sample], model)
    assert (read([{"length": sample.length, "parts": parts}], model).counts == expected).all()
    assert (read([{"length": sample.length, "parts": parts[::-1]}], model).counts == expected).all()
    gap = [{"routed_experts": ids[:10], "start": 0}, {"routed_experts": ids[15:], "start": 15}]
    assert read([{"length": sample.length, "parts": gap}], model, policy="count").report.missing[0] == 5


def test_a_message_with_more_rows_than_tokens_is_refused():
    sample, model = forms.load(1)[0], MODELS[()]
    split = sample.prompt_length
    log = [
        {"token_ids": forms.tokens(split - 1), "routed_experts": sample.ids[:split]},
        {"token_ids": forms.tokens(sample.length - split), "routed_experts": sample.ids[split:]},
    ]
    with pytest.raises(InputError, match=f"part 0: expected at most {split - 1} rows"):
        read([{"message_log": log}], model)


def test_a_lost_prompt_part_is_missing():
    sample, model = forms.load(1)[0], MODELS[()]
    split = sample.prompt_length
    choice = {"token_ids": forms.tokens(sample.length - split), "routed_experts": sample.ids[split:].tolist()}
    record = {"prompt_token_ids": forms.tokens(split), "prompt_routed_experts": None, "choices": [choice]}
    with pytest.raises(InputError, match=f"{split} missing"):
        read([record], model)
    assert read([record], model, policy="count").report.missing.tolist() == [split]
    preempted = {**record, "choices": [{**choice, "routed_experts": None}]}
    assert read([preempted], model, policy="count").report.kept.tolist() == [0]


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ([{"routed_experts": [[[1]]]}], "fit none.*Name the form"),
        ([{"routed_experts": [], "length": 4, "output_tokens": []}], "areal and record"),
        (
            {"routed_experts": np.zeros((1, 2, 8, 4), int), "offsets": [0], "cu_seqlens": [0]},
            "packed and jagged",
        ),
        ([{"meta_info": {"prompt_tokens": 3, "completion_tokens": 2}}], "a field meta_info.routed_experts"),
        ([{"choices": []}], "a list of outputs or choices"),
        ([{"parts": [], "length": 3}], "a list in parts"),
        ([{"message_log": [{"routed_experts": []}]}], "token_ids in every message"),
        ({"routed_experts": np.zeros((1, 5, 8, 4), int)}, "side="),
        ([{"routed_experts": None, "length": 4, "token_ids": [1, 2]}], "2 tokens, but length = 4"),
        ([{"routed_experts": None, "length": 4, "token_ids": "ab"}], "a list of tokens"),
        (3, "a path, mapping"),
        (["AAAA"], "fit none"),
    ],
)
def test_sources_without_one_clear_reading_are_refused(source, words):
    options = {"lengths": [3]} if isinstance(source, dict) and len(source) == 1 else {}
    with pytest.raises(InputError, match=words):
        read(source, MODELS[()], **options)


def test_a_named_form_is_not_read_as_another(tmp_path):
    made = forms.make("sglang", tmp_path, forms.load(2))
    for form in ("slime", "vllm", "turns", "messages", "packed", "jagged", "megatron"):
        with pytest.raises(InputError):
            read(made.path, MODELS[()], form=form)


def test_raw_bytes_need_a_form_that_says_their_dtype():
    sample = forms.load(1)[0]
    record = {"length": sample.length, "routed_experts": forms.raw64(sample.ids, "int32")}
    with pytest.raises(InputError, match='form="sglang"'):
        read([record], MODELS[()])


def test_descending_offsets_and_stray_characters_are_named():
    samples = forms.load(2)
    ids = np.concatenate([s.ids for s in samples])
    fields = {"routed_experts": ids, "offsets": [0, len(ids), 9, len(ids)], "lengths": [5, 5, 5]}
    with pytest.raises(InputError, match=f"ascending offsets, found {len(ids)} then 9 at index 1"):
        read(fields, MODELS[()], policy="count")
    response = sglang(samples[0])
    text = response["meta_info"]["routed_experts"]
    response["meta_info"]["routed_experts"] = text[:8] + "*" + text[8:]
    with pytest.raises(InputError, match="sample 0: expected base64"):
        read([response], MODELS[()])


def test_json_files_of_one_record_and_of_many(tmp_path):
    samples = forms.load(2)
    path = tmp_path / "responses.json"
    for content in ([sglang(s) for s in samples], {"responses": [sglang(s) for s in samples]}):
        path.write_text(json.dumps(content))
        assert (read(path, MODELS[()]).counts == truth(samples, MODELS[()])).all()
    path.write_text(json.dumps(sglang(samples[0])))
    assert read(path, MODELS[()]).lengths.size == 1
