"""AReaL's registry of packing algorithms, with one that needs the fewest groups.

Guarantees: the same groups on every rank; AReaL's own allocator answers, or raises, where there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from routepack_opt.integrations.grouping import fewest_groups
from routepack_opt.integrations.own import Groups, swap

Allocate = Callable[..., Groups]


def allocate(own: Allocate) -> Allocate:
    """Return an allocator of the shape of `ffd_allocate`: the fewest groups, the same on every rank.

    Parameters
    ----------
    own : callable
        `ffd_allocate`; it answers, or raises, where no groups are found.
    """

    def routepack_allocate(
        values: Sequence[int], capacity: int, min_groups: int | None = None, n_groups_divisor: int = 1
    ) -> Groups:
        try:
            return fewest_groups(values, int(capacity), least=min_groups or 1, multiple=n_groups_divisor)
        except Exception:
            return own(values, capacity, min_groups=min_groups, n_groups_divisor=n_groups_divisor)

    return routepack_allocate


def register(name: str = "routepack", seqpack: Any = None, data: Any = None) -> None:
    """Add the allocator to AReaL's registry: ``packing_algorithm: routepack``.

    Parameters
    ----------
    name : str
        Under which it is chosen.
    seqpack, data : module, optional
        `areal.utils.seqpack` and `areal.utils.data`, which looks the registry up by its own name.
    """
    first = seqpack if seqpack is not None else import_module("areal.utils.seqpack")
    second = data if data is not None else import_module("areal.utils.data")
    mine = allocate(first.ffd_allocate)
    first.PACKING_ALGORITHMS.add(name)

    def registry(own: Callable[..., Allocate]) -> Callable[..., Allocate]:
        return lambda algorithm="ffd": mine if algorithm == name else own(algorithm)

    for module in (first, second):
        swap(module, "get_allocate_fn", registry)
