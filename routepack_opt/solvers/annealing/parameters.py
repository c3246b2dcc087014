"""What can be set on population annealing, and when it stops.

Guarantees: values are checked at construction; no default looks at cores or time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from routepack_opt.arrays import IntArray, whole_number
from routepack_opt.errors import InputError


@dataclass(frozen=True)
class Mix:
    """How often each kind of move is proposed, in parts of 1024 (the rest exchanges whole cells).

    Parameters
    ----------
    near : int
        Swap of two items that stand close to each other in the order of lengths.
    any : int
        Swap of two items drawn alike from all.
    move : int
        Relocation of one item that leaves no cell empty.
    pair : int
        Two items of a cell for one of another.
    reach : int
        Largest distance of a near swap in the order of lengths.
    guided : int
        Parts of 1024 of the swaps and relocations that go from a heavy to a light row-shard, and there from
        the cell that holds up its shard (the paper's guidance; 819 is its 80 %).
    inside : int
        Parts of 1024 of the other steps, near swaps apart, that stay inside a row-shard.
    """

    near: int = 700
    any: int = 200
    move: int = 100
    pair: int = 16
    reach: int = 16
    guided: int = 0
    inside: int = 0

    def __post_init__(self) -> None:
        for name in ("near", "any", "move", "pair", "guided", "inside"):
            whole_number(getattr(self, name), f"mix.{name}", high=1024)
        whole_number(self.reach, "mix.reach", low=1)
        if self.near + self.any + self.move + self.pair > 1024:
            raise InputError("shares of at most 1024 together", repr(self), "mix")

    def thresholds(self) -> IntArray:
        """Cumulative shares, then reach, guidance and inside, as `_kernels.proposals` reads them."""
        shares = np.cumsum([self.near, self.any, self.move, self.pair])
        return np.array([*shares, 1024, self.reach, self.guided, self.inside], np.int64)


@dataclass(frozen=True)
class Budget:
    """A reproducible amount of search.

    Parameters
    ----------
    proposals : int
        Proposals over all chains and levels, invalid ones included.
    """

    proposals: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "proposals", whole_number(self.proposals, "budget.proposals", low=0))


TUNED_FOR = 512  # items for which the default temperatures are best
FEW = 64  # items up to which the search widens
HOTTEST = 0.05  # relative temperature above which nothing is gained


@dataclass(frozen=True)
class AnnealingParameters:
    """Shape of the search (Algorithm 3).

    Parameters
    ----------
    population : int
        P_pop, members.
    levels : int
        N_T, temperatures, geometric from `hottest` to `coldest`.
    hottest, coldest : float
        Temperatures relative to max(abs(E), 1).
    mix : Mix
        Kinds of moves.
    blocks_first : bool
        Search over which row-shard an item is in, then over the cells inside each, then over all (see
        `blocks`), where the problem allows it.
    complete : bool
        Look at all layouts at the end (see `complete`), where the problem is small enough.
    rule : {"annealing", "paper"}
        Whose defaults these are; written into the plan.
    """

    population: int = 2
    levels: int = 40
    hottest: float = 3e-5
    coldest: float = 1e-6
    mix: Mix = Mix()
    blocks_first: bool = True
    complete: bool = True
    rule: Literal["annealing", "paper"] = "annealing"

    def __post_init__(self) -> None:
        whole_number(self.population, "population", low=1, high=2**16)
        whole_number(self.levels, "levels", low=1, high=2**16)
        if not 0 < self.coldest <= self.hottest < float("inf"):
            raise InputError("0 < coldest <= hottest", f"{self.coldest} and {self.hottest}", "temperatures")

    @classmethod
    def for_items(cls, items: int) -> AnnealingParameters:
        """Return the defaults for a problem of `items` items.

        Notes
        -----
        The fewer the items, the larger the change that one move makes, and a search that starts too cold
        stays where it starts. Below :data:`TUNED_FOR` items the hottest temperature grows with the inverse
        square; up to :data:`FEW` items there are also more members and more moves that change the number of
        items in a cell. Measured on the proven optima of ``instances/exact-small``. Above :data:`TUNED_FOR`
        items both temperatures fall with the power 3/4: measured on windows of 2,048 to 16,384 samples, where
        the inverse freezes a search too early and the same temperatures never cool it.
        """
        if items > TUNED_FOR:
            root = _root(TUNED_FOR / items, 4)
            return cls(hottest=cls.hottest * root * root * root, coldest=cls.coldest * root * root * root)
        scale = TUNED_FOR / items
        hottest = min(HOTTEST, cls.hottest * scale * scale)
        if items > FEW:
            return cls(hottest=hottest)
        mix, coldest = Mix(300, 400, 200, 100), cls.coldest * scale
        return cls(8, hottest=hottest, coldest=coldest, mix=mix, blocks_first=False)

    def temperatures(self) -> list[float]:
        """T_0 > T_1 > ... by repeated multiplication, which is the same on every host."""
        if self.levels == 1:
            return [self.coldest]
        ratio = _root(self.coldest / self.hottest, self.levels - 1)
        values = [self.hottest]
        while len(values) < self.levels:
            values.append(values[-1] * ratio)
        return values


def _root(value: float, degree: int) -> float:
    """Find the degree-th root of a number in (0, 1] by bisection, with multiplications alone."""
    low, high = 0.0, 1.0
    for _ in range(80):
        middle = (low + high) / 2
        power = 1.0
        for _ in range(degree):
            power *= middle
        low, high = (middle, high) if power < value else (low, middle)
    return high


PAPER = AnnealingParameters(
    population=16,
    levels=20,
    hottest=1e-4,
    mix=Mix(near=0, any=924, move=100, pair=0, guided=819),
    blocks_first=False,
    complete=False,
    rule="paper",
)
