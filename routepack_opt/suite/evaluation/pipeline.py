"""How long rows take to pass a pipeline: one-forward-one-backward, plain and interleaved.

Guarantees: every stage runs its operations in the order of the schedule, one at a time, each as soon as its
input is there; times are sums of the durations given. Sending activations between stages takes no time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError

Floats = npt.NDArray[np.float64]


class Operation(NamedTuple):
    """The forward or backward pass of one row through one chunk of layers."""

    backward: bool
    row: int
    chunk: int


def schedule(stages: int, chunks: int, rows: int, stage: int) -> list[Operation]:
    """Return the operations of a pipeline stage, in order.

    Parameters
    ----------
    stages, chunks : int
        Pipeline stages, and chunks of layers that each of them holds; more than one chunk is interleaved.
    rows : int
        R; a multiple of `stages` when interleaved.
    stage : int
        Which stage, from 0.

    Raises
    ------
    InputError
        When an interleaved schedule does not fit the rows.
    """
    if chunks > 1 and rows % stages:
        remedy = f"Set row_multiple={stages} in the rules"
        raise InputError(f"rows in a multiple of {stages} pipeline stages", f"{rows}", "rows", remedy)
    total = rows * chunks
    ahead = stages - stage - 1
    if chunks > 1:
        ahead = 2 * ahead + (chunks - 1) * stages
    ahead = min(ahead, total)
    forward = [_virtual(k, stages, chunks, backward=False) for k in range(total)]
    backward = [_virtual(k, stages, chunks, backward=True) for k in range(total)]
    steady = [op for pair in zip(forward[ahead:], backward, strict=False) for op in pair]
    return [*forward[:ahead], *steady, *backward[total - ahead :]]


def _virtual(k: int, stages: int, chunks: int, *, backward: bool) -> Operation:
    """Return the k-th operation of one kind: groups of `stages` rows pass chunk after chunk."""
    if chunks == 1:
        return Operation(backward, k, 0)
    group, position = divmod(k, stages * chunks)
    chunk, row = divmod(position, stages)
    return Operation(backward, group * stages + row, chunks - 1 - chunk if backward else chunk)


def makespan(forward: Floats, backward: Floats, stages: int) -> float:
    """Return the seconds until every row has passed the pipeline forward and backward.

    Parameters
    ----------
    forward, backward : numpy.ndarray of float64, shape (R, V)
        Seconds of every row on every virtual stage; virtual stage v is chunk ``v // stages`` of pipeline
        stage ``v % stages``.
    stages : int
        Pipeline stages; divides V.
    """
    rows, virtual = forward.shape
    orders = [schedule(stages, virtual // stages, rows, stage) for stage in range(stages)]
    ready = np.full((2, rows, virtual), np.nan)
    free, done = [0.0] * stages, [0] * stages
    left = sum(map(len, orders))
    while left:
        before = left
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                op = order[done[stage]]
                v = op.chunk * stages + stage
                start = _input(ready, op, v)
                if np.isnan(start):
                    break
                seconds = backward[op.row, v] if op.backward else forward[op.row, v]
                free[stage] = max(free[stage], start) + float(seconds)
                ready[int(op.backward), op.row, v] = free[stage]
                done[stage] += 1
                left -= 1
        assert left < before, "the schedule waits for itself"
    return max(free)


def _input(ready: Floats, op: Operation, v: int) -> float:
    """When the input of an operation is there; NaN while it is not known."""
    if not op.backward:
        return 0.0 if v == 0 else float(ready[0, op.row, v - 1])
    last = ready.shape[2] - 1
    return float(ready[0, op.row, v] if v == last else ready[1, op.row, v + 1])
