"""The container: byte-stable, atomic, closed to pickles, and clear about what it cannot read."""

import os
import stat
import zipfile

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from routepack_opt import files
from routepack_opt.errors import FormatError
from routepack_opt.files import field, load_npz, save_npz

ARRAYS = {"a": np.arange(12, dtype=np.int32).reshape(3, 4), "empty": np.zeros((0, 2), np.int64)}
META = {"name": "é", "values": [1, 2.5, None]}


@pytest.fixture
def path(tmp_path):
    save_npz(tmp_path / "file.npz", "thing", 2, META, ARRAYS)
    return tmp_path / "file.npz"


@pytest.fixture
def whole(path):
    return path.read_bytes()


def test_what_is_written_is_read(path):
    meta, arrays = load_npz(path, "thing", 2)
    assert meta == {"kind": "thing", "schema": 2, **META}
    assert set(arrays) == set(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_equal_contents_give_equal_bytes(path, tmp_path):
    turned = dict(reversed(META.items()))
    save_npz(tmp_path / "other.bin", "thing", 2, turned, ARRAYS)
    assert (tmp_path / "other.bin").read_bytes() == path.read_bytes()


def test_a_file_appears_whole_or_not_at_all(path, monkeypatch):
    before = path.read_bytes()

    def fail(file, **members):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(files.np, "savez_compressed", fail)
    with pytest.raises(OSError, match="disk full"):
        save_npz(path, "thing", 2, {}, {})
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_file_has_the_usual_permissions(path):
    probe = path.with_name("probe")
    probe.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(probe.stat().st_mode)


def test_other_kinds_and_newer_schemas_are_refused(path):
    with pytest.raises(FormatError, match=r"file\.npz: expected a RoutePack window file, found a thing file"):
        load_npz(path, "window", 2)
    with pytest.raises(FormatError, match=r"thing schema up to 1, found schema 2\. Upgrade"):
        load_npz(path, "thing", 1)
    assert load_npz(path, "thing", 3)[0]["schema"] == 2


@pytest.mark.parametrize("header", [b"[]", b"5", b"null", b"{}", b'{"schema": 1}', b"{", b"\xff", None])
def test_a_file_without_a_proper_header_is_refused(tmp_path, header):
    members = {"a": np.arange(3)}
    if header is not None:
        members["header"] = np.frombuffer(header, np.uint8)
    np.savez(tmp_path / "x.npz", **members)
    with pytest.raises(FormatError, match=r"x\.npz: expected a RoutePack thing file, found a file"):
        load_npz(tmp_path / "x.npz", "thing", 1)


@pytest.mark.parametrize("schema", ['"1"', "null", "1.0"])
def test_a_schema_is_a_whole_number(tmp_path, schema):
    header = f'{{"kind": "thing", "schema": {schema}}}'.encode()
    np.savez(tmp_path / "x.npz", header=np.frombuffer(header, np.uint8))
    with pytest.raises(FormatError, match="thing schema up to 1, found schema"):
        load_npz(tmp_path / "x.npz", "thing", 1)


def test_missing_files_folders_text_and_single_arrays_are_refused(tmp_path):
    np.save(tmp_path / "one.npy", np.arange(3))
    (tmp_path / "text").write_text("lengths: 1 2 3")
    (tmp_path / "nothing").touch()
    for name in ("absent", ".", "one.npy", "text", "nothing"):
        with pytest.raises(FormatError, match="expected a RoutePack thing file, found"):
            load_npz(tmp_path / name, "thing", 1)


def test_pickles_are_refused_unread(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    header = np.frombuffer(b'{"kind": "thing", "schema": 1}', np.uint8)
    np.savez(tmp_path / "x.npz", header=header, a=np.array([Bomb()], dtype=object))
    with pytest.raises(FormatError, match=r"cannot be read.*pickle"):
        load_npz(tmp_path / "x.npz", "thing", 1)
    assert not (tmp_path / "ran").exists()


def test_every_truncation_is_refused(path, whole):
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(FormatError):
            load_npz(path, "thing", 2)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_damaged_bytes_give_an_error_or_the_same_contents(path, whole, data):
    buffer = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(buffer)
    try:
        _, arrays = load_npz(path, "thing", 2)
    except FormatError:
        return
    assert set(arrays) == set(ARRAYS)
    for name in ARRAYS:
        np.testing.assert_array_equal(arrays[name], ARRAYS[name])


def test_a_missing_field_names_what_is_there(path):
    _, arrays = load_npz(path, "thing", 2)
    assert field(arrays, "a", path) is arrays["a"]
    with pytest.raises(FormatError, match=r"file\.npz: expected a field 'b', found fields \['a', 'empty'\]"):
        field(arrays, "b", path)


def test_a_lost_or_added_member_is_noticed(path):
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for change in ({"empty.npy": None}, {"more.npy": members["a.npy"]}):
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in {**members, **change}.items():
                if content is not None:
                    archive.writestr(name, content)
        with pytest.raises(FormatError, match=r"expected fields \['a', 'empty'\], found fields \['a'"):
            load_npz(path, "thing", 2)


def test_members_that_are_no_arrays_do_not_pass_as_fields(tmp_path):
    path = tmp_path / "x.npz"
    save_npz(path, "thing", 1, {}, {})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.npy", b"not an array")
    with pytest.raises(FormatError, match="arrays only, found a member 'a' that is none"):
        load_npz(path, "thing", 1)
