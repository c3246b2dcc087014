"""Attention stages fitted to a profile by non-negative least squares.

Guarantees: coefficients and overheads are at least 0; a profile that cannot tell the terms apart is refused
rather than fitted; the residuals travel with the stages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError
from routepack_opt.stages.stage import AttentionStage, check_capacity, positive, rounded

Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StageFit(Sequence[AttentionStage]):
    """Fitted stages, in the order given, with how well they fit; usable wherever stages are.

    Parameters
    ----------
    stages : tuple of AttentionStage
        One per profiled stage.
    overhead_seconds : tuple of float
        Fitted constant per cell. It is the same for every layout with the same rows, so no stage holds it.
    relative_error : tuple of float
        Root-mean-square residual over root-mean-square time, per stage.
    worst_error : tuple of float
        Largest residual of a cell over its time, per stage.
    """

    stages: tuple[AttentionStage, ...]
    overhead_seconds: tuple[float, ...]
    relative_error: tuple[float, ...]
    worst_error: tuple[float, ...]

    @overload
    def __getitem__(self, index: int) -> AttentionStage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[AttentionStage, ...]: ...
    def __getitem__(self, index: int | slice) -> AttentionStage | tuple[AttentionStage, ...]:
        return self.stages[index]

    def __len__(self) -> int:
        return len(self.stages)

    def __iter__(self) -> Iterator[AttentionStage]:
        return iter(self.stages)


def fit_stages(
    tokens: Any,
    tokens_squared: Any,
    seconds: Any,
    *,
    capacity: int,
    assignment_seconds: float,
    name: str = "attention",
) -> StageFit:
    """Fit attention stages to the measured times of cells.

    Parameters
    ----------
    tokens : array_like, shape [cells]
        Token sum of each profiled cell.
    tokens_squared : array_like, shape [cells]
        Sum of squared lengths over the samples of each cell (not the square of the sum).
    seconds : array_like, shape [cells], or mapping of str to array_like
        Time of the stage on one DP slot, all its layers together; a mapping has one entry per stage.
    capacity : int
        Capacity C in tokens.
    assignment_seconds : float
        Time of one routed assignment through one expert on one EP rank, above 0.
    name : str, optional
        Name of the stage when `seconds` is one array.

    Returns
    -------
    StageFit
        Non-negative alpha and beta of Eq. 2 per stage, the constant per cell, and residuals.

    Raises
    ------
    InputError
        Lengths differ, a value is negative or not finite, or the cells are too few or too alike to tell
        the constant, the linear and the quadratic term apart.
    """
    positive(assignment_seconds, "assignment_seconds")
    columns = [_column(tokens, "tokens"), _column(tokens_squared, "tokens_squared")]
    columns = [np.ones_like(columns[0]), *columns]
    profiles = seconds if isinstance(seconds, Mapping) else {name: seconds}
    named = [(str(key), _column(value, f"seconds of {key!r}")) for key, value in profiles.items()]
    for where, column in [("tokens_squared", columns[2]), *((f"seconds of {k!r}", v) for k, v in named)]:
        if column.size != columns[1].size:
            raise InputError(f"{columns[1].size} cells as in tokens", f"{column.size}", where)
    design, scale = _normalised(columns)
    fits = [_solve(design, scale, column) for _, column in named]
    stages = tuple(
        _stage(key, linear, quadratic, check_capacity(capacity), assignment_seconds)
        for (key, _), (_, linear, quadratic, _, _) in zip(named, fits, strict=True)
    )
    overhead, _, _, relative, worst = zip(*fits, strict=True) if fits else ((),) * 5
    return StageFit(stages, overhead, relative, worst)


def _stage(name: str, linear: float, quadratic: float, capacity: int, assignment: float) -> AttentionStage:
    # Rounded before the stage sees them: what is below a millionth is noise of the solver, not a mistake of
    # the caller. Twelve digits keep every digit that a clock can give.
    alpha, beta = linear / assignment, capacity * quadratic / assignment
    return AttentionStage(name, rounded(float(f"{alpha:.12g}")), rounded(float(f"{beta:.12g}")))


def _column(values: Any, where: str) -> Float:
    column = np.asarray(values, dtype=np.float64)
    if column.ndim != 1:
        raise InputError("one value per cell, one axis", f"shape {column.shape}", where)
    bad = np.flatnonzero(~(np.isfinite(column) & (column >= 0)))
    if bad.size:
        raise InputError("finite values of at least 0", f"{column[bad[0]]} at cell {int(bad[0])}", where)
    return column


def _normalised(columns: list[Float]) -> tuple[Float, Float]:
    # Squared tokens are thousands of times larger than tokens: unit columns keep the solver well conditioned.
    design = np.stack(columns, axis=1)
    scale = np.sqrt((design**2).sum(axis=0))
    scale[scale == 0] = 1.0
    design = design / scale
    rank = int(np.linalg.matrix_rank(design, tol=1e-9)) if design.size else 0
    if rank < design.shape[1]:
        raise InputError(
            "cells whose constant, tokens and squared tokens are independent",
            f"{design.shape[0]} cells of rank {rank}",
            "profile",
            "Profile cells with several token sums, each packed with few long and with many short samples",
        )
    return design, scale


def _solve(design: Float, scale: Float, seconds: Float) -> tuple[float, float, float, float, float]:
    from scipy.optimize import nnls

    weights, norm = nnls(design, seconds)
    overhead, linear, quadratic = (float(w) for w in weights / scale)
    residual = np.abs(design @ weights - seconds)
    worst = float(
        np.max(residual / np.maximum(seconds, np.finfo(float).tiny), where=seconds > 0, initial=0.0)
    )
    total = float(np.sqrt((seconds**2).sum()))
    return overhead, linear, quadratic, float(norm) / total if total else 0.0, worst
