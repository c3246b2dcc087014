"""Systematic resampling against its theory, with the library's exponential as the oracle."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routepack_opt.solvers.annealing.resampling import copies, exp_minus

energies = st.lists(st.floats(0, 1e6) | st.sampled_from([0.0, 1.0, 1.0 + 1e-9]), min_size=1, max_size=9)
temperatures = st.tuples(st.floats(1e-7, 1e-1), st.floats(0.05, 1.0)).map(lambda t: (t[0], t[0] * t[1]))


def expected_copies(values, temperature, colder):
    """P_pop w_j of Algorithm 3."""
    least = min(values)
    scale = max(abs(least), 1.0)
    weights = [math.exp(-(1 / colder - 1 / temperature) * ((e - least) / scale)) for e in values]
    return [len(values) * w / sum(weights) for w in weights]


@given(energies, temperatures, st.floats(0, 1, exclude_max=True))
def test_every_member_is_copied_floor_or_ceil_of_its_share(values, temperature, start):
    chosen = copies(values, *temperature, start)
    assert len(chosen) == len(values)
    assert chosen == sorted(chosen)
    for j, share in enumerate(expected_copies(values, *temperature)):
        assert math.floor(share - 1e-6) <= chosen.count(j) <= math.ceil(share + 1e-6)


@given(energies, temperatures)
def test_over_all_starts_the_mean_number_of_copies_is_the_share(values, temperature):
    steps = 100
    drawn = [j for k in range(steps) for j in copies(values, *temperature, (k + 0.5) / steps)]
    for j, share in enumerate(expected_copies(values, *temperature)):
        assert drawn.count(j) / steps == pytest.approx(share, abs=2 / steps + 1e-6)


def test_known_draws():
    # weights 1/2, 1/2, 1, so F = 1/4, 1/2, 1
    twice = (0.5, 1 / (2 + math.log(2)))
    assert copies([1.0, 1.0, 0.0], *twice, 0.25) == [0, 1, 2]  # at 1/12, 5/12, 9/12
    assert copies([1.0, 1.0, 0.0], *twice, 0.9) == [1, 2, 2]  # at 0.3, 0.63, 0.97
    assert copies([3.0], 1.0, 0.1, 0.9) == [0]
    assert copies([5.0, 5.0, 5.0, 5.0], 1.0, 0.1, 0.5) == [0, 1, 2, 3]
    assert copies([0.0, 1e6], 1e-4, 1e-6, 0.999) == [0, 0]


@given(st.floats(0, 700))
def test_the_exponential_is_right(x):
    assert exp_minus(x) == pytest.approx(math.exp(-x), rel=1e-11)


def test_the_exponential_at_its_ends():
    assert exp_minus(0.0) == 1.0
    assert exp_minus(701.0) == exp_minus(float("inf")) == 0.0
