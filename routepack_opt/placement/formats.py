"""Placements in the formats of other systems, both ways.

Guarantees: a map with a missing, repeated or unknown expert is refused with its layer and slot; reading what
was written gives the same placement; maps with replicas are refused, never thinned out. JSON and YAML are
parsed as data only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, whole_numbers
from routepack_opt.errors import FormatError, InputError
from routepack_opt.model import MoEModel
from routepack_opt.placement.decode import decoded_json, decoded_yaml
from routepack_opt.placement.maps import Placement
from routepack_opt.placement.rows import (
    as_rows,
    check_count,
    field,
    ordered_by_index,
    pick_moe_rows,
    with_dense_rows,
)


def from_phy2log(phy2log: Any, ranks: int) -> Placement:
    """Return the placement of an EPLB map without replicas.

    Parameters
    ----------
    phy2log : array_like of int, shape [layers, slots]
        Logical expert in each physical slot.
    ranks : int
        Expert-parallel ranks; rank p owns the p-th block of slots.
    """
    return Placement.from_expert_of_slot(as_rows(phy2log, "phy2log"), ranks)


def to_phy2log(placement: Placement) -> tuple[IntArray, IntArray, IntArray]:
    """Return what EPLB returns: phy2log [L, E], log2phy [L, E, 1] and the replica counts [L, E], all 1."""
    log2phy = placement.slot_of_expert[:, :, None].copy()
    return placement.expert_of_slot.copy(), log2phy, np.ones_like(placement.slot_of_expert)


def from_sglang(source: Any, ranks: int, model: MoEModel | None = None) -> Placement:
    """Return the placement of an SGLang expert location with ``physical_to_logical_map``.

    Parameters
    ----------
    source : mapping, JSON text, or path
        The decoded object, the text, or a ``.json`` file of it. Decode a ``.pt`` file first and pass the
        mapping.
    ranks : int
        Expert-parallel ranks.
    model : MoEModel, optional
        When the map has a row for every decoder layer, keeps the rows of the MoE layers.
    """
    table = field(decoded_json(source), "physical_to_logical_map", "SGLang expert location")
    rows = pick_moe_rows(as_rows(table, "physical_to_logical_map"), model, "physical_to_logical_map")
    return Placement.from_expert_of_slot(rows, ranks)


def to_sglang(placement: Placement, model: MoEModel | None = None) -> dict[str, list[list[int]]]:
    """Return an SGLang expert location; with a model, dense layers get identity rows."""
    return {"physical_to_logical_map": with_dense_rows(placement.expert_of_slot, model)}


def from_ascend(source: Any) -> Placement:
    """Return the placement of a vllm-ascend expert map (mapping, JSON text or path).

    The devices of a layer are its ranks; layers are taken by ``layer_id`` and devices by ``device_id``.
    """
    data = decoded_json(source)
    layers = ordered_by_index(field(data, "layer_list", "expert map"), "layer_id", "layer_list")
    check_count(data, "moe_layer_count", len(layers), "layer_list")
    rows = [_rows_of_devices(layer, f"layer_list[{index}]") for index, layer in enumerate(layers)]
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            found = f"{len(row)} in layer_list[{index}]"
            raise FormatError(f"{len(rows[0])} devices in every layer", found, "layer_list")
    slots = [[expert for device in row for expert in device] for row in rows]
    return Placement.from_expert_of_slot(as_rows(slots, "layer_list"), len(rows[0]) if rows else 1)


def _rows_of_devices(layer: Any, where: str) -> list[list[Any]]:
    devices = ordered_by_index(field(layer, "device_list", where), "device_id", f"{where}.device_list")
    check_count(layer, "device_count", len(devices), f"{where}.device_list")
    experts = [field(device, "device_expert", f"{where}.device_list") for device in devices]
    for position, held in enumerate(experts):
        if not isinstance(held, list):
            raise FormatError("a list of experts", f"{held!r} at device {position}", where)
        if len(held) != len(experts[0]):
            found = f"{len(held)} at device {position}"
            raise FormatError(f"{len(experts[0])} experts on every device", found, where)
    return experts


def to_ascend(placement: Placement) -> dict[str, Any]:
    """Return a vllm-ascend expert map."""
    devices = to_rank_lists(placement).tolist()
    layers = [
        {
            "layer_id": layer,
            "device_count": placement.ranks,
            "device_list": [{"device_id": p, "device_expert": experts} for p, experts in enumerate(row)],
        }
        for layer, row in enumerate(devices)
    ]
    return {"moe_layer_count": placement.num_layers, "layer_list": layers}


def from_trtllm(source: Any, ranks: int) -> Placement:
    """Return the placement of a TensorRT-LLM load-balancer configuration.

    Parameters
    ----------
    source : mapping, YAML text, or path
        ``initial_global_assignments`` maps each MoE layer to the logical experts of its slots.
    ranks : int
        Expert-parallel ranks.

    Notes
    -----
    Needs PyYAML (the extra ``yaml``) unless `source` is a mapping. Layers are taken in rising order.
    """
    data = decoded_yaml(source)
    assignments = field(data, "initial_global_assignments", "load-balancer configuration")
    if not isinstance(assignments, Mapping):
        raise FormatError(
            "a mapping of layer to experts", type(assignments).__name__, "initial_global_assignments"
        )
    bad = [layer for layer in assignments if isinstance(layer, bool) or not isinstance(layer, int)]
    if bad:
        raise FormatError("layers as whole numbers", repr(bad[0]), "initial_global_assignments")
    rows = [assignments[layer] for layer in sorted(assignments)]
    table = as_rows(rows, "initial_global_assignments")
    check_count(data, "num_slots", table.shape[1], "initial_global_assignments")
    return Placement.from_expert_of_slot(table, ranks)


def to_trtllm(placement: Placement, model: MoEModel | None = None) -> str:
    """Return the YAML text of a TensorRT-LLM configuration, layers numbered as decoder layers of `model`."""
    layers = range(placement.num_layers) if model is None else model.moe_layers
    if len(layers) != placement.num_layers:
        raise InputError(f"{placement.num_layers} MoE layers", f"{len(layers)}", "model")
    rows = zip(layers, placement.expert_of_slot.tolist(), strict=True)
    lines = [f"  {layer}: [{', '.join(map(str, row))}]" for layer, row in rows]
    return "\n".join([f"num_slots: {placement.num_experts}", "initial_global_assignments:", *lines]) + "\n"


def from_rank_lists(lists: Any) -> Placement:
    """Return the placement of Megatron's slot order: per layer and rank, the experts of its local slots.

    Parameters
    ----------
    lists : array_like of int, shape [layers, ranks, slots per rank]
        Local expert k of rank p is slot p * H + k.
    """
    table: IntArray = whole_numbers(lists, "slot order", shape=(None, None, None), low=-(2**62))
    layers, ranks, per_rank = table.shape
    return Placement.from_expert_of_slot(table.reshape(layers, ranks * per_rank), ranks)


def to_rank_lists(placement: Placement) -> IntArray:
    """Return Megatron's slot order, int64 [layers, ranks, slots per rank]."""
    shape = (placement.num_layers, placement.ranks, placement.slots_per_rank)
    return placement.expert_of_slot.reshape(shape).copy()
