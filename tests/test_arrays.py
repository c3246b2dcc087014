"""The casting border: whole numbers in, read-only arrays out, nothing changed silently."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routepack_opt.arrays import digest, frozen, nested, whole_number, whole_numbers
from routepack_opt.errors import InputError

DTYPES = ["u1", "i1", "u2", "i2", "u4", "i4", "i8", "u8", ">i4", ">i8", "f4", "f8"]


@given(st.lists(st.integers(0, 100), max_size=6), st.sampled_from(DTYPES))
def test_every_numeric_type_gives_the_same_array(values, dtype):
    result = whole_numbers(np.array(values, dtype), "x", shape=(None,))
    assert result.tolist() == values
    assert result.dtype == np.int64
    assert result.flags.c_contiguous
    assert not result.flags.writeable


def test_what_the_caller_holds_is_not_shared():
    mine = np.arange(4)
    for view in (mine, mine[:], mine[::2], mine.reshape(2, 2)):
        kept = whole_numbers(view, "x", shape=(None,) * view.ndim)
        assert not np.shares_memory(kept, mine)
    mine[:] = 9
    assert mine.flags.writeable


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.5, 2.0], r"x: expected whole numbers, found 1\.5 at index 0\. Round them yourself"),
        ([1.0, np.nan], r"finite whole numbers, found nan at index 1"),
        ([1.0, np.inf], r"finite whole numbers, found inf at index 1"),
        ([3, -1], r"from 0 to 50, found -1 at index 1"),
        ([3, 51], r"from 0 to 50, found 51 at index 1"),
        ([3.0, 51.0], r"found 51\.0 at index 1"),
        ([[1, 2]], r"shape \(any,\), found shape \(1, 2\)"),
        (7, r"found shape \(\)"),
        ([True, False], r"whole numbers, found values of type bool"),
        (["1"], r"found values of type <U1"),
        ([1, None], r"found values of type object"),
        ([2**70], r"found values of type object"),
        ([1 + 0j], r"found values of type complex128"),
        ([[1], [1, 2]], r"1-dimensional array of whole numbers"),
    ],
)
def test_what_is_not_whole_is_named(value, message):
    with pytest.raises(InputError, match=message):
        whole_numbers(value, "x", shape=(None,), high=50)


def test_the_index_of_a_bad_entry_has_every_axis():
    value = np.zeros((2, 3, 4))
    value[1, 0, 2] = -2
    with pytest.raises(InputError, match=r"found -2\.0 at index \(1, 0, 2\)"):
        whole_numbers(value, "x", shape=(2, 3, None))


def test_the_type_limits_the_range():
    assert whole_numbers([2**31 - 1], "x", shape=(1,), dtype=np.int32).dtype == np.int32
    for value in ([2**31], np.array([2**31], np.uint32), np.array([2**63], np.uint64), [2.0**31]):
        with pytest.raises(InputError, match="2147483647, found"):
            whole_numbers(value, "x", shape=(1,), dtype=np.int32)


def test_empty_arrays_keep_their_shape():
    assert whole_numbers(np.zeros((0, 3)), "x", shape=(None, 3)).shape == (0, 3)
    assert whole_numbers([], "x", shape=(None,)).dtype == np.int64


@pytest.mark.parametrize("value", [True, 1.0, "1", None, 0, 11, np.float64(3), np.bool_(True), [3]])
def test_a_whole_number_is_an_int_in_range(value):
    with pytest.raises(InputError, match="x: expected a whole number from 1 to 10, found "):
        whole_number(value, "x", low=1, high=10)


def test_numpy_integers_become_plain_ints():
    assert type(whole_number(np.int16(7), "x")) is int
    with pytest.raises(InputError, match="of at least 2, found 1"):
        whole_number(1, "x", low=2)


def test_nested_takes_any_sequences_and_names_the_entry_that_is_none():
    assert nested((range(2), {3}, np.array([4])), "x", "lists") == [[0, 1], [3], [4]]
    for value, found in [
        (3, "3"),
        ("ab", "'ab'"),
        ([[1], 2], "2 at index 1"),
        ([[1], "a"], "'a' at index 1"),
    ]:
        with pytest.raises(InputError, match=f"x: expected lists, found {found}"):
            nested(value, "x", "lists")


def test_a_digest_knows_type_shape_and_order_but_not_the_host():
    a = np.array([1, 2, 3, 4])
    seen = [
        digest([a]), digest([a.astype(np.int32)]), digest([a.reshape(2, 2)]), digest([a[::-1]]), digest([]),
        digest(["1"]), digest(["1", a]), digest([a, "1"]), digest(["ab", "c"]),
        digest(["a", "bc"]), digest(["abc"]),
    ]  # fmt: skip
    assert len(set(seen)) == len(seen)
    assert digest([a.astype(">i8")]) == digest([a]) == digest([np.repeat(a, 2)[::2]])
    assert digest(["é"]) == digest(["é"])
    assert len(digest([np.zeros((0, 3))])) == 64


def test_frozen_arrays_refuse_writes():
    with pytest.raises(ValueError, match="read-only"):
        frozen(np.zeros(1))[0] = 1
