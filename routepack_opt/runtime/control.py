"""The control group: all ranks agree, or all of them learn who does not and why.

Guarantees: a vote either returns on every rank with the same answer or raises within the timeout; a rank that
fails still votes, so that the others do not wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from routepack_opt.errors import RoutePackError

__all__ = ["Control", "MaterializeError"]

_DIGEST: Final = 32
_RECORD: Final = 512


class MaterializeError(RoutePackError):
    """Experts were not moved; the message says which ranks refused and what was committed before."""


class Control:
    """A group of CPU ranks with a short timeout, apart from the groups that carry the data.

    Parameters
    ----------
    ranks : sequence of int, optional
        Global ranks that move experts together (those of one pipeline stage); None is all. Every process of
        the job must construct it, in the same order, as for `torch.distributed.new_group`. Without an
        initialized process group it is a group of one.
    timeout : float
        Seconds after which a missing rank is an error.
    """

    def __init__(self, ranks: Sequence[int] | None = None, timeout: float = 60.0) -> None:
        self.timeout = timeout
        self.group: Any = None
        if dist.is_initialized():
            chosen = None if ranks is None else list(ranks)
            self.group = dist.new_group(chosen, backend="gloo", timeout=timedelta(seconds=timeout))

    def arrive(self, stage: str) -> None:
        """Wait for all ranks; the lowest one can name those that do not come.

        Raises
        ------
        MaterializeError
            When a rank does not come within the timeout.
        """
        if self.group is None:
            return
        try:
            dist.monitored_barrier(self.group, timedelta(seconds=self.timeout), wait_all_ranks=True)
        except RuntimeError as error:
            raise MaterializeError(f"{self._missing(stage)} ({error})") from error

    def agree(self, stage: str, digest: bytes, failure: str | None = None) -> None:
        """Vote: every rank is well and has the same digest.

        Parameters
        ----------
        stage : str
            What is voted on, for messages.
        digest : bytes
            32 bytes that must be equal on all ranks.
        failure : str, optional
            Why this rank votes no.

        Raises
        ------
        MaterializeError
            On every rank, when one failed, is missing, or has another digest.
        """
        text = (failure or "").encode()[: _RECORD - _DIGEST - 1]
        record = bytes([failure is not None]) + digest.ljust(_DIGEST, b"\0") + text
        mine = torch.frombuffer(bytearray(record.ljust(_RECORD, b"\0")), dtype=torch.uint8)
        if self.group is None:
            return self._judge(stage, [0], [bytes(mine.tolist())])
        members = dist.get_process_group_ranks(self.group)
        everyone = torch.empty(len(members) * _RECORD, dtype=torch.uint8)
        try:
            # To everyone at once: one exchange takes half as long as a ring of them.
            dist.all_to_all_single(everyone, mine.repeat(len(members)), group=self.group)
        except RuntimeError as error:
            own = f"; this rank failed itself: {failure}" if failure else ""
            raise MaterializeError(self._missing(stage) + own) from error
        return self._judge(stage, members, [bytes(row.tolist()) for row in everyone.view(-1, _RECORD)])

    def _missing(self, stage: str) -> str:
        return (
            f"{stage}: a rank died or did not come within {self.timeout:g} s. Nothing of it was committed "
            "here, but the process groups are unusable now; restart the job from its last checkpoint"
        )

    @staticmethod
    def _judge(stage: str, members: Sequence[int], records: list[bytes]) -> None:
        """Come to the same verdict on every rank, because all see the same records."""
        refused = [
            f"rank {rank}: {record[1 + _DIGEST :].rstrip(bytes(1)).decode(errors='replace')}"
            for rank, record in zip(members, records, strict=True)
            if record[0]
        ]
        if refused:
            raise MaterializeError(f"{stage}: refused by {'; '.join(refused[:4])}")
        groups: dict[bytes, list[int]] = {}
        for rank, record in zip(members, records, strict=True):
            groups.setdefault(record[1 : 1 + _DIGEST], []).append(rank)
        if len(groups) > 1:
            parties = "; ".join(f"ranks {ranks[:8]} have {key.hex()[:12]}" for key, ranks in groups.items())
            raise MaterializeError(
                f"{stage}: the ranks disagree ({parties}); give all of them the same placement"
            )
