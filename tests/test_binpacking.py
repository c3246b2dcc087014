"""The bin-packing reader and generators."""

import os
from pathlib import Path

import pytest

from routepack_opt.errors import FormatError
from routepack_opt.suite.binpacking import literature, read_bin_packing


@pytest.mark.parametrize(
    "text",
    ["3\n10\n5\n4\n3\n", "3 10\n5\n4\n3\n", "3\n10\n5 1\n4 1\n3 1\n", "a title\n 3\n10\n\n5.0\n4\n3\n"],
)
def test_reads_every_form(tmp_path, text):
    (tmp_path / "x.bpp").write_text(text)
    found = read_bin_packing(tmp_path / "x.bpp")
    assert (found.name, found.capacity, found.sizes.tolist()) == ("x", 10, [5, 4, 3])


def test_reads_demands(tmp_path):
    (tmp_path / "x.txt").write_text("2\n10\n5 3\n4 2\n")
    assert read_bin_packing(tmp_path / "x.txt").sizes.tolist() == [5, 5, 5, 4, 4]


@pytest.mark.parametrize("text", ["", "3\n10\n5\n4\n", "1\n10\n11\n", "1\n10\nfive\n", "1\n10\n1.5\n"])
def test_names_what_is_wrong(tmp_path, text):
    (tmp_path / "x.txt").write_text(text)
    with pytest.raises(FormatError):
        read_bin_packing(tmp_path / "x.txt")


def test_generators():
    for name, instances in literature(1).items():
        for instance in instances:
            assert 1 <= instance.sizes.min() <= instance.sizes.max() <= instance.capacity, name
            if instance.optimum is not None:
                assert instance.sizes.sum() == instance.optimum * instance.capacity
    assert str(literature(2)) == str(literature(2))


@pytest.mark.skipif("ROUTEPACK_BPPLIB" not in os.environ, reason="a folder of BPPLIB files is not given")
def test_library_files():
    paths = sorted(Path(os.environ["ROUTEPACK_BPPLIB"]).rglob("*.txt"))
    assert paths
    for path in paths:
        assert read_bin_packing(path).sizes.size
