"""The workers of verl: `prepare_micro_batches`, and the partitioner.

Guarantees: the workers of a group run the planned rows or, all of them, the trainer's own microbatches.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from routepack_opt.integrations.grouping import balanced_groups
from routepack_opt.integrations.own import Groups, swap
from routepack_opt.integrations.rowids import FIELD, all_agree, rows_of, tell_own

logger = logging.getLogger("routepack_opt")

Partitions = Callable[..., Groups]


def prepare_micro_batches(own: Callable[..., Any], tools: Any = None) -> Callable[..., Any]:
    """Return a replacement of `verl.workers.engine.utils.prepare_micro_batches`.

    Parameters
    ----------
    own : callable
        The trainer's function.
    tools : module, optional
        `verl.utils.tensordict_utils`.

    Notes
    -----
    Microbatches come in row order: the trainer's ordering by size, different on every rank, is left out.
    """

    def prepare(
        data: Any,
        dp_group: Any = None,
        num_batches_divided_by: int | None = None,
        same_micro_num_in_dp: bool = True,
        min_num_micro_batch: int | None = None,
        use_dynamic_bsz_balance: bool = True,
    ) -> tuple[list[Any], list[list[int]] | None]:
        tu = tools or import_module("verl.utils.tensordict_utils")
        try:
            rows = _planned_rows(data, tu, num_batches_divided_by, min_num_micro_batch)
        except Exception as error:  # the other ranks are told, and all pack as the trainer does
            logger.debug("this rank's rows cannot be read: %s", error)
            rows = None
        together = same_micro_num_in_dp and dp_group is not None
        agreed = all_agree(rows, dp_group) if together else rows is not None
        if rows is None or not agreed:
            tell_own(data.get(FIELD, None))
            return own(  # type: ignore[no-any-return]
                data,
                dp_group=dp_group,
                num_batches_divided_by=num_batches_divided_by,
                same_micro_num_in_dp=same_micro_num_in_dp,
                min_num_micro_batch=min_num_micro_batch,
                use_dynamic_bsz_balance=use_dynamic_bsz_balance,
            )
        return [tu.index_select_tensor_dict(data, row) for row in rows], rows

    return prepare


def _planned_rows(data: Any, tu: Any, multiple: int | None, least: int | None) -> Groups | None:
    """Return this rank's rows, when they keep what the call asks for."""
    if FIELD not in data or not tu.get_non_tensor_data(data=data, key="use_dynamic_bsz", default=True):
        return None
    parts = tu.get_non_tensor_data(data=data, key="sp_size", default=1)
    group = int(tu.get_non_tensor_data(data=data, key="force_group_size", default=1))
    rows = rows_of(data[FIELD], int(data["max_token_len_per_gpu"]) * int(parts))
    if rows is None or len(rows) % (multiple or 1) or len(rows) < (least or 1):
        return None
    together = all(
        row[k] // group == row[k - k % group] // group and len(row) % group == 0
        for row in rows
        for k in range(len(row))
    )
    return rows if together else None


def seqlen_balanced_partitions(own: Partitions) -> Partitions:
    """Return a replacement of `get_seqlen_balanced_partitions`, never more uneven, the same on all ranks."""

    def partitions(seqlen_list: Sequence[int], k_partitions: int, equal_size: bool) -> Groups:
        theirs = own(seqlen_list, k_partitions, equal_size)
        try:
            values = [int(v) for v in seqlen_list]
            return balanced_groups(values, k_partitions, equal=equal_size, own=theirs)
        except Exception:
            return theirs

    return partitions


def install_worker() -> None:
    """Let this worker's engines run planned rows; call it in every worker, before its engine is imported."""
    swap(import_module("verl.workers.engine.utils"), "prepare_micro_batches", prepare_micro_batches)
    for name, module in list(sys.modules.items()):
        if name.startswith("verl.workers.engine.") and hasattr(module, "prepare_micro_batches"):
            swap(module, "prepare_micro_batches", prepare_micro_batches)
