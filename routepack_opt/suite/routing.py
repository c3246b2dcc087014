"""Seeded routing: expert counts with layer skew, taste of prompts, and correlation between layers.

Guarantees: equal arguments give equal counts; every layer of a sample sums to ``tokens * top_k``; no expert
counts more than the sample's tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, frozen

_BLOCK = 32  # samples drawn at once: bounds the scratch memory
_FACTORS = 12  # dimensions of what a prompt is about
_DECAY = 1.0  # of the factors' strength
_GENERALIST = 0.35  # how much less the routing to hot experts depends on the topic
_ROUNDS = 6  # of sharing what an expert at its limit cannot take


@dataclass(frozen=True)
class RoutingFamily:
    """How samples choose experts: logit = skew + taste * (factors of the layer . topic of the sample).

    Parameters
    ----------
    skew : tuple of float
        Coefficient of variation of the load over experts, from the first to the last MoE layer
        (interpolated).
    taste : float
        How far a sample's routing strays from the window's, as a standard deviation of its logits.
    within_group : float
        Share (0 to 1) of a sample's topic that it has in common with the other answers to its prompt.
    between_layers : float
        Share (0 to 1) of a sample's topic that is the same at every layer.
    noise : float
        Spread of a count around its mean, relative to tokens routed independently (1). Answers to a prompt
        share its tokens, so recorded counts spread less.
    """

    skew: tuple[float, ...] = (0.69, 0.93, 1.07, 1.09, 1.12, 1.15)
    taste: float = 0.6
    within_group: float = 0.96
    between_layers: float = 0.92
    noise: float = 0.6


def draw_counts(
    lengths: IntArray,
    groups: IntArray,
    shape: tuple[int, int, int],
    family: RoutingFamily,
    seed: np.random.SeedSequence,
) -> npt.NDArray[np.int32]:
    """Draw the routed counts of a window.

    Parameters
    ----------
    lengths, groups : numpy.ndarray of int64, shape (N,)
        Tokens, and the prompt (0, 1, ...) that a sample answers.
    shape : (layers, experts, top_k)
        MoE layers, logical experts, experts per token.
    family : RoutingFamily
        Statistics of the routing.
    seed : SeedSequence
        Source of all randomness.

    Returns
    -------
    numpy.ndarray of int32, shape (N, layers, experts)
    """
    layers, experts, top_k = shape
    of_model, of_topics, of_samples = (np.random.default_rng(s) for s in seed.spawn(3))
    base = _window_logits(layers, experts, family.skew, of_model)
    factors = family.taste * _loadings(base, of_model)
    topics = _Topics(of_topics, int(groups.max()) + 1, layers, family)
    counts = np.empty((lengths.size, layers, experts), np.int32)
    for start in range(0, lengths.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        topic = topics.draw(groups[part])
        logits = base + np.einsum("ilf,lfe->ile", topic, factors)
        counts[part] = _round(_shares(logits, top_k), lengths[part], top_k, family.noise, of_samples)
    return frozen(counts)


def _window_logits(
    layers: int, experts: int, skew: tuple[float, ...], rng: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Logits of the window's load: gamma quantiles, so many cold experts and few very hot ones."""
    from scipy.special import gammaincinv

    depth = np.interp(np.linspace(0, 1, layers), np.linspace(0, 1, len(skew)), skew)
    level = (np.arange(experts) + rng.uniform(0.3, 0.6, (layers, experts))) / experts
    level = rng.permuted(level, axis=1)
    shape = 1 / np.maximum(depth, 1e-3)[:, None] ** 2
    return np.asarray(np.log(np.maximum(gammaincinv(shape, level) / shape, 1e-6)), np.float64)


def _loadings(base: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """How the logits follow the topic, float64 (layers, factors, experts).

    A few factors dominate, and cold experts follow the topic more than hot ones, as in recorded windows.
    """
    strength = 1 / np.arange(1, _FACTORS + 1) ** _DECAY
    strength /= np.sqrt((strength**2).sum())
    special = np.exp(-_GENERALIST * np.maximum(base, -3.0))
    special /= np.sqrt((special**2).mean(axis=1, keepdims=True))
    draw = rng.standard_normal((base.shape[0], _FACTORS, base.shape[1]))
    loadings: npt.NDArray[np.float64] = draw * strength[:, None] * special[:, None, :]
    return loadings


class _Topics:
    """Topic vectors: a part for all layers and a part per layer, each with a part for the whole prompt."""

    def __init__(self, rng: np.random.Generator, prompts: int, layers: int, family: RoutingFamily) -> None:
        self.rng, self.family = rng, family
        self.common = rng.standard_normal((prompts, 1, _FACTORS))
        self.by_layer = rng.standard_normal((prompts, layers, _FACTORS))

    def draw(self, groups: IntArray) -> npt.NDArray[np.float64]:
        """Topics of the samples of one block, float64 (len(groups), layers, factors)."""
        layers = self._mix(self.by_layer[groups], self.family.within_group)
        common = self._mix(self.common[groups], self.family.within_group)
        share = self.family.between_layers
        mixed: npt.NDArray[np.float64] = np.sqrt(share) * common + np.sqrt(1 - share) * layers
        return mixed

    def _mix(self, shared: npt.NDArray[np.float64], share: float) -> npt.NDArray[np.float64]:
        own = self.rng.standard_normal(shared.shape)
        mixed: npt.NDArray[np.float64] = np.sqrt(share) * shared + np.sqrt(1 - share) * own
        return mixed


def _shares(logits: npt.NDArray[np.float64], top_k: int) -> npt.NDArray[np.float64]:
    """Chance that a token goes to each expert; sums to top-k, at most 1."""
    weight = np.exp(logits - logits.max(axis=2, keepdims=True))
    return _fill(weight, np.full((*weight.shape[:2], 1), float(top_k)), np.ones((1, 1, 1)))


def _fill(weight: Any, total: Any, limit: Any) -> npt.NDArray[np.float64]:
    """Share `total` in proportion to `weight` over the last axis, nobody above `limit`."""
    share = weight * (total / weight.sum(axis=2, keepdims=True))
    for _ in range(_ROUNDS):
        full = share >= limit
        if not full.any():
            break
        room = np.where(full, 0.0, share)
        left = total - (full * limit).sum(axis=2, keepdims=True)
        share = np.where(full, limit, room * (left / np.maximum(room.sum(axis=2, keepdims=True), 1e-300)))
    return np.asarray(np.minimum(share, limit), np.float64)


def _round(
    shares: npt.NDArray[np.float64], tokens: IntArray, top_k: int, noise: float, rng: np.random.Generator
) -> npt.NDArray[np.int32]:
    """Draw whole counts around ``tokens * shares`` with `noise` times the spread of independent tokens."""
    limit = tokens[:, None, None].astype(np.float64)
    mean = limit * shares
    noisy = mean + noise * np.sqrt(mean * (1 - shares)) * rng.standard_normal(shares.shape)
    filled = _fill(np.maximum(noisy, 1e-9), limit * top_k, limit)
    # One random offset for all experts of a layer: neighbours share the rounding, so the sum comes out exact.
    edges = np.floor(np.cumsum(filled, axis=2) + rng.random((*shares.shape[:2], 1))).astype(np.int64)
    edges[:, :, -1] = tokens[:, None] * top_k
    counts = np.diff(edges, axis=2, prepend=0)
    return _repair(counts, tokens).astype(np.int32)


def _repair(counts: IntArray, tokens: IntArray) -> IntArray:
    """Hand on what the last bits of the running sums pushed above a sample's tokens, or below 0."""
    limit = tokens[:, None, None]
    for i, layer in zip(*np.nonzero(((counts > limit) | (counts < 0)).any(axis=2)), strict=True):
        row, most = counts[i, layer], int(tokens[i])
        excess = int((row - np.clip(row, 0, most)).sum())
        row[:] = np.clip(row, 0, most)
        for e in np.argsort(row if excess > 0 else -row, kind="stable"):
            step = int(np.clip(row[e] + excess, 0, most) - row[e])
            row[e] += step
            excess -= step
    return counts
