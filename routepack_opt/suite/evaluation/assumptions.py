"""The coefficients of the step simulator, from the committed table ``accelerators.json``.

Guarantees: every number comes with a note on its source, which travels into the results; what is assumed
rather than published says so.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from routepack_opt.errors import InputError

_TABLE = Path(__file__).with_name("accelerators.json")

#: Coefficients whose effect is shown over a factor of two each way.
VARIED = ("attention_flops", "dense_flops", "expert_flops", "intra_node_bandwidth", "inter_node_bandwidth")


@dataclass(frozen=True)
class Coefficients:
    """What one device does per second.

    Parameters
    ----------
    attention_flops, dense_flops, expert_flops : float
        FLOP/s reached by attention, by dense and shared layers, and by routed experts.
    intra_node_bandwidth, inter_node_bandwidth : float
        Bytes per second that a rank sends inside its node, and to other nodes.
    exchange_latency : float
        Seconds that every exchange takes on top.
    backward_over_forward : float
        Arithmetic of the backward pass over that of the forward pass.
    element_bytes : int
        Bytes per element of a token that is sent.
    """

    attention_flops: float
    dense_flops: float
    expert_flops: float
    intra_node_bandwidth: float
    inter_node_bandwidth: float
    exchange_latency: float = 0.0
    backward_over_forward: float = 2.0
    element_bytes: int = 2

    def scaled(self, name: str, factor: float) -> Coefficients:
        """Return the coefficients with one of :data:`VARIED` multiplied."""
        changed: dict[str, Any] = {name: getattr(self, name) * factor}
        return replace(self, **changed)


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(_TABLE.read_text(encoding="utf-8"))
    return table


def accelerators() -> tuple[str, ...]:
    """Return the names of the accelerators in the table."""
    return tuple(_table()["accelerators"])


def assumptions_of(accelerator: str) -> dict[str, Any]:
    """Return the part of the table that a simulation on `accelerator` uses, with sources, ready for JSON.

    Raises
    ------
    InputError
        When the table does not hold the accelerator.
    """
    table = _table()
    if accelerator not in table["accelerators"]:
        raise InputError(" or ".join(accelerators()), repr(accelerator), "accelerator")
    device = {"name": accelerator, **table["accelerators"][accelerator]}
    return {"accelerator": device, "efficiency": table["efficiency"], "constants": table["constants"]}


def coefficients_of(assumptions: dict[str, Any]) -> Coefficients:
    """Multiply peaks and efficiencies out."""
    device, constants = assumptions["accelerator"], assumptions["constants"]
    share = {name: entry["value"] for name, entry in assumptions["efficiency"].items()}
    peak = device["peak_flops"]
    return Coefficients(
        attention_flops=peak * share["attention"],
        dense_flops=peak * share["dense"],
        expert_flops=peak * share["expert"],
        intra_node_bandwidth=device["intra_node_bandwidth"] * share["intra_node"],
        inter_node_bandwidth=device["inter_node_bandwidth"] * share["inter_node"],
        exchange_latency=constants["exchange_latency"]["value"],
        backward_over_forward=constants["backward_over_forward"]["value"],
        element_bytes=constants["element_bytes"]["value"],
    )
