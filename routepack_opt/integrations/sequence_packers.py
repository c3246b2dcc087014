"""Packers of the shape that NeMo RL defined and SkyRL took over: lengths in, bins of positions out.

Guarantees: a planned packer returns R*D bins row by row, none empty and none over the cap, so that bin k is
the cell of row k // D on rank k % D; without a plan it returns what the trainer's own packer returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from routepack_opt.integrations.own import Once
from routepack_opt.integrations.seam import Seam

Bins = list[list[int]]

#: Asked for every window: raw lengths where the packer only sees padded ones, routing, and rules.
Facts = Callable[[Sequence[int]], dict[str, Any]]


def planned_packer(seam: Seam, own: Any, facts: Facts | None = None) -> Any:
    """Return a packer that plans.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    own : SequencePacker or SeqPacker
        The trainer's packer with the trainer's arguments: base class, cap, bin multiple (D) and fallback.
    facts : callable, optional
        Takes the lengths and returns keywords of :meth:`Seam.plan`: ``lengths``, ``routing``, rules.

    Returns
    -------
    object
        Of a class derived from that of `own`, so that everything but `_pack_implementation` is the trainer's.
    """
    kind = type(own)

    class PlannedPacker(kind):  # type: ignore[misc, valid-type]
        """The trainer's packer with planned bins."""

        def _pack_implementation(self, sequence_lengths: Sequence[int]) -> Bins:
            call: Once[Bins] = Once(lambda: kind._pack_implementation(self, list(sequence_lengths)))
            dp = int(self.bin_count_multiple or 1)
            wanted: dict[str, Any] = {"lengths": sequence_lengths}
            try:
                wanted |= facts(sequence_lengths) if facts is not None else {}
            except Exception as error:
                seam.fail(error)
                return call()
            found = seam.plan(
                dp=dp,
                capacity=self.bin_capacity,
                own=lambda: _rows(self._adjust_bin_count(call()), dp),
                min_rows=-(-int(self.min_bin_count or 1) // dp),
                **wanted,
            )
            return call() if found is None else [list(cell) for row in found.cells for cell in row]

    packer = PlannedPacker.__new__(PlannedPacker)
    packer.__dict__.update(own.__dict__)
    return packer


def _rows(bins: Bins, dp: int) -> list[Bins]:
    return [bins[k : k + dp] for k in range(0, len(bins), dp)]
