"""The trainer's own functions: run at most once, and put together where two stages make a layout.

Guarantees: what the trainer's function returns or raises is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Groups = list[list[int]]

#: Samples of a step above which a driver does not pack for all ranks just to compare: that takes seconds.
COMPARED = 1024

_MARK = "routepack_own"


class Once(Generic[T]):
    """A call that is made when it is first needed, and not again.

    Parameters
    ----------
    run : callable
        The call.
    """

    def __init__(self, run: Callable[[], T]) -> None:
        self._run, self._done = run, False
        self._value: Any = None
        self._error: Exception | None = None

    def __call__(self) -> T:
        """Return what the call returned, or raise what it raised."""
        if not self._done:
            self._done = True
            try:
                self._value = self._run()
            except Exception as error:
                self._error = error
        if self._error is not None:
            raise self._error
        value: T = self._value
        return value


def upstream(module: str, name: str) -> Any:
    """Import a function of a trainer now, not when the adapter is imported."""
    return getattr(import_module(module), name)


def swap(owner: Any, name: str, make: Callable[[Any], Any]) -> Any:
    """Put ``make(own)`` in the place of the function `name` of a module or class, once only; return it.

    Parameters
    ----------
    owner : module or class
        Where the trainer looks the function up.
    name : str
        Its name there.
    make : callable
        Takes the trainer's function and returns the replacement.
    """
    own = getattr(owner, name)
    if getattr(own, _MARK, None) is None:
        replacement = make(own)
        setattr(getattr(replacement, "__func__", replacement), _MARK, own)  # a staticmethod hides it
        setattr(owner, name, replacement)
        return replacement
    return own


def two_stages(
    slots: Sequence[Sequence[int]], pack: Callable[[Sequence[int], int], Groups], rows: int = 1
) -> list[list[list[int]]] | None:
    """Return the cells of trainers whose slots pack by themselves and repeat until their counts agree.

    Parameters
    ----------
    slots : sequence of D sequences of int
        Samples of every slot.
    pack : callable
        ``pack(samples, rows)`` returns at least so many groups of positions in `samples`.
    rows : int, default 1
        Fewest groups to start with.

    Returns
    -------
    list of R lists of D lists of int, or None
        ``cells[r][d]`` by window index; None when a slot has too few samples.
    """
    while all(len(slot) >= rows for slot in slots):
        packed = [pack(slot, rows) for slot in slots]
        most = max(len(groups) for groups in packed)
        if all(len(groups) == most for groups in packed):
            return [
                [[slot[i] for i in groups[r]] for slot, groups in zip(slots, packed, strict=True)]
                for r in range(most)
            ]
        rows = most
    return None
