"""Expert loads recorded by other systems, as int64 [layers, experts].

Guarantees: counts are summed in int64, nothing is averaged or scaled; physical counts are turned into
logical ones only with the map they were recorded under.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, whole_numbers
from routepack_opt.errors import FormatError
from routepack_opt.model import MoEModel
from routepack_opt.placement.decode import decoded_json
from routepack_opt.placement.rows import as_rows, field, pick_moe_rows


def loads_from_sglang(source: Any, model: MoEModel | None = None) -> IntArray:
    """Return the loads in an SGLang expert location or expert-distribution record.

    Parameters
    ----------
    source : mapping, JSON text, or path
        With ``logical_count`` [layers, experts] or [steps, layers, experts]; or a per-pass record with
        ``records``, each with ``global_physical_count`` [layers, slots], and the map they were counted
        under, ``last_physical_to_logical_map``.
        Decode a ``.pt`` file first and pass the mapping; tensors and arrays are both taken.
    model : MoEModel, optional
        When the counts have a row for every decoder layer, keeps the rows of the MoE layers.

    Returns
    -------
    ndarray of int64, shape [layers, experts]
        Summed over steps, passes and ranks.

    Raises
    ------
    InputError
        A count is negative or not whole, or shapes disagree.
    """
    data = decoded_json(source)
    if isinstance(data, Mapping) and "records" in data:
        summed = _summed_records(data)
    else:
        counts = np.asarray(field(data, "logical_count", "SGLang record"))
        if counts.ndim == 2:
            counts = counts[None]
        checked = whole_numbers(counts, "logical_count", shape=(None, None, None))
        summed = checked.sum(axis=0, dtype=np.int64)
    return pick_moe_rows(summed, model, "logical_count")


def _summed_records(data: Mapping[str, Any]) -> IntArray:
    where = "last_physical_to_logical_map"
    logical = as_rows(_as_lists(field(data, where, "per-pass record")), where)
    summed = np.zeros(logical.shape, dtype=np.int64)
    for position, record in enumerate(data["records"]):
        counts = field(record, "global_physical_count", f"records[{position}]")
        name = f"records[{position}].global_physical_count"
        summed += whole_numbers(np.asarray(counts), name, shape=logical.shape)
    experts = int(logical.max(initial=-1)) + 1
    if (logical < 0).any():
        layer, slot = (int(k) for k in np.argwhere(logical < 0)[0])
        raise FormatError("experts from 0", f"{logical[layer, slot]} at layer {layer}, slot {slot}", where)
    loads = np.zeros((logical.shape[0], experts), dtype=np.int64)
    np.add.at(loads, (np.arange(logical.shape[0])[:, None], logical), summed)
    return loads


def _as_lists(table: Any) -> Any:
    return table.tolist() if hasattr(table, "tolist") else table
