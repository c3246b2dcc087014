"""Changed files and shapes of every form: a clear error, or exactly the counts that the file states."""

import dataclasses
import json
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import oracles_replay_forms
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay import read

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
import make_replay_forms as forms

pytestmark = pytest.mark.filterwarnings("ignore:invalid escape sequence")  # changed headers parsed by numpy
MODEL = MoEModel(8, 32, 4)
ARCHIVES = (".npz", ".pt")


def short_samples():
    """Three real samples cut to a few tokens, so that every byte has its chance."""
    cut = []
    for sample, length in zip(forms.load(3), (9, 14, 6), strict=True):
        cut.append(dataclasses.replace(sample, length=length, prompt_length=4, ids=sample.ids[: length - 1]))
    return cut


def mutate(data, rng):
    """Change, insert, remove or repeat a few bytes."""
    data = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        data = data or bytearray(b"x")
        place = int(rng.integers(0, len(data)))
        kind = int(rng.integers(0, 7))
        if kind < 3:
            data[place] = int(rng.integers(0, 256)) if kind else data[place] ^ (1 << int(rng.integers(0, 8)))
        elif kind == 3:
            data[place] = rng.choice(np.frombuffer(b'0123456789-,:[]{}".AZaz=', np.uint8))
        elif kind == 4:
            data[place:place] = rng.integers(32, 127, int(rng.integers(1, 4))).astype(np.uint8).tobytes()
        elif kind == 5:
            del data[place : place + int(rng.integers(1, 5))]
        else:
            data[place:place] = data[place : place + int(rng.integers(1, 40))]
    return bytes(data)


def mutate_member(path, source, rng):
    """Rewrite an archive with one member changed and its checksum right."""
    with zipfile.ZipFile(source) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    name = sorted(members)[int(rng.integers(0, len(members)))]
    members[name] = mutate(members[name], rng)
    with zipfile.ZipFile(path, "w") as archive:
        for member, data in members.items():
            archive.writestr(member, data)


def check(name, path, made):
    """Read a changed file: an :class:`InputError`, or what a second reader finds in it."""
    try:
        result = read(path, MODEL, form=made.form, threads=1, **made.options)
    except InputError:
        return False
    rows = (result.report.kept == result.report.expected) & (result.lengths - result.report.expected <= 1)
    assert rows.all()
    assert (result.counts.sum(axis=2) == 4 * result.report.kept[:, None]).all()
    if path.suffix == ".pt":
        return True
    samples = oracles_replay_forms.decode(name, path, made.options.get("lengths"))
    assert result.lengths.tolist() == [length for length, _ in samples]
    for counts, kept, (_, ids) in zip(result.counts, result.report.kept, samples, strict=True):
        for layer in range(8):
            assert (counts[layer] == np.bincount(ids[:kept, layer].ravel(), minlength=32)).all()
    return True


def campaign(name, folder, cases, seed):
    """Read `cases` changed files of one form; return how many were accepted."""
    made = forms.make(name, folder, short_samples())
    original = made.path.read_bytes()
    target = folder / f"changed{made.path.suffix}"
    rng = np.random.default_rng(np.random.SeedSequence([seed, sorted(forms.MAKERS).index(name)]))
    accepted = 0
    for case in range(cases):
        if made.path.suffix in ARCHIVES and case % 2:
            mutate_member(target, made.path, rng)
        else:
            target.write_bytes(mutate(original, rng))
        accepted += check(name, target, made)
    return accepted


@pytest.mark.parametrize("name", forms.MAKERS)
def test_changed_bytes_never_give_wrong_counts(name, tmp_path):
    campaign(name, tmp_path, 120, seed=0)


@pytest.mark.long
@pytest.mark.parametrize("name", forms.MAKERS)
def test_changed_bytes_never_give_wrong_counts_long(name, tmp_path):
    """18 forms times 6,000: above 10^5 changed files."""
    campaign(name, tmp_path, 6000, seed=1)


def test_the_second_reader_agrees_on_unchanged_files(tmp_path):
    for name in forms.MAKERS:
        made = forms.make(name, tmp_path, short_samples())
        assert check(name, made.path, made)


JSON_FORMS = [*oracles_replay_forms.RECORDS, "skyrl", "vllm-pair", "vllm-npy"]
VALUES = st.sampled_from([None, -1, 0, 1, 2, 5, 13, 1.5, "", "a", "int64", "AAAA", [], [1], {}, True, 2**70])


def places(value, path=()):
    """Return the paths of every value in a JSON document, without the insides of long lists."""
    found = [path]
    if isinstance(value, dict):
        return found + [p for key, item in value.items() for p in places(item, (*path, key))]
    if isinstance(value, list):
        return found + [p for i, item in enumerate(value[:3]) for p in places(item, (*path, i))]
    return found


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(JSON_FORMS), st.data())
def test_changed_fields_never_give_wrong_counts(name, data):
    with tempfile.TemporaryDirectory() as folder:
        made = forms.make(name, Path(folder), short_samples())
        text = made.path.read_text()
        lines = made.path.suffix == ".jsonl"
        document = [json.loads(line) for line in text.splitlines()] if lines else json.loads(text)
        path = data.draw(st.sampled_from([p for p in places(document) if p]))
        parent = document
        for key in path[:-1]:
            parent = parent[key]
        if data.draw(st.booleans()):
            parent[path[-1]] = data.draw(VALUES)
        else:
            del parent[path[-1]]
        written = "\n".join(map(json.dumps, document)) if lines else json.dumps(document)
        made.path.write_text(written)
        check(name, made.path, made)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_changed_shapes_are_refused(data):
    samples = short_samples()
    ids = np.concatenate([s.ids for s in samples])
    change = data.draw(
        st.sampled_from(["transpose", "drop", "repeat", "flatten", "cast", "offsets", "lengths"])
    )
    fields = {
        "routed_experts": ids,
        "lengths": np.array([s.length for s in samples]),
        "offsets": np.cumsum([0] + [len(s.ids) for s in samples]),
    }
    if change == "transpose":
        order = data.draw(st.permutations(range(3)).filter(lambda order: order != [0, 1, 2]))
        fields["routed_experts"] = ids.transpose(order)
    elif change in ("drop", "repeat"):
        axis = data.draw(st.integers(0, 2))
        size = ids.shape[axis]
        index = np.delete(np.arange(size), data.draw(st.integers(0, size - 1)))
        index = index if change == "drop" else np.sort(np.append(np.arange(size), index[0]))
        fields["routed_experts"] = np.take(ids, index, axis=axis)
    elif change == "flatten":
        fields["routed_experts"] = ids.ravel()
    elif change == "cast":
        fields["routed_experts"] = ids.astype(
            data.draw(st.sampled_from([float, bool, complex, "S1", object]))
        )
    else:
        name = change
        i = data.draw(st.integers(0, len(fields[name]) - 1))
        step = data.draw(st.sampled_from([-20, -2, 2, 20, 2**40]))
        fields[name] = fields[name] + step * (np.arange(len(fields[name])) == i)
    with pytest.raises(InputError):
        read(fields, MODEL)
