"""Generated windows: valid, reproducible, and with the statistics of recorded windows."""

import numpy as np
import pytest

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.suite.generators import draw_window, preset_window
from routepack_opt.suite.lengths import FAMILIES, draw_lengths, lognormal_lengths
from routepack_opt.suite.routing import RoutingFamily
from routepack_opt.suite.statistics import routing_statistics

SMALL = MoEModel(layers=8, experts=32, top_k=4)

# Measured on the seven recorded windows (docs, chapter on suites): least and largest mean over layers.
RECORDED = {
    "load_cv": (0.976, 1.004),
    "spread": (0.389, 0.412),
    "within_group": (0.801, 0.825),
    "between_layers": (0.604, 0.677),
    "sample_imbalance": (0.299, 0.330),
}


def window(seed=3, samples=256, **family):
    lengths = lognormal_lengths(178, 0.37, samples, 502, seed)
    routing = RoutingFamily(**family) if family else None
    return draw_window(lengths, SMALL, seed, routing=routing)


@pytest.mark.parametrize("family", FAMILIES)
def test_lengths_are_reproducible_and_in_range(family):
    lengths = draw_lengths(family, 200, 4096, 5)
    assert lengths.min() >= 1
    assert lengths.max() <= 4096
    assert np.array_equal(lengths, draw_lengths(family, 200, 4096, 5))
    assert not np.array_equal(lengths, draw_lengths(family, 200, 4096, 6))


def test_unknown_family_is_named():
    with pytest.raises(InputError, match="'weird'"):
        draw_lengths("weird", 3, 10, 0)


def test_every_layer_carries_top_k_per_token():
    drawn = window()
    assert (drawn.counts.sum(axis=2) == drawn.lengths[:, None] * SMALL.top_k).all()
    assert (drawn.counts <= drawn.lengths[:, None, None]).all()


def test_experts_at_their_limit_keep_the_sums():
    model = MoEModel(layers=3, experts=4, top_k=3)
    drawn = draw_window(np.arange(1, 60), model, 1, routing=RoutingFamily(skew=(2.5,), taste=2.0, noise=1.0))
    assert (drawn.counts.sum(axis=2) == drawn.lengths[:, None] * 3).all()
    assert (drawn.counts == drawn.lengths[:, None, None]).any()


def test_seeds():
    assert window(1).digest == window(1).digest
    assert window(1).digest != window(2).digest


@pytest.mark.parametrize("name", sorted(RECORDED))
def test_statistics_match_recorded_windows(name):
    low, high = RECORDED[name]
    measured = np.mean([np.mean(routing_statistics(window(seed), 8)[name]) for seed in range(3)])
    assert 0.8 * low <= measured <= 1.25 * high


def test_each_parameter_moves_its_statistic():
    def mean(name, **family):
        return float(np.mean(routing_statistics(window(**family), 8)[name]))

    assert mean("load_cv", skew=(0.2,)) < 0.4 < mean("load_cv", skew=(1.0,))
    assert mean("spread", taste=0.1) < mean("spread", taste=0.6)
    assert mean("within_group", within_group=0.1) < 0.4 < mean("within_group", within_group=0.99)
    assert mean("between_layers", between_layers=0.0) < 0.1 < mean("between_layers", between_layers=1.0)


def test_presets_have_the_public_shape():
    drawn = preset_window("Ling-3.0-Flash", 0, samples=8)
    assert drawn.counts.shape == (8, 40, 512)
    assert drawn.prompt_ids.tolist() == [0] * 8
    with pytest.raises(InputError, match="seed"):
        preset_window("Ling-3.0-Flash", -1)
