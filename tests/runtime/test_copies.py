"""Commit copies: every byte and no other, whatever the alignment, and autograd hears of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from routepack_opt.runtime import live  # noqa: E402
from routepack_opt.runtime._kernels import _copy_plain, copy_bytes  # noqa: E402


@given(st.integers(0, 40_000), st.integers(0, 70), st.integers(0, 70), st.integers(0, 99))
def test_a_streaming_copy_writes_these_bytes_and_no_other(size, into, out, seed):
    noise = np.random.default_rng(np.random.SeedSequence(seed))
    source, target = noise.integers(0, 256, (2, size + 80), dtype=np.uint8)
    expected = target.copy()
    _copy_plain(expected[into : into + size], source[out : out + size])
    copy_bytes(target[into : into + size], source[out : out + size])
    assert np.array_equal(target, expected)


def test_different_lengths_are_refused():
    with pytest.raises(ValueError, match=r"\(3,\) bytes, found \(4,\)"):
        copy_bytes(np.zeros(3, np.uint8), np.zeros(4, np.uint8))


@pytest.fixture
def streaming(monkeypatch):
    """Copies of any size go past the caches."""
    monkeypatch.setattr(live, "_STREAMED", 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)


@pytest.mark.usefixtures("streaming")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn, torch.bool])
@pytest.mark.parametrize("strided", [False, True])
def test_a_commit_copies_any_dtype_and_any_strides(dtype, strided):
    staged = (torch.arange(3000).view(50, 60) % 7).to(dtype)
    target = torch.zeros((60, 50), dtype=dtype).t() if strided else torch.zeros((50, 60), dtype=dtype)
    address = target.data_ptr()
    live.commit([(target, staged)])
    assert torch.equal(target.float(), staged.float())
    assert target.data_ptr() == address


@pytest.mark.usefixtures("streaming")
def test_a_graph_that_needs_the_overwritten_values_refuses_to_go_back():
    weight = torch.nn.Parameter(torch.ones(5000))
    loss = (weight * weight).sum()
    live.commit([(weight[:4000], torch.zeros(4000))])
    assert weight.sum() == 1000
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
