"""Bin-packing instances: a reader of the common file forms and generators of the published recipes.

Guarantees: a generator gives the same instance for the same arguments everywhere; the reader names the line
that it cannot use. The library's own files are not shipped: their licence forbids it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import FormatError

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class BinPacking:
    """A one-dimensional bin-packing instance.

    Attributes
    ----------
    name : str
    capacity : int
    sizes : int64[n]
    optimum : int or None
        Fewest bins, where the construction tells.
    """

    name: str
    capacity: int
    sizes: IntArray
    optimum: int | None = None


def read_bin_packing(path: str | Path) -> BinPacking:
    """Read a BPPLIB ``.txt``, a ``.bpp`` or a cutting-stock (CSP) file.

    All forms hold whole numbers: the count, the capacity, then one size per line (``.txt``, ``.bpp``) or a
    size and its demand per line (CSP). A first line that is no number is taken as a title.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    BinPacking

    Raises
    ------
    FormatError
        For a line that is no number, a count that does not match, or a size that does not fit.
    """
    lines = [line.split() for line in Path(path).read_text(encoding="utf-8").splitlines()]
    rows = [(number, line) for number, line in enumerate(lines, 1) if line]
    if rows and not _is_number(rows[0][1][0]):
        rows = rows[1:]
    values = [(number, [_whole(text, path, number) for text in line]) for number, line in rows]
    if len(values) and len(values[0][1]) == 2:
        values = [(values[0][0], [values[0][1][0]]), (values[0][0], [values[0][1][1]]), *values[1:]]
    if len(values) < 3:
        raise FormatError("a count, a capacity and sizes", f"{len(values)} lines with numbers", str(path))
    count, capacity = values[0][1][0], values[1][1][0]
    sizes: list[int] = []
    for number, line in values[2 : 2 + count]:
        size, demand = line[0], line[1] if len(line) > 1 else 1
        if not 1 <= size <= capacity or demand < 0:
            raise FormatError(f"a size from 1 to {capacity}", f"{line}", f"{path}, line {number}")
        sizes += [size] * demand
    if len(values) - 2 < count:
        raise FormatError(f"{count} sizes", f"{len(values) - 2}", str(path), "The file is truncated")
    return BinPacking(Path(path).stem, capacity, np.array(sizes, dtype=np.int64))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _whole(text: str, path: str | Path, number: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not value.is_integer():
        raise FormatError("whole numbers", repr(text), f"{path}, line {number}")
    return int(value)


def falkenauer_uniform(n: int, seed: int) -> BinPacking:
    """Draw sizes from 20 to 100 for bins of 150 (Falkenauer 1996)."""
    return _uniform(f"falkenauer-u{n}-{seed}", n, 20, 100, 150, seed)


def falkenauer_triplet(n: int, seed: int) -> BinPacking:
    """Draw triplets that fill bins of 1000 exactly, from 250 upwards (Falkenauer 1996); n / 3 bins."""
    rng, sizes = _rng(seed), []
    for _ in range(n // 3):
        first = int(rng.integers(380, 491))
        second = int(rng.integers(250, (1000 - first) // 2 + 1))
        sizes += [first, second, 1000 - first - second]
    return BinPacking(f"falkenauer-t{n}-{seed}", 1000, np.array(sizes, dtype=np.int64), n // 3)


def scholl_1(n: int, capacity: int, low: int, seed: int) -> BinPacking:
    """Draw sizes from ``low`` to 100 for bins of 100, 120 or 150 (Scholl, Klein and Juergens 1997, set 1)."""
    return _uniform(f"scholl1-n{n}-c{capacity}-w{low}-{seed}", n, low, 100, capacity, seed)


def scholl_2(n: int, parts: int, spread: float, seed: int) -> BinPacking:
    """Draw sizes around 1000 / parts, by up to ``spread``, for bins of 1000 (the same, set 2)."""
    mean = 1000 / parts
    low, high = int(np.ceil(mean * (1 - spread))), int(np.floor(mean * (1 + spread)))
    return _uniform(f"scholl2-n{n}-w{parts}-b{spread}-{seed}", n, max(1, low), min(1000, high), 1000, seed)


def scholl_3(seed: int) -> BinPacking:
    """Draw 200 sizes from 20,000 to 35,000 for bins of 100,000 (the same, set 3)."""
    return _uniform(f"scholl3-{seed}", 200, 20_000, 35_000, 100_000, seed)


def schwerin(n: int, seed: int) -> BinPacking:
    """Draw sizes from 150 to 200 for bins of 1000 (Schwerin and Waescher 1997); n = 100 or 120."""
    return _uniform(f"schwerin-{n}-{seed}", n, 150, 200, 1000, seed)


def random_class(n: int, capacity: int, low: float, high: float, seed: int) -> BinPacking:
    """Draw sizes from ``low`` to ``high`` times the capacity (Delorme, Iori and Martello 2016)."""
    first, last = max(1, int(low * capacity)), int(high * capacity)
    return _uniform(f"random-n{n}-c{capacity}-{low}-{high}-{seed}", n, first, last, capacity, seed)


def hard28_like(n: int, seed: int) -> BinPacking:
    """Draw sizes from 1 to 800 for bins of 1000, kept when the tokens nearly fill a whole number of bins.

    The published 28 are what remained of many such draws (Belov and Scheithauer 2006): they are hard because
    the bound from the sizes and the next whole number lie close together.
    """
    rng = _rng(seed)
    while True:
        sizes = rng.integers(1, 801, n)
        spare = -int(sizes.sum()) % 1000
        if spare < 100 and int((sizes > 500).sum()) < int(sizes.sum()) // 1000:
            return BinPacking(f"hard28-like-n{n}-{seed}", 1000, sizes.astype(np.int64))


def augmented_irup(bins: int, seed: int, capacity: int = 2500) -> BinPacking:
    """Cut full bins into three large parts, some of them into two more; the bins stay full.

    In the manner of the AI class (Delorme, Iori and Martello 2016): the optimum equals the tokens over the
    capacity, but only perfect packings reach it.
    """
    rng, sizes = _rng(seed), []
    for number in range(bins):
        first = int(rng.integers(capacity // 4 + 1, capacity // 2))
        second = int(rng.integers(capacity // 5, (capacity - first) // 2 + 1))
        parts = [first, second, capacity - first - second]
        if number % 15 == 0:
            cut = int(rng.integers(parts[2] // 3, parts[2] // 2 + 1))
            parts[2:] = [cut, parts[2] - cut]
        sizes += parts
    return BinPacking(f"augmented-irup-{bins}-{seed}", capacity, np.array(sizes, dtype=np.int64), bins)


def augmented_non_irup(bins: int, seed: int, capacity: int = 2500) -> BinPacking:
    """Add perfectly filled bins to a small core that misses the round-up of its fractional optimum.

    In the manner of the ANI class: the tokens fit ``bins`` bins, whether a packing does is the question; the
    core's sizes are multiples that no cut of the other bins shares.
    """
    scale = capacity // 132
    core = [44 * scale] * 2 + [33 * scale] * 3 + [12 * scale] * 6
    full = augmented_irup(bins - 2, seed, 132 * scale)
    sizes = np.concatenate([full.sizes, np.array(core, dtype=np.int64)])
    return BinPacking(f"augmented-non-irup-{bins}-{seed}", 132 * scale, sizes)


def _rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(seed))


def _uniform(name: str, n: int, low: int, high: int, capacity: int, seed: int) -> BinPacking:
    return BinPacking(name, capacity, _rng(seed).integers(low, high + 1, n).astype(np.int64))


def literature(count: int) -> dict[str, list[BinPacking]]:
    """Give every published recipe as ``count`` instances per parameter choice, by class."""
    seeds, spans = range(count), ((0.1, 0.5), (0.2, 0.8))

    def every(make: Callable[..., BinPacking], *choices: tuple[object, ...]) -> list[BinPacking]:
        return [make(*choice, seed) for choice in choices for seed in seeds]

    return {
        "Falkenauer U": every(falkenauer_uniform, (120,), (250,), (500,), (1000,)),
        "Falkenauer T": every(falkenauer_triplet, (60,), (120,), (249,), (501,)),
        "Scholl 1": every(
            scholl_1, *((n, c, w) for n in (50, 100, 200, 500) for c in (100, 120, 150) for w in (1, 20, 30))
        ),
        "Scholl 2": every(
            scholl_2, *((n, w, b) for n in (50, 100, 200, 500) for w in (3, 5, 7, 9) for b in (0.2, 0.5, 0.9))
        ),
        "Scholl 3": every(scholl_3, ()),
        "Schwerin": every(schwerin, (100,), (120,)),
        "random": every(
            random_class,
            *((n, c, *span) for n in (50, 100, 200, 500) for c in (50, 100, 500, 1000) for span in spans),
        ),
        "Hard28-like": every(hard28_like, (160,), (180,), (200,)),
        "augmented IRUP": every(augmented_irup, (67,)),
        "augmented non-IRUP": every(augmented_non_irup, (65,)),
    }  # fmt: skip
