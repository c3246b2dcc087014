"""Verify a row certificate, and optionally repeat what its check has to trust with another solver.

Guarantees: without ``rerun`` this is :func:`routepack_opt.certificates.check` and nothing else; with it,
patterns are enumerated again by code of its own and every claim is solved again by HiGHS.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from routepack_opt.certificates import CheckReport, RowBound, RowCertificate, check, heaviest_cell
from routepack_opt.errors import CheckError
from routepack_opt.models.rows.arcflow import FlowModel, reflect
from routepack_opt.models.rows.export import export_rows, write_flow
from routepack_opt.solvers.highs import quiet_highs
from routepack_opt.solvers.highs_child import solve_file

if TYPE_CHECKING:
    from routepack_opt.problem import Problem


def verify(
    certificate: RowCertificate, problem: Problem, rerun: bool = False, time_limit: float = 60.0
) -> CheckReport:
    """Verify a row certificate independently of the code that produced it.

    Parameters
    ----------
    certificate : RowCertificate
    problem : Problem
    rerun : bool
        Repeat enumerations and solver claims with another solver.
    time_limit : float
        Seconds for the repetitions; what they do not reach stays trusted.

    Returns
    -------
    CheckReport

    Raises
    ------
    CheckError
        When a claim does not follow.
    InputError
        When the certificate belongs to another problem.
    """
    report = check(certificate, problem)
    if not rerun:
        return report
    deadline = time.monotonic() + time_limit
    trusted = []
    claims = [b for b in certificate.bounds if b.kind in ("enumeration", "solver-claim")]
    for bound, name in zip(claims, report.trusted, strict=True):
        repeat = _repeat_enumeration if bound.kind == "enumeration" else _repeat_claim
        if not repeat(bound, problem, deadline):
            trusted.append(name)
    return CheckReport(report.status, tuple(trusted))


def _repeat_claim(bound: RowBound, problem: Problem, deadline: float) -> bool:
    """Solve what a solver claims again with HiGHS; False when the time did not suffice."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.mps"
        if bound.details.get("model") == "branch and price":
            sizes, demand, cap = _sizes(bound, problem)
            write_flow(reflect(sizes, demand, cap), path, quiet_highs())
            return _more_than(int(bound.details["bins"]), path, bound, problem, deadline)
        excluded = [int(r) for r in bound.details.get("excluded", ())]
        for rows in excluded:
            export_rows(problem, rows, "mps", path)
            status = solve_file(path, max(0.1, deadline - time.monotonic())).status
            if status == "optimal":
                raise CheckError(f"row certificate: {rows} rows were claimed infeasible, HiGHS packs them")
            if status != "infeasible":
                return False
    # row counts below the first excluded one must be excluded by another bound of the certificate
    return bool(excluded) and max(excluded) == bound.rows - 1


def _sizes(bound: RowBound, problem: Problem) -> tuple[Any, Any, int]:
    """Distinct sizes of the class, decreasing, their demand, the capacity, by their common divisor."""
    items = problem.items
    mine = (items.row_class == bound.row_class) & ~items.alone
    unit = max(1, int(np.gcd.reduce(items.tokens[mine])))
    sizes, demand = np.unique(items.tokens[mine] // unit, return_counts=True)
    return sizes[::-1].copy(), demand[::-1].copy(), problem.cell_cap // unit


def _more_than(bins: int, path: Path, bound: RowBound, problem: Problem, deadline: float) -> bool:
    """Whether HiGHS finds that more than ``bins`` bins are needed, and one row less has no more of them."""
    alone = problem.items.alone & (problem.items.row_class == bound.row_class)
    if (bound.rows - 1) * problem.topology.dp - int(np.count_nonzero(alone)) > bins:
        raise CheckError(f"row certificate: {bins} bins are fewer than {bound.rows - 1} rows have")
    result = solve_file(path, max(0.1, deadline - time.monotonic()))
    if result.status == "infeasible":
        return True
    if result.status == "optimal" and result.objective is not None:
        if round(result.objective) <= bins:
            raise CheckError(f"row certificate: {bins} bins were claimed infeasible, HiGHS packs them")
        return True
    return False


def _repeat_enumeration(bound: RowBound, problem: Problem, deadline: float) -> bool:
    """Check the weights, list the patterns again and solve the cover with HiGHS."""
    sizes, demand, cap = _sizes(bound, problem)
    items, details = problem.items, bound.details
    mine = (items.row_class == bound.row_class) & ~items.alone
    unit = max(1, int(np.gcd.reduce(items.tokens[mine])))
    if bound.weights is None or bound.k is None:
        raise CheckError("row certificate: an enumeration without weights")
    by_size = {int(t) // unit: int(w) for t, w in zip(items.tokens[mine], bound.weights[mine], strict=True)}
    weights = [by_size[int(s)] for s in sizes]
    all_weights = np.array([by_size[int(t) // unit] for t in items.tokens[mine]])
    if not np.array_equal(all_weights, np.asarray(bound.weights)[mine]):
        raise CheckError("row certificate: items of one size differ in weight")
    heaviest = heaviest_cell(
        items.tokens[mine], items.samples[mine], all_weights, problem.cell_cap, None, bound.k
    )
    if heaviest > bound.k:
        raise CheckError(f"row certificate: K = {bound.k} claimed, a cell can weigh {heaviest}")
    bins = int(details["bins"])
    least = bound.k - (bins * bound.k - int(all_weights.sum()))
    patterns = _list(sizes.tolist(), demand.tolist(), weights, cap, least, deadline)
    if patterns is None:
        return False
    if len(patterns) != int(details["patterns"]):
        raise CheckError(f"row certificate: {details['patterns']} patterns claimed, {len(patterns)} exist")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cover.mps"
        write_flow(_cover(patterns, demand), path, quiet_highs())
        return _more_than(bins, path, bound, problem, deadline)


def _list(
    sizes: list[int], demand: list[int], weights: list[int], cap: int, least: int, deadline: float
) -> list[list[int]] | None:
    """Maximal patterns of at least the weight, by plain recursion; None when the time is up."""
    found: list[list[int]] = []
    last = len(sizes)

    def best_rest(j: int, room: int) -> float:
        # fractional: enough to cut, and nothing to trust
        density = max((weights[i] / sizes[i] for i in range(j, last) if sizes[i] <= room), default=0.0)
        return density * room

    def extend(j: int, room: int, weight: int, pattern: list[int]) -> bool:
        if time.monotonic() > deadline:
            return False
        if weight + best_rest(j, room) < least - 1e-6:
            return True
        if j == last:
            full = all(pattern[i] == demand[i] or sizes[i] > room for i in range(last))
            if full and weight >= least:
                found.append(pattern.copy())
            return True
        for copies in range(min(demand[j], room // sizes[j]), -1, -1):
            pattern[j] = copies
            if not extend(j + 1, room - copies * sizes[j], weight + copies * weights[j], pattern):
                return False
        pattern[j] = 0
        return True

    return found if extend(0, cap, 0, [0] * last) else None


def _cover(patterns: list[list[int]], demand: Any) -> FlowModel:
    """Cover MIP: fewest patterns that meet the demand."""
    grid = np.array(patterns, dtype=np.int64).reshape(len(patterns), len(demand))
    column, row = np.nonzero(grid)
    value = grid[column, row].astype(np.float64)
    infinite = np.full(len(demand), np.inf)
    return FlowModel(
        np.ones(len(patterns)), row, column, value, np.asarray(demand, dtype=np.float64), infinite
    )
