"""The hard rules that a trainer may set on a layout.

Guarantees: a :class:`LayoutRules` holds values that make sense by themselves; what depends on the window
(sample ids, classes per sample) is checked when a :class:`~routepack_opt.Problem` is built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from routepack_opt.arrays import nested, whole_number, whole_numbers
from routepack_opt.errors import InputError


@dataclass(frozen=True)
class LayoutRules:
    """Rules of a layout; all optional, all hard.

    Parameters
    ----------
    length_multiple : int, default 1
        Lengths are rounded up to it before anything else (t_i); for trainers that pad each sequence.
    cell_multiple : int, default 1
        The cap becomes ``C - C % cell_multiple``: room for trainers that pad the whole cell. Nothing else
        changes.
    pad_routing : "none", "uniform" or array_like, default "none"
        Which experts carry the alignment pads: nobody, all alike, or weights of shape (E,) or (L, E).
    min_rows : int, default 1
        Smallest number of rows (pipeline occupancy).
    row_multiple : int, default 1
        Rows are a multiple of it ((virtual) pipeline divisor).
    equal_samples_per_slot : bool, default False
        Every DP slot gets the same number of samples over the window.
    max_samples_per_cell : int, optional
        Most samples in one cell (static ``cu_seqlens``).
    same_cell : sequence of tuples of int
        Samples that must share a cell; each tuple is one item.
    row_class : array_like of int, shape (N,), optional
        A class per sample; the samples of a row are all of one class (modality).
    oversize : {"reject", "alone"}
        A sample over the cap is an error, or has a cell of its own, flagged and exempt from the cap.
    row_order : {"none", "largest_first"}
        Order of the rows in the plan; the score does not depend on it.

    Raises
    ------
    InputError
        Naming the rule and its value.
    """

    length_multiple: int = 1
    cell_multiple: int = 1
    pad_routing: Any = "none"
    min_rows: int = 1
    row_multiple: int = 1
    equal_samples_per_slot: bool = False
    max_samples_per_cell: int | None = None
    same_cell: tuple[tuple[int, ...], ...] = ()
    row_class: tuple[int, ...] | None = None
    oversize: Literal["reject", "alone"] = "reject"
    row_order: Literal["none", "largest_first"] = "none"

    def __post_init__(self) -> None:
        for name in ("length_multiple", "cell_multiple", "min_rows", "row_multiple"):
            object.__setattr__(
                self, name, whole_number(getattr(self, name), f"rules.{name}", low=1, high=2**31)
            )
        if self.max_samples_per_cell is not None:
            limit = whole_number(self.max_samples_per_cell, "rules.max_samples_per_cell", low=1)
            object.__setattr__(self, "max_samples_per_cell", limit)
        if not isinstance(self.equal_samples_per_slot, (bool, np.bool_)):
            raise InputError(
                "True or False", repr(self.equal_samples_per_slot), "rules.equal_samples_per_slot"
            )
        _choice(self.oversize, ("reject", "alone"), "rules.oversize")
        _choice(self.row_order, ("none", "largest_first"), "rules.row_order")
        object.__setattr__(self, "same_cell", _groups(self.same_cell))
        if self.row_class is not None:
            classes = whole_numbers(self.row_class, "rules.row_class", shape=(None,), low=-(2**62))
            object.__setattr__(self, "row_class", tuple(int(c) for c in classes))
        object.__setattr__(self, "pad_routing", _pad_routing(self.pad_routing))


def _choice(value: object, allowed: tuple[str, ...], where: str) -> None:
    if value not in allowed:
        raise InputError(" or ".join(map(repr, allowed)), repr(value), where)


def _groups(groups: Any) -> tuple[tuple[int, ...], ...]:
    """Check the tuples of `same_cell`: whole numbers, no sample twice."""
    result: list[tuple[int, ...]] = []
    owner: dict[int, int] = {}
    for k, group in enumerate(nested(groups, "rules.same_cell", "tuples of samples that share a cell")):
        members = tuple(sorted(whole_number(i, f"rules.same_cell[{k}]") for i in group))
        if not members:
            raise InputError("at least one sample", "an empty tuple", f"rules.same_cell[{k}]")
        for i in members:
            if i in owner:
                twice = owner[i] == k
                found = (
                    f"sample {i} twice in tuple {k}" if twice else f"sample {i} in tuples {owner[i]} and {k}"
                )
                remedy = "Name it once" if twice else "Join the tuples"
                raise InputError("every sample in at most one tuple", found, "rules.same_cell", remedy)
            owner[i] = k
        result.append(members)
    return tuple(result)


def _pad_routing(value: Any) -> Any:
    """Keep the two words; turn weights into nested tuples of floats, so that rules stay hashable."""
    if isinstance(value, str):
        _choice(value, ("none", "uniform"), "rules.pad_routing")
        return value
    try:
        weights = np.asarray(value, dtype=np.float64)
    except (ValueError, TypeError):
        weights = np.zeros(())
    if weights.ndim not in (1, 2) or not np.isfinite(weights).all() or (weights < 0).any():
        raise InputError("weights of at least 0, shape (E,) or (L, E)", repr(value), "rules.pad_routing")
    if (weights.sum(axis=-1) <= 0).any():
        raise InputError("weights with a positive sum", repr(value), "rules.pad_routing")
    return tuple(map(tuple, weights.tolist())) if weights.ndim == 2 else tuple(weights.tolist())
