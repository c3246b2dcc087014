"""A column that tells every sample's row, for trainers that dispatch samples and pack again on each rank.

Guarantees: a rank either finds all planned rows of its samples, whole and in the planned order, or none; with
:func:`all_agree` the ranks of a group decide alike, and for the same number of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from routepack_opt.arrays import IntArray, frozen
from routepack_opt.layout import Layout

logger = logging.getLogger("routepack_opt")

#: Name of the column in the trainer's batch.
FIELD = "routepack_row"

#: What the column holds for every sample: its window, its row there; of the window the rows and the tokens of
#: the fullest cell; and how many samples of the window its slot has.
WIDTH = 5


def row_column(layouts: Sequence[Layout], windows: Sequence[Sequence[int]], lengths: Any) -> IntArray:
    """Return the column of a batch.

    Parameters
    ----------
    layouts : sequence of Layout
        One for each window.
    windows : sequence of sequences of int
        Batch positions of the samples of every window, in the order that the window was planned in.
    lengths : array_like of int, shape (N,)
        Tokens of every sample of the batch; each window's fullest cell is measured with them.

    Returns
    -------
    numpy.ndarray of int64, shape (N, 5)
        Zero for samples outside the windows.
    """
    tokens = np.asarray(lengths, np.int64)
    column = np.zeros((tokens.size, WIDTH), np.int64)
    for w, (layout, window) in enumerate(zip(layouts, windows, strict=True)):
        where = np.asarray(window, np.int64)
        filled = np.bincount(layout.cell_of_sample, weights=tokens[where])
        column[where, 0], column[where, 1] = w, layout.cell_of_sample // layout.dp
        column[where, 2], column[where, 3] = layout.rows, int(filled.max())
        slot = layout.cell_of_sample % layout.dp
        column[where, 4] = np.bincount(slot)[slot]
    return column


def slots_of(layouts: Sequence[Layout], windows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the batch positions of every slot, window by window and row by row."""
    dp = layouts[0].dp
    parts: list[list[int]] = [[] for _ in range(dp)]
    for layout, window in zip(layouts, windows, strict=True):
        for row in layout.cells:
            for slot, cell in enumerate(row):
                parts[slot].extend(int(window[i]) for i in cell)
    return parts


def rows_of(column: Any, capacity: int | None = None) -> list[list[int]] | None:
    """Return the planned rows among the samples of one rank.

    Parameters
    ----------
    column : tensor or array_like of int, shape (n, 5), or None
        The rank's part of :func:`row_column`, jagged or not; None where the trainer's batch has none.
    capacity : int, optional
        Tokens that this pass allows in a cell.

    Returns
    -------
    list of lists of int, or None
        Positions of every row's samples, window by window and row by row; None when a sample was not planned
        or is missing, or a cell of any rank is over `capacity`.
    """
    table = read_column(column)
    if table is None or not len(table) or (table[:, 2] < 1).any():
        return None
    if capacity is not None and int(table[:, 3].max()) > capacity:
        return None
    groups: list[list[int]] = []
    for window in np.unique(table[:, 0]):
        mine = np.flatnonzero(table[:, 0] == window)
        rows, wanted = table[mine, 1], int(table[mine[0], 2])
        if len(mine) != table[mine[0], 4] or not np.array_equal(np.unique(rows), np.arange(wanted)):
            return None
        groups += [mine[rows == r].tolist() for r in range(wanted)]
    return groups


def read_column(column: Any) -> IntArray | None:
    """Return a column as an array, or None when it is none, whatever a trainer has made of it."""
    try:
        parts = column.unbind() if getattr(column, "is_nested", False) else column
        if isinstance(parts, (list, tuple)):
            parts = np.stack([np.asarray(_on_host(each)) for each in parts])
        table = np.asarray(_on_host(parts)).astype(np.int64)
    except Exception:  # a rank that cannot read its rows tells the others that it has none
        return None
    return frozen(table) if table.ndim == 2 and table.shape[1] == WIDTH else None


def _on_host(value: Any) -> Any:
    return value.cpu() if hasattr(value, "cpu") else value


_told = [False]


def tell_own(column: Any) -> None:
    """Log, the first time in a process, that planned samples run in the trainer's own microbatches."""
    table = read_column(column)
    if table is not None and table[:, 2].any() and not _told[0]:
        _told[0] = True
        logger.warning(
            "this rank runs the trainer's own microbatches: a rank has not the whole rows of its plan, or "
            "the pass asks for other ones (later passes are not reported)"
        )


def all_agree(rows: Sequence[Any] | None, group: Any = None) -> bool:
    """Say whether every rank of a process group has rows, and as many; a collective call.

    Parameters
    ----------
    rows : sequence, or None
        What this rank would run.
    group : torch.distributed.ProcessGroup, optional
        The default group when left out. Where torch.distributed does not run, the rank decides alone.
    """
    import torch.distributed as dist

    from routepack_opt.integrations.collective import gather_over

    number = 0 if rows is None else len(rows)
    if not (dist.is_available() and dist.is_initialized()):
        return number > 0
    # Whatever this rank has, the others wait for its number.
    numbers = set(gather_over(group)(b"%d" % number))
    return numbers == {b"%d" % number} and number > 0
