"""Windows of the row benchmark: real and trainer-like lengths, and stress lengths, on one grid."""

from itertools import product
from pathlib import Path

import numpy as np

import routepack_opt.problem as problems
from routepack_opt.window import Window

ROOT = Path(__file__).resolve().parents[1] / "instances"
SIZES = (64, 256, 1024, 4096, 16384)
CAPACITIES = (2048, 8192, 32768, 131072)
SLOTS = (1, 2, 4, 8, 16, 32, 64)


def _real(name):
    with np.load(ROOT / "lengths" / f"{name}.npz") as data:
        return data["prompt_tokens"].astype(np.int64) + data["response_tokens"]


def _gsm8k():
    paths = sorted((ROOT / "gsm8k-moe").glob("*.npz"))
    return np.concatenate([np.load(path)["lengths"] for path in paths]).astype(np.int64)


def _resampled(values):
    return lambda rng, n, c: rng.choice(values, n)


def _groups(rng, n, c):
    scale = np.repeat(rng.lognormal(np.log(c / 12), 0.7, -(-n // 8)), 8)[:n]
    return scale * rng.lognormal(0, 0.35, n) * np.where(rng.random(n) < 0.125, 4, 1)


def _bimodal(rng, n, c):
    return np.where(rng.random(n) < 0.7, rng.lognormal(np.log(c / 20), 0.4, n), rng.normal(c / 2, c / 12, n))


def real_families():
    """Lengths that trainers meet: name -> draw(rng, n, capacity)."""
    names = ("azure-code", "azure-conv", "mooncake-conversation", "mooncake-synthetic")
    return {
        "gsm8k": _resampled(_gsm8k()),
        **{name: _resampled(_real(name)) for name in names},
        "lognormal": lambda rng, n, c: rng.lognormal(np.log(c / 16), 1.0, n),
        "heavy tail": lambda rng, n, c: (rng.pareto(1.2, n) + 1) * c / 40,
        "prompt groups": _groups,
        "bimodal": _bimodal,
        "clipped": lambda rng, n, c: np.minimum(rng.lognormal(np.log(c / 6), 1.0, n), c // 2),
    }


def stress_families():
    """Lengths that make packing hard."""
    return {
        "uniform": lambda rng, n, c: rng.integers(1, c + 1, n),
        "uniform to C/2": lambda rng, n, c: rng.integers(1, c // 2 + 1, n),
        "long context": lambda rng, n, c: rng.integers(c // 4, c + 1, n),
        "three a bin": lambda rng, n, c: rng.integers(c // 4, c // 2 + 1, n),
    }


def draw(family, n, c, seed):
    """Lengths from 1 to C (longer samples are clipped, as trainers truncate them)."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, n, c]))
    return np.clip(np.rint(family(rng, n, c)), 1, c).astype(np.int64)


def problem_of(lengths, dp, capacity, **rules):
    """Give a problem of lengths alone."""
    return problems.Problem(
        Window.from_lengths(lengths),
        problems.Topology(dp=dp),
        capacity=capacity,
        rules=problems.LayoutRules(**rules),
    )


def grid(families, seeds, sizes=SIZES, capacities=CAPACITIES, slots=SLOTS):
    """Every combination with at least two samples per slot: (name, n, capacity, dp, lengths)."""
    for (name, family), n, c, dp, seed in product(families.items(), sizes, capacities, slots, range(seeds)):
        if n >= 2 * dp:
            yield name, n, c, dp, draw(family, n, c, seed)
