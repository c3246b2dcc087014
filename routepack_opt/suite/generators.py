"""Seeded windows: synthetic routing replay of any size, and the presets at production size.

Guarantees: equal arguments give equal windows; what is drawn is a valid :class:`~routepack_opt.Window`. The
default routing has the statistics of recorded windows (:mod:`routepack_opt.suite.statistics` measures them).
"""

from __future__ import annotations

import numpy as np

from routepack_opt.arrays import IntArray, whole_number, whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.suite.lengths import lognormal_lengths
from routepack_opt.suite.routing import RoutingFamily, draw_counts
from routepack_opt.window import Window

#: Balanced training keeps the load of large models flatter than that of a small model trained without care.
LARGE_MODEL = RoutingFamily(skew=(0.5, 0.7, 0.6))


def draw_window(
    lengths: IntArray,
    model: MoEModel,
    seed: int | np.random.SeedSequence,
    *,
    group: int = 4,
    routing: RoutingFamily | None = None,
) -> Window:
    """Draw the routing of samples of given lengths.

    Parameters
    ----------
    lengths : array_like of int, shape (N,)
        Tokens of every sample; neighbours answer the same prompt.
    model : MoEModel
        MoE layers, experts and top-k.
    seed : int or SeedSequence
        Source of all randomness.
    group : int, default 4
        Samples per prompt.
    routing : RoutingFamily, optional
        Statistics of the routing; by default those of the recorded windows.

    Returns
    -------
    Window
        With `prompt_ids` and the model.
    """
    tokens = whole_numbers(lengths, "lengths", shape=(None,), low=1)
    groups = np.arange(tokens.size) // whole_number(group, "group", low=1)
    root = seed if isinstance(seed, np.random.SeedSequence) else np.random.SeedSequence(seed)
    shape = (model.num_moe_layers, model.experts, model.top_k)
    counts = draw_counts(tokens, groups, shape, routing or RoutingFamily(), root)
    source = {"generator": "draw_window", "entropy": str(root.entropy), "spawn_key": list(root.spawn_key)}
    return Window(tokens, counts, prompt_ids=groups, model=model, source=source)


def preset_window(
    preset: str,
    seed: int,
    samples: int = 512,
    *,
    median: float = 1200.0,
    sigma: float = 0.6,
    longest: int = 8192,
    group: int = 8,
    routing: RoutingFamily = LARGE_MODEL,
) -> Window:
    """Draw a window of a public model's shape at production size.

    Parameters
    ----------
    preset : str
        One of :data:`routepack_opt.model.PRESETS`.
    seed : int
        Source of all randomness; at least 0.
    samples : int, default 512
        N.
    median, sigma, longest : float, float, int
        Lengths are lognormal and clipped to ``1 .. longest``.
    group : int, default 8
        Samples per prompt.
    routing : RoutingFamily
        Statistics of the routing.

    Returns
    -------
    Window
    """
    if seed < 0:
        raise InputError("a seed of at least 0", f"{seed}", "seed")
    model = MoEModel.preset(preset)
    of_lengths, of_routing = np.random.SeedSequence(seed).spawn(2)
    lengths = lognormal_lengths(median, sigma, whole_number(samples, "samples", low=1), longest, of_lengths)
    return draw_window(lengths, model, of_routing, group=group, routing=routing)


def ling_window(seed: int, samples: int = 512) -> Window:
    """Draw a Ling-3.0-Flash-like window: 40 MoE layers, 512 experts, top-8, for C = 8192."""
    return preset_window("Ling-3.0-Flash", seed, samples)


def deepseek_window(seed: int, samples: int = 512) -> Window:
    """Draw a DeepSeek-V3-like window: 58 MoE layers, 256 experts, top-8, for C = 8192."""
    return preset_window("DeepSeek-V3", seed, samples)


def qwen_window(seed: int, samples: int = 512) -> Window:
    """Draw a Qwen3-30B-A3B-like window: 48 MoE layers, 128 experts, top-8, for C = 8192."""
    return preset_window("Qwen3-30B-A3B", seed, samples)
