"""The time a plan may take, with a reserve for what must still be done after the search.

Guarantees: asks an injected clock only, so that tests decide what time it is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from routepack_opt.errors import InputError


class Timer:
    """Measures a call against its deadline.

    Parameters
    ----------
    deadline : float, optional
        Seconds from now; None for a reproducible run.
    clock : callable
        Seconds from any origin.
    """

    def __init__(self, deadline: float | None, clock: Callable[[], float] = time.perf_counter) -> None:
        number = isinstance(deadline, (int, float)) and not isinstance(deadline, bool)
        if deadline is not None and not (number and math.isfinite(deadline) and deadline > 0):
            raise InputError("a positive number of seconds", repr(deadline), "deadline")
        self.clock = clock
        self.start = clock()
        self.limit = None if deadline is None else self.start + deadline
        self.reserve = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the call."""
        return self.clock() - self.start

    @property
    def stop(self) -> float | None:
        """Clock value at which the search must end; None for a reproducible run."""
        return None if self.limit is None else self.limit - self.reserve

    def late(self) -> bool:
        """Say whether the search must end now."""
        stop = self.stop
        return stop is not None and self.clock() >= stop

    def left(self, share: float = 1.0) -> float | None:
        """Seconds left for the search, times `share`; None for a reproducible run."""
        stop = self.stop
        return None if stop is None else max(stop - self.clock(), 0.0) * share
