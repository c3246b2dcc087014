"""Errors of the package: each says what was expected, what was found, where, and how to fix it.

Guarantees: every error raised on purpose derives from :class:`RoutePackError`; every mistake of the
caller is also a :class:`ValueError`.
"""

from __future__ import annotations


class RoutePackError(Exception):
    """Base class of every error that the package raises on purpose."""


class InputError(RoutePackError, ValueError):
    """The caller gave something that cannot be used.

    Parameters
    ----------
    expected : str
        What would have been right.
    found : str
        What was given, with its value and index.
    where : str, optional
        The argument, field or file that holds it.
    remedy : str, optional
        What to do about it.
    """

    def __init__(
        self, expected: str, found: str, where: str | None = None, remedy: str | None = None
    ) -> None:
        self.expected, self.found, self.where, self.remedy = expected, found, where, remedy
        prefix = f"{where}: " if where else ""
        suffix = f". {remedy}" if remedy else ""
        super().__init__(f"{prefix}expected {expected}, found {found}{suffix}")

    def __reduce__(self) -> tuple[type[InputError], tuple[str, str, str | None, str | None]]:
        return type(self), (self.expected, self.found, self.where, self.remedy)


class FormatError(InputError):
    """A file is truncated, of another kind, or of a newer schema."""


class InfeasibleError(RoutePackError, ValueError):
    """No layout obeys the rules, whatever the row count.

    Parameters
    ----------
    rule : str
        The rule that binds, by its name in :class:`routepack_opt.LayoutRules` or the glossary.
    message : str
        The reason in the user's terms.
    """

    def __init__(self, rule: str, message: str) -> None:
        self.rule, self.message = rule, message
        super().__init__(f"infeasible ({rule}): {message}")

    def __reduce__(self) -> tuple[type[InfeasibleError], tuple[str, str]]:
        return type(self), (self.rule, self.message)


class CheckError(RoutePackError):
    """A certificate, plan or stored solution does not hold what it claims."""


class NoLayoutError(RoutePackError):
    """No layout was found in the time given, and none was excluded."""
