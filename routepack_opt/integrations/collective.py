"""Process groups of `torch.distributed` as the carrier of :func:`routepack_opt.planner.agreement.agree`.

Guarantees: works on any backend with object collectives; every rank of the group must call.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from routepack_opt.planner.agreement import Gather


def gather_over(group: Any = None) -> Gather:
    """Return an all-gather of bytes over a process group.

    Parameters
    ----------
    group : torch.distributed.ProcessGroup, optional
        A CPU (gloo) group with a short timeout is best; the default group when left out.
    """

    def gather(payload: bytes) -> list[bytes]:
        found: list[Any] = [None] * dist.get_world_size(group)
        dist.all_gather_object(found, payload, group=group)
        return found

    return gather
