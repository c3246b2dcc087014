"""Seeded families of sample lengths.

Guarantees: equal arguments give equal lengths; lengths lie in ``1 .. longest``; samples of one prompt are
neighbours.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from routepack_opt.arrays import IntArray, frozen, whole_number
from routepack_opt.errors import InputError

Draw = Callable[[np.random.Generator, int, int, int], "np.typing.NDArray[np.float64]"]


def draw_lengths(
    family: str, samples: int, longest: int, seed: int | np.random.SeedSequence, *, group: int = 8
) -> IntArray:
    """Draw the lengths of a window.

    Parameters
    ----------
    family : str
        One of :data:`FAMILIES`; described in the docs page on suites.
    samples : int
        N.
    longest : int
        Lengths are clipped to it, usually the capacity.
    seed : int or SeedSequence
        Source of all randomness.
    group : int, default 8
        Samples per prompt; only ``grpo`` depends on it.

    Returns
    -------
    numpy.ndarray of int64, shape (samples,)

    Raises
    ------
    InputError
        When the family is unknown.
    """
    if family not in _FAMILIES:
        raise InputError(" or ".join(FAMILIES), repr(family), "family")
    samples, longest = whole_number(samples, "samples", low=1), whole_number(longest, "longest", low=1)
    rng = np.random.default_rng(seed)
    raw = _FAMILIES[family](rng, samples, longest, group)
    return frozen(np.clip(np.rint(raw), 1, longest).astype(np.int64))


def lognormal_lengths(
    median: float, sigma: float, samples: int, longest: int, seed: int | np.random.SeedSequence
) -> IntArray:
    """Draw lognormal lengths of a given median and shape, clipped to ``1 .. longest``, int64 (samples,)."""
    raw = np.random.default_rng(seed).lognormal(np.log(median), sigma, samples)
    return frozen(np.clip(np.rint(raw), 1, longest).astype(np.int64))


def _heavy(rng: np.random.Generator, samples: int, longest: int, group: int) -> np.typing.NDArray[np.float64]:
    return (rng.pareto(1.2, samples) + 1) * (longest / 24)


def _grpo(rng: np.random.Generator, samples: int, longest: int, group: int) -> np.typing.NDArray[np.float64]:
    """Answers to one prompt are alike in length; one in eight runs on to four times as many tokens."""
    prompts = -(-samples // group)
    scale = np.repeat(rng.lognormal(np.log(longest / 12), 0.7, prompts), group)[:samples]
    tail = np.where(rng.random(samples) < 0.125, 4.0, 1.0)
    return scale * rng.lognormal(0.0, 0.35, samples) * tail


def _bimodal(
    rng: np.random.Generator, samples: int, longest: int, group: int
) -> np.typing.NDArray[np.float64]:
    short = rng.lognormal(np.log(longest / 20), 0.4, samples)
    return np.where(rng.random(samples) < 0.7, short, rng.normal(longest / 2, longest / 12, samples))


_FAMILIES: dict[str, Draw] = {
    "lognormal": lambda rng, n, c, _: rng.lognormal(np.log(c / 16), 1.0, n),
    "gsm8k": lambda rng, n, c, _: rng.lognormal(np.log(c * 0.09), 0.37, n),
    "heavy": _heavy,
    "grpo": _grpo,
    "bimodal": _bimodal,
    "uniform": lambda rng, n, c, _: rng.uniform(1, c, n),
    "half": lambda rng, n, c, _: rng.uniform(c / 10, c / 2, n),
    "long": lambda rng, n, c, _: rng.uniform(c / 4, c, n),
}

#: Names that :func:`draw_lengths` knows.
FAMILIES: tuple[str, ...] = tuple(_FAMILIES)
