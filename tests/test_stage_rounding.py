"""AttentionStage keeps six decimals, rounded half-even once, and those are the coefficients everywhere."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from routepack_opt.errors import InputError
from routepack_opt.stages import AttentionStage


@pytest.mark.parametrize(
    ("given_value", "kept"),
    [
        (0.1, "0.1"),
        (1 / 3, "0.333333"),
        ("0.0000005000001", "0.000001"),
        ("0.0000015", "0.000002"),  # ties go to the even digit
        ("0.0000025", "0.000002"),
        ("1.9999995", "2"),
        (2**40 + 0.5, "1099511627776.5"),
        (1e300, "1e300"),
        (-0.0, "0"),
    ],
)
def test_six_decimals_half_even(given_value, kept):
    stage = AttentionStage("a", given_value, given_value)
    assert stage.decimals == (Decimal(kept), Decimal(kept))
    assert stage.alpha == stage.beta == float(kept)


@pytest.mark.parametrize("tiny", [4.9e-7, "0.0000005", 5e-324])
@pytest.mark.parametrize("field", ["alpha", "beta"])
def test_a_coefficient_that_would_vanish_is_refused(field, tiny):
    with pytest.raises(InputError, match=rf"{field} of stage 'kda'.*0\.000001.*{tiny}.*Give 0"):
        AttentionStage("kda", **{field: tiny})


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_what_is_kept_is_the_nearest_millionth_and_stays(value):
    kept = AttentionStage("a", value).decimals[0]
    assert kept * 10**6 % 1 == 0
    assert abs(kept - Decimal(repr(value))) <= Decimal("0.0000005")
    assert AttentionStage("a", float(kept)).decimals[0] == kept


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_the_text_form_gives_the_stage_back(alpha, beta):
    stage = AttentionStage("mla", alpha / 10**6, beta / 10**6)
    assert AttentionStage.parse(str(stage)) == stage


def test_computed_costs_are_rounded_too():
    stage = AttentionStage.from_costs("mla", 1.0, 1.0, 2, 3.0)
    assert (stage.alpha, stage.beta) == (0.333333, 0.666667)
