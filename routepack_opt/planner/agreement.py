"""One plan on many ranks: planned once, sent to all, compared by digest.

Guarantees: either every rank returns a plan of the same hash, or every rank returns its fallback and says
why; nothing that a rank sends or fails to send raises.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable

from routepack_opt.plans import Plan

#: Sends bytes to all ranks and returns those of every rank, in rank order; a collective call.
Gather = Callable[[bytes], list[bytes]]


def agree(plan: Plan | None, gather: Gather, fallback: Callable[[str], Plan]) -> Plan:
    """Make all ranks run the same plan.

    Parameters
    ----------
    plan : Plan or None
        This rank's plan. Where only some ranks have one, that of the lowest is sent to the others; where all
        have one (each planned for itself), they are compared.
    gather : callable
        All-gather of bytes, for instance :func:`routepack_opt.integrations.collective.gather_over`.
    fallback : callable
        Builds what to run instead from the reason; it must be the same on all ranks.

    Returns
    -------
    Plan
    """
    try:
        return _agree(plan, gather, fallback)
    except Exception as error:  # a rank that is gone shows as whatever the communication library raises
        return fallback(f"the ranks could not agree: {type(error).__name__}: {error}")


def _agree(plan: Plan | None, gather: Gather, fallback: Callable[[str], Plan]) -> Plan:
    hashes = _hashes(plan, gather)
    holders = [rank for rank, text in enumerate(hashes) if text]
    if not holders:
        return fallback("no rank has a plan")
    if len(holders) < len(hashes):
        payload = _packed(plan) if plan is not None else b""
        sent = gather(payload)[holders[0]]
        trouble = ""
        try:
            plan = _unpacked(sent)
        except Exception as error:
            plan, trouble = None, f" ({type(error).__name__}: {error})"
        hashes = _hashes(plan, gather)
        if "" in hashes:
            return fallback(f"rank {hashes.index('')} could not read the plan{trouble}")
    if len(set(hashes)) > 1 or plan is None:
        other = next(rank for rank, text in enumerate(hashes) if text != hashes[0])
        return fallback(
            f"the ranks have different plans: rank 0 {hashes[0][:12]}, rank {other} {hashes[other][:12]}"
        )
    return plan


def _hashes(plan: Plan | None, gather: Gather) -> list[str]:
    return [part.decode() for part in gather(plan.hash.encode() if plan is not None else b"")]


def _packed(plan: Plan) -> bytes:
    """Return the plan's file: what arrives is checked against its hash."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.npz")
        plan.save(path)
        with open(path, "rb") as file:
            return file.read()


def _unpacked(payload: bytes) -> Plan:
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "plan.npz")
        with open(path, "wb") as file:
            file.write(payload)
        return Plan.load(path)
