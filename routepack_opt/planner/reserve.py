"""How much of a deadline is kept for handing a plan over, learned from the windows before.

Guarantees: between `search.margin` and half of the deadline; grows at once with a late plan, shrinks slowly.
"""

from __future__ import annotations

from routepack_opt.planner.config import SearchConfig

_SLACK = 1.5  # times the worst overrun seen
_FORGET = 0.98  # per window
_MOST = 0.5  # of the deadline


class Reserve:
    """Seconds between the end of a search and the moment at which its plan must be there.

    Parameters
    ----------
    search : SearchConfig
        Deadline and least margin.
    """

    def __init__(self, search: SearchConfig) -> None:
        self._deadline, self._least = search.deadline or 0.0, (search.deadline or 0.0) * search.margin
        self._wanted = 0.0

    @property
    def seconds(self) -> float:
        """What to keep for the next window."""
        return max(self._least, min(self._wanted, _MOST * self._deadline))

    def ended(self, left: float | None) -> None:
        """Learn from a job that ended `left` seconds before (or, negative, after) it should have."""
        overrun = max(0.0, -left) if left is not None else 0.0
        self._wanted = max(_FORGET * self._wanted, _SLACK * overrun)

    def missed(self) -> None:
        """Learn from a plan that was not there in time."""
        self._wanted = 2 * self.seconds
