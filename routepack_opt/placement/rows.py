"""Rows of maps as they come from files: ragged lists, dense layers, records in any order.

Guarantees: every fault is named with the layer and position that holds it; rows are never padded or cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, whole_numbers
from routepack_opt.errors import FormatError, InputError
from routepack_opt.model import MoEModel


def as_rows(rows: Any, where: str) -> IntArray:
    """Return `rows` as int64 [layers, slots]; a short row is refused with an expert it lacks."""
    if isinstance(rows, Sequence) and not isinstance(rows, (str, bytes)):
        for layer, row in enumerate(rows):
            if not isinstance(row, (Sequence, np.ndarray)) or isinstance(row, (str, bytes)):
                raise FormatError("a list of experts per layer", f"{row!r} at layer {layer}", where)
        size = max((len(row) for row in rows), default=0)
        for layer, row in enumerate(rows):
            if len(row) != size:
                missing = sorted(set(range(size)) - {e for e in row if isinstance(e, (int, np.integer))})
                found = f"{len(row)} at layer {layer}, which lacks expert {missing[0]}"
                raise FormatError(f"{size} slots in every layer", found, where)
            for slot, expert in enumerate(row):
                if isinstance(expert, bool) or not isinstance(expert, (int, np.integer)):
                    raise FormatError("whole numbers", f"{expert!r} at layer {layer}, slot {slot}", where)
        rows = [list(row) for row in rows] if rows else np.zeros((0, 0), dtype=np.int64)
    table: IntArray = whole_numbers(rows, where, shape=(None, None), low=-(2**62))
    return table


def ordered_by_index(records: Any, key: str, where: str) -> list[Mapping[str, Any]]:
    """Return `records` by rising `key`, which must count up without gaps or repeats."""
    if not isinstance(records, Sequence) or isinstance(records, (str, bytes)):
        raise FormatError("a list", type(records).__name__, where)
    found: dict[int, Mapping[str, Any]] = {}
    for position, record in enumerate(records):
        index = record.get(key) if isinstance(record, Mapping) else None
        if isinstance(index, bool) or not isinstance(index, int):
            raise FormatError(f"an object with a whole {key}", f"{record!r}"[:80], f"{where}[{position}]")
        if index in found:
            raise FormatError(f"every {key} once", f"{key} {index} again", f"{where}[{position}]")
        found[index] = record
    first = min(found, default=0)
    for index in range(first, first + len(found)):
        if index not in found:
            raise FormatError(f"{key}s {first}..{first + len(found) - 1}", f"no {key} {index}", where)
    return [found[index] for index in sorted(found)]


def pick_moe_rows(table: IntArray, model: MoEModel | None, where: str) -> IntArray:
    """Return the rows of the MoE layers of a table that has one row per decoder or per MoE layer."""
    if model is None or table.shape[0] == model.num_moe_layers:
        return table
    if table.shape[0] == model.layers:
        return table[list(model.moe_layers)]
    expected = f"{model.num_moe_layers} MoE layers or {model.layers} decoder layers"
    raise InputError(expected, f"{table.shape[0]} rows", where)


def with_dense_rows(expert_of_slot: IntArray, model: MoEModel | None) -> list[list[int]]:
    """Return the rows as lists; with a model, one per decoder layer and the identity at dense ones."""
    if model is None:
        return [list(map(int, row)) for row in expert_of_slot]
    if expert_of_slot.shape[0] != model.num_moe_layers:
        raise InputError(f"{model.num_moe_layers} MoE layers", f"{expert_of_slot.shape[0]}", "model")
    table = np.tile(np.arange(expert_of_slot.shape[1]), (model.layers, 1))
    table[list(model.moe_layers)] = expert_of_slot
    return [list(map(int, row)) for row in table]


def field(data: Any, name: str, where: str) -> Any:
    """Return entry `name` of a mapping, or raise with the names that are there."""
    if not isinstance(data, Mapping):
        raise FormatError(f"an object with {name!r}", type(data).__name__, where)
    if name not in data:
        raise FormatError(
            f"an object with {name!r}", f"only {', '.join(map(repr, data)) or 'nothing'}", where
        )
    return data[name]


def check_count(data: Mapping[str, Any], name: str, count: int, where: str) -> None:
    """Raise when a file states a `count` other than what it holds; not stating it is fine."""
    if name in data and data[name] != count:
        raise FormatError(f"{name} = {data[name]!r} of them", f"{count}", where)
