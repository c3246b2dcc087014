"""Replay files: damaged, foreign or hostile ones are refused; large ones are streamed."""

import os
import pickle
import sys
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from routepack_opt.errors import FormatError, InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay import read

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
import make_replay_forms as forms

MODEL = MoEModel(8, 32, 4)


@pytest.mark.parametrize(
    "name", ["packed", "slime", "verl-padded", "skyrl", "sglang", "padded-right", "megatron"]
)
@pytest.mark.parametrize("part", [0.0, 0.3, 0.9, 0.999])
def test_truncated_files_are_refused(name, part, tmp_path):
    made = forms.make(name, tmp_path, forms.load(4))
    data = made.path.read_bytes()
    made.path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(InputError) as caught:
        read(made.path, MODEL, **made.options)
    assert isinstance(caught.value, FormatError) or part == 0.0


def test_a_damaged_member_is_found_by_its_checksum(tmp_path):
    made = forms.make("packed", tmp_path, forms.load(4))
    data = bytearray(made.path.read_bytes())
    with zipfile.ZipFile(made.path) as archive:
        member = archive.getinfo("routed_experts.npy")
    data[member.header_offset + 400] ^= 1
    made.path.write_bytes(data)
    with pytest.raises(FormatError, match="CRC"):
        read(made.path, MODEL)


def test_arrays_of_objects_are_refused(tmp_path):
    path = tmp_path / "objects.npz"
    np.savez(path, lengths=[2], offsets=[0, 1], routed_experts=np.array([[{}]], object))
    with pytest.raises(FormatError, match="objects"):
        read(path, MODEL)
    single = tmp_path / "objects.npy"
    np.save(single, np.array([{}], object))
    with pytest.raises(FormatError, match=r"allow_pickle|objects|pickle"):
        read(single, MODEL, lengths=[2])


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("replay.txt", b"x", "ending in .npz"),
        ("replay.npz", b"not a zip", "an .npz file"),
        ("replay.json", b"[1, 2", "JSON"),
        ("replay.jsonl", b'{"length": 3, "routed_experts": null}\n{"length"\n', "line 2"),
        ("replay.json", b"\xff\xfe", "UnicodeDecodeError"),
        ("replay.json", b"[" * 100_000, "nested too deep"),
        ("replay.pt", b"\x80\x02}q\x00.", "torch.save archive"),
    ],
)
def test_files_of_another_kind_are_refused(name, content, words, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=words):
        read(path, MODEL, policy="count")


@pytest.mark.parametrize("line", ["null", "[1, 2]", "3"])
def test_a_line_that_is_no_record_is_not_skipped(line, tmp_path):
    made = forms.make("record", tmp_path, forms.load(2))
    made.path.write_text(made.path.read_text() + line + "\n")
    with pytest.raises(FormatError, match="line 3: expected a JSON object"):
        read(made.path, MODEL)


def test_a_missing_file_is_named(tmp_path):
    for name in ("none.npz", "none.json"):
        with pytest.raises(FormatError, match=name):
            read(tmp_path / name, MODEL)


class Hostile:
    """Runs a command when it is unpickled by a careless reader."""

    def __reduce__(self):
        return os.mkdir, ("hostile-was-here",)


def archive_of(path, data, storages=()):
    """Write a torch-like archive around a pickle."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", data)
        for key, content in enumerate(storages):
            archive.writestr(f"a/data/{key}", content)
    return path


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_foreign_names_in_a_dump_are_refused_and_never_called(protocol, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = archive_of(tmp_path / "dump.pt", pickle.dumps({"samples": [Hostile()]}, protocol))
    with pytest.raises(FormatError, match=r"found (posix|nt|os)\.mkdir"):
        read(path, MODEL)
    assert not Path("hostile-was-here").exists()


@pytest.mark.parametrize(
    "name",
    [
        "builtins eval",
        "builtins getattr",
        "os system",
        "numpy load",
        "torch load",
        "torch._utils _rebuild_parameter",
    ],
)
def test_only_tensors_and_arrays_are_known_to_a_dump(name, tmp_path):
    module, function = name.split()
    path = archive_of(tmp_path / "dump.pt", f"c{module}\n{function}\n.".encode())
    with pytest.raises(FormatError, match=f"found {module}.{function}"):
        read(path, MODEL)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x02}r\xff\xff\xff\x7f.",  # a memo index that would reserve 16 GiB
        b"\x80\x05\x96" + (1 << 40).to_bytes(8, "little") + b".",  # a byte array that would reserve a TiB
        b"cnumpy\nndarray\n(N}X\x01\x00\x00\x00a}stb.",  # attributes set on a class
        b"ctorch._utils\n_rebuild_tensor_v2\n}b.",
    ],
)
def test_pickles_that_claim_memory_or_change_classes_do_no_harm(data, tmp_path):
    path = archive_of(tmp_path / "dump.pt", data)
    tracemalloc.start()
    with pytest.raises(InputError):
        read(path, MODEL)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def tensor(storage_size, offset, shape, strides, dtype="Int", held=32):
    """A dump with one tensor of any claim over `held` bytes."""
    head = f"ctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\n{dtype}Storage\n".encode(
        "latin1"
    )
    persistent = b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuJ" + storage_size.to_bytes(4, "little") + b"tQ"
    numbers = b"".join(b"J" + int(n).to_bytes(4, "little", signed=True) for n in (offset,))
    pair = [
        b"(" + b"".join(b"J" + int(n).to_bytes(4, "little", signed=True) for n in t) + b"t"
        for t in (shape, strides)
    ]
    return b"\x80\x02" + head + persistent + numbers + pair[0] + pair[1] + b"\x89NtR.", [bytes(held)]


@pytest.mark.parametrize(
    "claim",
    [
        (9, 0, (9,), (1,)),  # more than the storage has
        (8, 4, (5,), (1,)),  # beyond its end
        (8, -1, (4,), (1,)),  # before its start
        (8, 0, (4,), (-1,)),
        (8, 0, (1 << 30,), (0,)),  # a small file that stands for a huge array
        (8, 0, (4, 4), (1,)),
    ],
)
def test_tensors_that_do_not_fit_their_storage_are_refused(claim, tmp_path):
    data, storages = tensor(*claim)
    with pytest.raises(FormatError, match=r"tensor|storage"):
        read(archive_of(tmp_path / "dump.pt", data, storages), MODEL, lengths=[2])


def test_strided_tensors_are_read_as_torch_would(tmp_path):
    from routepack_opt.replay.torchfiles import TorchFile

    data, _ = tensor(8, 1, (2, 3), (1, 2))
    content = np.arange(8, dtype="<i4").tobytes()
    array = np.asarray(TorchFile(archive_of(tmp_path / "dump.pt", data, [content])).value)
    assert array.tolist() == [[1, 3, 5], [2, 4, 6]]


def repeated(count, ids):
    """The same array again and again: a stream that costs no memory itself."""
    return (ids for _ in range(count))


def write_large(path, fields, count, ids, shape):
    """Write an ``.npz`` file whose ``routed_experts`` are `count` times `ids`, without holding them."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in fields.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
        with archive.open("routed_experts.npy", "w", force_zip64=True) as member:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(member, header)
            for part in repeated(count, ids):
                member.write(part.tobytes())


@pytest.mark.parametrize("layout", ["packed", "padded"])
@pytest.mark.parametrize(
    ("samples", "tokens", "layers", "limit"),
    [(24, 2048, 12, 12), pytest.param(512, 8192, 48, 256, marks=pytest.mark.long)],
)
def test_a_stream_needs_the_memory_of_a_few_samples(layout, samples, tokens, layers, limit, tmp_path):
    """The large case is 1.6 billion ids; `limit` is in MiB."""
    model = MoEModel(layers, 128, 8)
    order = np.argsort(np.random.default_rng(0).random((97, layers, 128)), axis=2)[:, :, :8]
    ids = np.resize(order.astype(np.uint8), (tokens - 1, layers, 8))
    path, lengths = tmp_path / "large.npz", np.full(samples, tokens)
    if layout == "packed":
        fields = {"lengths": lengths, "offsets": np.arange(samples + 1) * (tokens - 1)}
        write_large(path, fields, samples, ids, (samples * (tokens - 1), layers, 8))
    else:
        batch = np.concatenate([np.zeros_like(ids[:3]), ids, np.zeros_like(ids[:1])])
        mask = np.broadcast_to(np.arange(tokens + 3) >= 3, (samples, tokens + 3))
        write_large(path, {"attention_mask": mask}, samples, batch, (samples, tokens + 3, layers, 8))
    read(path, model, threads=2)
    tracemalloc.start()
    from_file = read(path, model, threads=2)
    from_stream = read(repeated(samples, ids), model, lengths=lengths, threads=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < limit << 20
    assert (from_file.counts == from_stream.counts).all()
    assert from_file.report.total["kept"] == samples * (tokens - 1)
    path.unlink()
