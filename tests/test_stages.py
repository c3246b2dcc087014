"""Attention stages: validity, text form, costs, fits, presets."""

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from routepack_opt.errors import InputError
from routepack_opt.model import PRESETS, MoEModel
from routepack_opt.stages import AttentionStage, fit_stages, preset_stages

numbers = (
    st.just(0.0) | st.floats(1e-6, 1e12) | st.integers(0, 10**9) | st.decimals(0, 1000, places=4).map(str)
)


@given(st.from_regex(r"[A-Za-z_][\w.-]*", fullmatch=True), numbers, numbers)
def test_a_stage_and_its_text_determine_each_other(name, alpha, beta):
    stage = AttentionStage(name, alpha, beta)
    assert AttentionStage.parse(str(stage)) == stage
    assert stage.decimals == (Decimal(repr(stage.alpha)), Decimal(repr(stage.beta)))


def test_text_forms():
    assert AttentionStage.parse("kda:6:0") == AttentionStage("kda", alpha=6)
    assert AttentionStage.parse("mla") == AttentionStage("mla")
    assert AttentionStage("mla", "0.1").decimals[0] == Decimal("0.1")
    assert str(AttentionStage("mla", 2.0, 0.25)) == "mla:2:0.25"


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: AttentionStage(""), ["name"]),
        (lambda: AttentionStage("a:b"), ["'a:b'"]),
        (lambda: AttentionStage("a b"), ["'a b'"]),
        (lambda: AttentionStage(3), ["3"]),
        (lambda: AttentionStage("mla", -1), ["alpha", "mla", "-1"]),
        (lambda: AttentionStage("mla", 0, float("nan")), ["beta", "nan"]),
        (lambda: AttentionStage("mla", float("inf")), ["inf"]),
        (lambda: AttentionStage("mla", True), ["True"]),
        (lambda: AttentionStage("mla", None), ["None"]),
        (lambda: AttentionStage("mla", "two"), ["'two'"]),
        (lambda: AttentionStage.parse("mla:1:2:3"), ["NAME:ALPHA:BETA", "mla:1:2:3"]),
        (lambda: AttentionStage.parse("mla:x"), ["mla:x"]),
        (lambda: AttentionStage.from_costs("mla", 1, 1, 2048, 0), ["assignment", "0"]),
        (lambda: AttentionStage.from_costs("mla", 1, 1, 20.5, 1), ["capacity", "20.5"]),
        (lambda: AttentionStage.from_costs("mla", -1, 1, 2048, 1), ["per_token", "-1"]),
    ],
)
def test_bad_stages_name_the_field_and_its_value(make, words):
    with pytest.raises(InputError) as error:
        make()
    for word in words:
        assert word in str(error.value)


def test_costs_become_work_in_assignments():
    # 6 us per token and 2 ns per squared token, against 0.5 us per assignment, at 2048 tokens.
    stage = AttentionStage.from_costs("mla", 6e-6, 2e-9, 2048, 0.5e-6)
    assert stage.alpha == pytest.approx(12)
    assert stage.beta == pytest.approx(8.192)
    tokens = np.array([1000, 500, 300])
    seconds = 6e-6 * tokens.sum() + 2e-9 * (tokens**2).sum()
    work = stage.alpha * tokens.sum() / 2048 + stage.beta * ((tokens / 2048) ** 2).sum()
    assert 2048 * work * 0.5e-6 == pytest.approx(seconds)


def profile(seed=0, cells=40):
    rng = np.random.default_rng(seed)
    samples = [rng.integers(50, 2000, rng.integers(1, 30)) for _ in range(cells)]
    return np.array([s.sum() for s in samples]), np.array([(s**2).sum() for s in samples]), rng


def test_an_exact_profile_gives_its_coefficients_back():
    tokens, squared, _ = profile()
    seconds = {"kda": 1e-3 + 3e-6 * tokens, "mla": 2e-6 * tokens + 1e-10 * squared}
    fit = fit_stages(tokens, squared, seconds, capacity=8192, assignment_seconds=1e-8)
    assert [stage.name for stage in fit] == ["kda", "mla"]
    assert (fit[0].alpha, fit[0].beta) == (pytest.approx(300), pytest.approx(0, abs=1e-6))
    assert (fit[1].alpha, fit[1].beta) == (pytest.approx(200), pytest.approx(81.92))
    assert fit.overhead_seconds == (pytest.approx(1e-3), pytest.approx(0, abs=1e-9))
    assert max(fit.relative_error) < 1e-9
    assert max(fit.worst_error) < 1e-6
    assert (len(fit), fit[:1]) == (2, fit.stages[:1])


def test_a_noisy_profile_never_gives_negative_coefficients():
    tokens, squared, rng = profile(1)
    seconds = 3e-6 * tokens * (1 + 0.05 * rng.standard_normal(tokens.size))
    (stage,) = fit = fit_stages(tokens, squared, seconds, capacity=8192, assignment_seconds=1e-8)
    assert stage.name == "attention"
    assert stage.alpha >= 0
    assert stage.beta >= 0
    assert stage.alpha == pytest.approx(300, rel=0.1)
    assert 0.01 < fit.relative_error[0] < 0.1
    assert fit.worst_error[0] > fit.relative_error[0]


def test_profiles_that_cannot_tell_are_refused():
    tokens, squared, _ = profile(2)
    request = {"capacity": 8192, "assignment_seconds": 1e-8}
    with pytest.raises(InputError, match="rank 2"):
        fit_stages(tokens, 100 * tokens, tokens * 1e-6, **request)
    with pytest.raises(InputError, match="2 cells"):
        fit_stages(tokens[:2], squared[:2], [1, 2], **request)
    with pytest.raises(InputError, match=r"40 cells as in tokens.*39"):
        fit_stages(tokens, squared, tokens[1:], **request)
    with pytest.raises(InputError, match="cell 3"):
        fit_stages(tokens, squared, np.where(np.arange(40) == 3, -1.0, 1.0), **request)
    with pytest.raises(InputError, match="assignment_seconds"):
        fit_stages(tokens, squared, tokens * 1e-6, capacity=8192, assignment_seconds=0)


def test_presets_by_hand():
    # Qwen3-30B-A3B, 48 layers: 2048 wide, 32 query and 4 key/value heads of 128, experts 768 wide.
    expert = 3 * 2048 * 768
    projections = 2048 * (32 * 128 + 2 * 4 * 128) + 32 * 128 * 2048
    pair = 32 * (128 + 128)
    (stage,) = preset_stages("qwen3-30b-a3b", capacity=8192)
    assert stage.alpha == pytest.approx(48 * (projections + pair / 2) / expert, rel=5e-4)
    assert stage.beta == pytest.approx(48 * 8192 * pair / 2 / expert, rel=5e-4)


def test_presets_of_hybrid_and_windowed_models():
    kda, mla = preset_stages("Ling-3.0-Flash", capacity=8192)
    assert (kda.name, kda.beta, mla.name) == ("kda", 0, "mla")
    qkv = 32 * 128
    per_layer = 2560 * (5 * qkv + 32) + qkv * 2560 + 3 * 32 * 128 * 128
    assert kda.alpha == pytest.approx(35 * per_layer / (3 * 2560 * 768), rel=5e-4)
    window, full = preset_stages("gpt-oss-120b", capacity=8192)
    assert window.beta == 0 < full.beta
    assert window.alpha > full.alpha


@pytest.mark.parametrize("name", PRESETS)
def test_presets_scale_with_capacity_and_devices(name):
    base = preset_stages(name, capacity=4096)
    assert {stage.name for stage in base} == {kind.name for kind in MoEModel.preset_shape(name).attention}
    for one, double, shared in zip(
        base, preset_stages(name, capacity=8192), preset_stages(name, capacity=4096, tp=2, cp=4), strict=True
    ):
        assert double.alpha == one.alpha > 0
        assert double.beta == pytest.approx(2 * one.beta, rel=1e-3)
        assert shared.alpha == pytest.approx(one.alpha / 8, rel=1e-3)
        assert all(-d.as_tuple().exponent <= 6 for d in one.decimals)


def test_presets_refuse_what_they_do_not_know():
    with pytest.raises(InputError, match="DeepSeek-V3"):
        preset_stages("unknown", capacity=2048)
    with pytest.raises(InputError, match="tp"):
        preset_stages("DeepSeek-V3", capacity=2048, tp=0)
