"""Other systems' packers: each covers every sample once, and what it breaks is seen, never mended."""

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import routepack_opt as rp

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import peers_table  # noqa: E402
from benchmarks.peers import (  # noqa: E402
    areal_kk,
    areal_package,
    eplb,
    installed,
    kk,
    prime_rl,
    seq_len_balance,
    slime,
    snake,
    swaps,
    verl,
)

PACKERS = peers_table.packers()
LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=24)


@pytest.fixture(autouse=True)
def _own(monkeypatch):
    """Run our own implementations, whatever is installed here."""
    monkeypatch.setattr(verl, "_package", lambda: None)
    monkeypatch.setattr(areal_package, "load", lambda: None)
    monkeypatch.setitem(sys.modules, "lightbinpack", None)


def problem_of(lengths, capacity, dp):
    return rp.Problem(rp.Window.from_lengths(lengths), rp.Topology(dp), capacity)


@pytest.mark.parametrize(("name", "origin", "pack"), PACKERS, ids=[p[0] for p in PACKERS])
@given(lengths=LENGTHS, dp=st.integers(1, 4))
def test_every_sample_once_or_flagged(name, origin, pack, lengths, dp):
    capacity = 30
    cells = pack(np.array(lengths), capacity, dp)
    layout, broken = peers_table.judge(problem_of(lengths, capacity, dp), cells)
    if cells is None:
        assert broken == "no layout"
        return
    flat = sorted(i for row in cells for cell in row for i in cell)
    assert flat == list(range(len(lengths)))
    full = all(len(row) == dp and all(row) for row in cells)
    over = any(sum(lengths[i] for i in cell) > capacity for row in cells for cell in row)
    assert (broken is None) == (full and not over)
    assert (layout is not None) == full
    if over:
        assert name == "verl, before its cap was strict"
    if not full:
        assert name == "lightbinpack, grouped BFD"


@pytest.mark.parametrize(("name", "origin", "pack"), PACKERS, ids=[p[0] for p in PACKERS])
def test_installed_packages_keep_the_contract_too(name, origin, pack, monkeypatch):
    monkeypatch.undo()
    if not origin.startswith("real package"):
        pytest.skip("not installed, or ours anyway")
    lengths = np.random.default_rng(1).integers(1, 30, 48)
    cells = pack(lengths, 60, 4)
    assert sorted(i for row in cells for cell in row for i in cell) == list(range(48))
    layout, broken = peers_table.judge(problem_of(lengths, 60, 4), cells)
    assert layout is not None or broken == "cells missing"


def test_a_broken_cap_is_said_and_not_mended():
    lengths = np.full(8, 7)
    cells = verl.pack(lengths, 8, 1)
    assert len(cells) == 7
    layout, broken = peers_table.judge(problem_of(lengths, 8, 1), cells)
    assert layout.rows == 7
    assert "found 14" in broken
    strict = verl.pack_strict(lengths, 8, 1)
    assert len(strict) == 8


def test_flags_of_layouts_that_no_trainer_could_run():
    problem = problem_of([1, 2, 3, 4], 10, 2)
    for cells, word in [
        (None, "no layout"),
        ([[[0], [1]], [[2, 3]]], "missing"),
        ([[[0], []], [[1], [2, 3]]], "missing"),
        ([[[0], [1]], [[1], [2, 3]]], "every sample once"),
    ]:
        layout, broken = peers_table.judge(problem, cells)
        assert layout is None
        assert word in broken


def test_best_fit_takes_the_fullest_bin():
    assert seq_len_balance.best_fit([6, 5, 4, 5], 10, [0, 1, 2, 3]) == [[0, 2], [1, 3]]


def test_prime_rl_swaps_until_no_swap_helps():
    cost = [9, 7, 5, 4, 2, 1]
    slots = prime_rl._swapped([[0, 1, 2], [3, 4, 5]], cost)
    assert sorted(b for slot in slots for b in slot) == list(range(6))
    assert [len(slot) for slot in slots] == [3, 3]
    sums = [sum(cost[b] for b in slot) for slot in slots]
    assert max(sums) == 14  # the best that three and three can do


@given(st.lists(st.integers(1, 50), min_size=4, max_size=16).filter(lambda v: len(v) % 4 == 0))
def test_equal_differencing_gives_equal_counts(work):
    parts = verl._equal_differencing(work, range(len(work)), 4)
    assert [len(part) for part in parts] == [len(work) // 4] * 4
    assert sorted(i for part in parts for i in part) == list(range(len(work)))


def test_differencing_by_hand():
    parts = kk.differencing([8, 7, 6, 5, 4], range(5), 2)
    assert sorted(sum([8, 7, 6, 5, 4][i] for i in part) for part in parts) == [14, 16]


def test_karmarkar_karp_falls_back_to_first_fit_over_the_cap():
    lengths = [7] * 8
    assert len(areal_kk.pack(lengths, 8, 1)) == 8  # seven parts would do by tokens


def test_slime_splits_its_heaviest_bin_until_the_slots_divide_the_bins():
    cells = slime.pack([1, 5, 6, 5], 10, 2)  # first fit makes three bins, 6, 6 and 5
    assert sorted(tuple(cell) for row in cells for cell in row) == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("place", [eplb.place, snake.place, swaps.place])
def test_placers_give_bijections_that_beat_the_identity(place):
    loads = np.random.default_rng(0).integers(1, 1000, (3, 16))
    placement = rp.Placement.from_expert_of_slot(place(loads, 4), 4)
    identity = rp.Placement.identity(3, 16, 4)
    peaks = [p.demand(loads[None]).max(axis=2).sum() for p in (placement, identity)]
    assert peaks[0] < peaks[1]


def test_functions_of_an_installed_package_run_without_importing_it():
    found = installed.functions("numpy", "numpy/lib/_function_base_impl.py", ("_diff_dispatcher",))
    assert found is not None
    assert found[0]["_diff_dispatcher"].__name__ == "_diff_dispatcher"
    assert installed.functions("numpy", "numpy/nothing.py", ("x",)) is None
    assert installed.functions("no-such-package-here", "a.py", ("x",)) is None
