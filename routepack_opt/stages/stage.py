"""`AttentionStage`: one attention type and its linear and quadratic work (Eq. 2).

Guarantees: coefficients are finite and at least 0, and whole multiples of 10^-6: they are rounded once, here,
and the rounded values are the coefficients everywhere. The shortest decimal form of the float that holds one
is the value that the objective uses; a stage and its text form ``name:alpha:beta`` determine each other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any

from routepack_opt.errors import InputError

_FINEST = Decimal("0.000001")  # the objective scales coefficients by at most 10^6
_WHOLE = 2.0**53


@dataclass(frozen=True)
class AttentionStage:
    """Work of one attention type on a cell, alpha * T + beta * Q (Eqs. 2 and 11).

    T is the cell's token sum divided by the capacity C and Q the sum of (t / C)**2 over its samples. The
    stages of a model run one after another, so each has its own slowest slot (Eqs. 12-13).

    Parameters
    ----------
    name : str
        Name in tables and on the command line; not empty, without ``:`` and white space.
    alpha, beta : float, int or decimal str, optional
        Linear and quadratic coefficient, finite and at least 0, rounded half-even to six decimals. The unit
        of ``alpha / C`` is the time of one routed assignment through one expert on one EP rank.

    Raises
    ------
    InputError
        Names the field and its value; a coefficient above 0 that would round to 0 is refused, not dropped.
    """

    name: str
    alpha: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        if (
            not isinstance(self.name, str)
            or not self.name
            or ":" in self.name
            or self.name.split() != [self.name]
        ):
            raise InputError("a name without ':' and white space", repr(self.name), "stage name")
        object.__setattr__(self, "alpha", _kept(self.alpha, f"alpha of stage {self.name!r}"))
        object.__setattr__(self, "beta", _kept(self.beta, f"beta of stage {self.name!r}"))

    @classmethod
    def parse(cls, text: str) -> AttentionStage:
        """Return the stage written as ``name``, ``name:alpha`` or ``name:alpha:beta``.

        Raises
        ------
        InputError
            The text has another form, or a coefficient is not a number of at least 0.
        """
        name, *numbers = text.split(":")
        if len(numbers) > 2:
            raise InputError("NAME:ALPHA:BETA", repr(text), "stage")
        return cls(name, *(coefficient(number, f"stage {text!r}") for number in numbers))

    @classmethod
    def from_costs(
        cls, name: str, per_token: float, per_token_squared: float, capacity: int, assignment: float
    ) -> AttentionStage:
        """Return the stage of measured or counted costs.

        Parameters
        ----------
        name : str
            Name of the stage.
        per_token, per_token_squared : float
            Cost of the stage, all its layers together, on one DP slot: per token, and per squared token of a
            sample. Seconds or FLOPs, as long as `assignment` has the same unit.
        capacity : int
            Capacity C in tokens; beta is proportional to it.
        assignment : float
            Cost of one routed assignment through one expert on one EP rank, above 0.

        Returns
        -------
        AttentionStage
            alpha = per_token / assignment, beta = C * per_token_squared / assignment.
        """
        unit = positive(assignment, "assignment")
        linear, quadratic = (
            coefficient(per_token, "per_token"),
            coefficient(per_token_squared, "per_token_squared"),
        )
        return cls(name, linear / unit, check_capacity(capacity) * quadratic / unit)

    @property
    def decimals(self) -> tuple[Decimal, Decimal]:
        """Alpha and beta as the exact decimals a person would read, 0.1 and not 0.1000000000000000055."""
        return Decimal(repr(self.alpha)), Decimal(repr(self.beta))

    def __str__(self) -> str:
        return ":".join([self.name, *(f"{number.normalize():f}" for number in self.decimals)])


def coefficient(value: Any, where: str) -> float:
    """Return `value` as a finite float of at least 0, or raise with `where`."""
    number = math.nan
    if not isinstance(value, (bool, complex)):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number) or number < 0:
        raise InputError("a finite number of at least 0", repr(value), where)
    return number + 0.0  # turns -0.0 into 0.0, which would otherwise print and hash apart


def rounded(value: float) -> float:
    """Round half-even to the six decimals that the objective keeps, from the shortest decimal form."""
    if value >= _WHOLE:  # the float spacing is 1 or more there, and quantize would run out of digits
        return value
    return float(Decimal(repr(value)).quantize(_FINEST, rounding=ROUND_HALF_EVEN))


def _kept(value: Any, where: str) -> float:
    exact = coefficient(value, where)
    kept = rounded(exact)
    if exact > 0 and kept == 0:
        remedy = "Give 0 to leave the term out: coefficients are kept to six decimals"
        raise InputError(f"0 or at least {_FINEST}", repr(value), where, remedy)
    return kept


def positive(value: Any, where: str) -> float:
    """Return `value` as a finite float above 0, or raise with `where`."""
    number = coefficient(value, where)
    if number == 0:
        raise InputError("a finite number above 0", repr(value), where)
    return number


def check_capacity(capacity: Any) -> int:
    """Return `capacity` as a whole number of at least 1, or raise."""
    number = positive(capacity, "capacity")
    if number != int(number):
        raise InputError("a whole number of tokens", repr(capacity), "capacity")
    return int(number)
