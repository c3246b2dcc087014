"""`Problem`: the frozen object all solvers take, with its exact integer units.

Guarantees: every score of every layout is an int64 below 2^62 (or the problem is refused with the numbers);
the coefficients are the stages' own, scaled by S, and nothing else is rounded.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray, digest, frozen, whole_number
from routepack_opt.errors import InputError
from routepack_opt.problem.items import Items, build_items
from routepack_opt.problem.pads import add_pads
from routepack_opt.problem.rules import LayoutRules
from routepack_opt.problem.topology import Topology
from routepack_opt.stages import AttentionStage
from routepack_opt.window import Window

_LARGEST_SCALE = 10**6
_SCORE_LIMIT = 2**62
_TOLERATED_CHANGE = Decimal("0.001")  # of a coefficient, when S must be lowered


@dataclass(frozen=True, eq=False)
class Problem:
    """A window to be planned on a topology.

    Parameters
    ----------
    window : Window
        Lengths and counts of one optimizer step.
    topology : Topology
        DP slots, EP ranks and EDP shards.
    capacity : int
        C, tokens per cell (per cell, not per GPU under context parallelism).
    stages : sequence of AttentionStage
        Attention types with their work; empty when attention does not matter.
    rules : LayoutRules
        What the trainer requires.
    expert_bytes : int, optional
        Bytes of one expert's state at one layer; bytes moved are reported only when it is given.

    Raises
    ------
    InputError
        For a sample over the cap, experts that ranks cannot share evenly, or a score that could overflow
        int64.

    Notes
    -----
    Scaled by C^2 S every term of Eqs. 11-15 is a whole number: a cell's attention work is
    ``linear[s] * sum(t) + quadratic[s] * sum(t^2)``, a row-shard's expert work ``expert_unit * sum_l max_p
    W``.
    """

    window: Window
    topology: Topology
    capacity: int
    stages: tuple[AttentionStage, ...] = ()
    rules: LayoutRules = field(default_factory=LayoutRules)
    expert_bytes: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "capacity", whole_number(self.capacity, "capacity", low=1, high=2**31 - 1))
        object.__setattr__(self, "stages", tuple(self.stages))
        if self.expert_bytes is not None:
            object.__setattr__(self, "expert_bytes", whole_number(self.expert_bytes, "expert_bytes", low=0))
        if self.cell_cap < 1:
            found = f"cell_multiple {self.rules.cell_multiple} above capacity {self.capacity}"
            raise InputError("room for at least one token in a cell", found, "rules.cell_multiple")
        experts, ranks = self.window.num_experts, self.topology.ep
        if self.window.num_layers and experts % ranks:
            raise InputError(
                "experts that the EP ranks share evenly", f"{experts} experts on {ranks} ranks", "topology.ep"
            )
        _ = self.items, self.scale  # every mistake is found here, not in a solver

    @cached_property
    def aligned(self) -> IntArray:
        """Aligned lengths t_i: raw lengths rounded up to `length_multiple`, int64 (N,)."""
        multiple = self.rules.length_multiple
        return frozen(-(-self.window.lengths // multiple) * multiple)

    @property
    def cell_cap(self) -> int:
        """Tokens a cell may hold: C - C mod `cell_multiple`."""
        return self.capacity - self.capacity % self.rules.cell_multiple

    @cached_property
    def items(self) -> Items:
        """The items of the window under `same_cell` and `oversize`."""
        return build_items(self.aligned, self.cell_cap, self.capacity, self.window.lengths, self.rules)

    @cached_property
    def counts(self) -> npt.NDArray[np.int32]:
        """Counts a[i,l,e] with the routing of alignment pads added, int32 (N, L, E)."""
        return add_pads(self.window, self.aligned - self.window.lengths, self.rules.pad_routing)

    @cached_property
    def item_counts(self) -> npt.NDArray[np.int32]:
        """Counts summed over the samples of every item, int32 (M, L, E)."""
        return self.items.sum_by_item(self.counts)

    @cached_property
    def loads(self) -> IntArray:
        """Window load L[l,e] with pads, int64 (L, E)."""
        return frozen(self.counts.sum(axis=0, dtype=np.int64))

    @cached_property
    def scale(self) -> int:
        """S: the smallest power of ten up to 10^6 that makes every coefficient whole."""
        values = [value for stage in self.stages for value in stage.decimals]
        wanted = next(
            s for s in _powers() if s == _LARGEST_SCALE or all(v * s == (v * s).to_integral() for v in values)
        )
        for scale in [s for s in reversed(list(_powers())) if s <= wanted]:
            if any(abs(_times(v, scale) - v * scale) > _TOLERATED_CHANGE * v * scale for v in values):
                break
            if self._largest_score(scale) < _SCORE_LIMIT:
                if scale != wanted:
                    text = f"coefficients rounded to 1/{scale}, not 1/{wanted}, so that scores fit 63 bits"
                    warnings.warn(text, stacklevel=3)
                return scale
        bound = self._largest_score(wanted)
        number = f"{bound}" if bound < 10**24 else f"{Decimal(bound):.3E}"  # some are too large for a float
        found = f"{number} (scale {wanted}, capacity {self.capacity})"
        remedy = "Use smaller coefficients, or fewer decimals"
        raise InputError(f"a bound on the score below 2^62 = {_SCORE_LIMIT}", found, "stages", remedy)

    def _largest_score(self, scale: int) -> int:
        """Bound on every component of every layout."""
        alpha = sum(_times(Decimal(repr(s.alpha)), scale) for s in self.stages)
        beta = sum(_times(Decimal(repr(s.beta)), scale) for s in self.stages)
        tokens, squares = int(self.items.tokens.sum()), sum(map(int, self.items.squares))
        routed = int(self.loads.sum())
        return self.capacity * tokens * alpha + squares * beta + scale * self.capacity * routed

    @cached_property
    def linear(self) -> IntArray:
        """Scaled work per token of every stage: alpha * S * C, int64 (stages,)."""
        return self._coefficients([s.alpha for s in self.stages], self.capacity)

    @cached_property
    def quadratic(self) -> IntArray:
        """Scaled work per squared token of every stage: beta * S, int64 (stages,)."""
        return self._coefficients([s.beta for s in self.stages], 1)

    def _coefficients(self, values: list[float], factor: int) -> IntArray:
        scaled = [_times(Decimal(repr(v)), self.scale) * factor for v in values]
        return frozen(np.array(scaled, np.int64))

    @property
    def expert_unit(self) -> int:
        """Scaled work of one routed assignment on the busiest rank: S * C."""
        return self.scale * self.capacity

    @property
    def denominator(self) -> int:
        """C^2 * S: what scaled scores are divided by."""
        return self.capacity * self.capacity * self.scale

    @cached_property
    def digest(self) -> str:
        """SHA-256 of everything a plan depends on."""
        texts = [
            self.rows_digest,
            self.window.digest,
            repr(self.topology.shards),
            str(self.topology.ep),
            str(self.scale),
        ]
        texts += [f"{s.name}:{s.alpha!r}:{s.beta!r}" for s in self.stages]
        texts += [repr(self.rules.pad_routing), self.rules.row_order]
        texts.append(str(self.window.model.top_k if self.window.model else None))  # the routing of pads
        if self.topology.ranks_per_node is not None:
            texts.append(f"nodes of {self.topology.ranks_per_node}")
        return digest(["problem", *texts, self.aligned, self.items.of_sample])

    @cached_property
    def rows_digest(self) -> str:
        """SHA-256 of what the row count depends on; a row certificate is tied to it."""
        rules, items = self.rules, self.items
        limits: list[Any] = [
            self.topology.dp,
            self.capacity,
            self.cell_cap,
            rules.min_rows,
            rules.row_multiple,
        ]
        limits += [rules.equal_samples_per_slot, rules.max_samples_per_cell]
        return digest(
            ["rows", repr(limits), items.tokens, items.samples, items.row_class, items.alone.astype(np.int64)]
        )


def _powers() -> tuple[int, ...]:
    return tuple(10**k for k in range(7))


def _times(value: Decimal, scale: int) -> int:
    return int((value * scale).to_integral_value(rounding=ROUND_HALF_EVEN))
