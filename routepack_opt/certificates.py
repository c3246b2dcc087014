"""Row certificates: what they hold, their file form, and their check in plain integers.

Guarantees: the check shares no code with the bounds and solvers that produce certificates, uses no
floating point and no solver, and raises :class:`~routepack_opt.errors.CheckError` on anything that does
not follow. What it must take on trust (a solver's word) it names in its report.

A lower bound of ``kind="weights"`` holds an integer weight for every item and an integer K such that no
set of items that may share a cell weighs more than K. Fewer than ``rows`` rows then have too little room
when the weights of all items sum to more than ``K * ((rows - 1) * D - alone)``, with ``alone`` the cells
that oversize samples have for themselves.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import CheckError, FormatError, InputError

if TYPE_CHECKING:
    from routepack_opt.problem import Problem

IntArray = NDArray[np.int64]
SCHEMA = 1
LARGEST_TABLE = 2**25  # tokens
MOST_UPDATES = 10**10
STATUSES = ("certified", "best_known", "infeasible", "unknown")
KINDS = ("rule", "weights", "slots", "enumeration", "solver-claim")


@dataclass(frozen=True)
class RowBound:
    """One proof that fewer than ``rows`` rows are impossible.

    Attributes
    ----------
    rows : int
        Row count below which nothing is feasible, before ``min_rows`` and ``row_multiple``.
    kind : str
        ``rule`` (follows from the rules and counts alone), ``weights``, ``slots`` (weights, counted per
        slot under ``equal_samples_per_slot``), ``enumeration`` or ``solver-claim``.
    source : str
        Which bound or solver found it, for people.
    row_class : int or None
        The class whose rows it bounds; None when it bounds the rows of the whole window.
    weights : int64[M] or None
        Weight of every item; items of other classes weigh nothing.
    k : int or None
        Most weight that one cell can hold.
    details : dict
        What else the kind needs: the threshold of ``slots``, slack and patterns of ``enumeration``, model,
        solver, version and log digest of ``solver-claim``.
    """

    rows: int
    kind: str
    source: str
    row_class: int | None = None
    weights: IntArray | None = None
    k: int | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RowCertificate:
    """The row count of a window, and how it is known.

    Attributes
    ----------
    rows : int or None
        Row count of ``packing``; None when no packing is held.
    lower_bound : int or None
        Proven least row count, after ``min_rows`` and ``row_multiple``.
    status : str
        ``certified``, ``best_known``, ``infeasible`` or ``unknown``.
    bounds : tuple of RowBound
        Evidence of ``lower_bound``.
    packing : int64[M] or None
        Evidence of ``rows``: flat cell ``r * D + d`` of every item; all ``rows * D`` cells are used.
    digest : str
        ``Problem.rows_digest`` of the problem it speaks of.
    stop : str
        Why the search stopped: ``proved``, ``time_limit``, ``exhausted`` (no stage left), ``interrupted``.
    rule, message : str or None
        The rule that binds and the explanation, when infeasible.
    dummies : int or None
        Dummy samples that would make an infeasible window feasible, where known.
    seconds : float
        Wall-clock time of the search.
    stages : tuple of (str, float)
        The stages that ran, with their seconds.
    """

    rows: int | None
    lower_bound: int | None
    status: str
    bounds: tuple[RowBound, ...]
    packing: IntArray | None
    digest: str
    stop: str
    rule: str | None = None
    message: str | None = None
    dummies: int | None = None
    seconds: float = 0.0
    stages: tuple[tuple[str, float], ...] = ()

    @property
    def evidence(self) -> dict[str, Any]:
        """Both sides in words: the kinds and sources of the lower bound, and what holds the rows."""
        lower = [
            {"kind": b.kind, "source": b.source, "rows": b.rows, "row_class": b.row_class}
            for b in self.bounds
        ]
        return {"lower": lower, "upper": None if self.packing is None else "packing"}

    def to_json(self) -> dict[str, Any]:
        """Give the JSON form (integers, strings and lists only, but for the seconds)."""
        record = {name: getattr(self, name) for name in self.__dataclass_fields__}
        record["bounds"] = [{n: _plain(getattr(b, n)) for n in b.__dataclass_fields__} for b in self.bounds]
        record["packing"] = _plain(self.packing)
        record["stages"] = [list(stage) for stage in self.stages]
        return {"kind": "routepack-row-certificate", "schema": SCHEMA, **record}

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> RowCertificate:
        """Read the JSON form back.

        Raises
        ------
        FormatError
            When it is another kind of file, of a newer schema, or broken.
        """
        if not isinstance(record, dict) or record.get("kind") != "routepack-row-certificate":
            raise FormatError("a row certificate", "another kind of JSON", "certificate")
        if record.get("schema") != SCHEMA:
            raise FormatError(
                f"schema {SCHEMA}", f"schema {record.get('schema')!r}", "certificate", "Update the package"
            )
        try:
            values = {name: record[name] for name in cls.__dataclass_fields__}
            values["bounds"] = tuple(
                RowBound(**{**b, "weights": _array(b["weights"])}) for b in record["bounds"]
            )
            values["packing"] = _array(record["packing"])
            values["stages"] = tuple((str(name), float(seconds)) for name, seconds in record["stages"])
            return cls(**values)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise FormatError("a complete row certificate", f"{error!r}", "certificate") from error

    def save(self, path: str | Path) -> None:
        """Write the certificate as JSON."""
        Path(path).write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> RowCertificate:
        """Read a certificate written by :meth:`save`; see :meth:`from_json` for errors."""
        try:
            record = json.loads(Path(path).read_text(encoding="utf-8"))
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise FormatError("a JSON file", f"{error}", str(path)) from error
        return cls.from_json(record)


@dataclass(frozen=True)
class CheckReport:
    """What a check established.

    Attributes
    ----------
    status : str
        The status that the certificate claims and the check confirms.
    trusted : tuple of str
        Claims taken on trust, because only a second solver run could confirm them; empty when everything
        was recomputed.
    """

    status: str
    trusted: tuple[str, ...] = ()


def check(certificate: RowCertificate, problem: Problem) -> CheckReport:
    """Check a row certificate against its problem, without solvers and without floating point.

    Parameters
    ----------
    certificate : RowCertificate
    problem : Problem

    Returns
    -------
    CheckReport

    Raises
    ------
    InputError
        When the certificate belongs to another problem.
    CheckError
        When anything that it claims does not follow.
    """
    if certificate.digest != problem.rows_digest:
        raise InputError(
            f"a certificate of the problem with digest {problem.rows_digest[:12]}",
            f"one of {certificate.digest[:12]}",
            "certificate",
            "Check it with the window, capacity, slots and rules that it was made for",
        )
    _require(certificate.status in STATUSES, f"unknown status {certificate.status!r}")
    proven, trusted = _proven_rows(certificate, problem)
    claimed = certificate.lower_bound
    _require(claimed is None or claimed <= proven, f"lower bound {claimed} claimed, {proven} follows")
    if certificate.packing is not None or certificate.rows is not None:
        _check_packing(certificate, problem)
    most = _most_rows(problem)
    if certificate.status == "certified":
        _require(certificate.rows is not None, "certified without a packing")
        _require(certificate.rows == claimed, "certified, but the rows differ from the lower bound")
    elif certificate.status == "best_known":
        _require(certificate.rows is not None, "best known without a packing")
    else:
        _require(certificate.rows is None, f"{certificate.status} with a packing")
    if certificate.status == "infeasible":
        _require(claimed is not None and claimed > most, f"infeasible, but up to {most} rows can be filled")
    return CheckReport(certificate.status, trusted)


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise CheckError(f"row certificate: {what}")


def _proven_rows(certificate: RowCertificate, problem: Problem) -> tuple[int, tuple[str, ...]]:
    """Least legal row count that the bounds prove, and what is taken on trust."""
    by_class = {int(c): 1 for c in np.unique(problem.items.row_class)}
    whole, trusted = 1, []
    for bound in certificate.bounds:
        _require(bound.kind in KINDS, f"unknown evidence {bound.kind!r}")
        if bound.kind in ("enumeration", "solver-claim"):
            trusted.append(f"{bound.kind} ({bound.source}): at least {bound.rows} rows")
        else:
            _check_bound(bound, problem)
        if bound.row_class is None:
            whole = max(whole, bound.rows)
        else:
            _require(bound.row_class in by_class, f"a bound on class {bound.row_class}, which has no item")
            by_class[bound.row_class] = max(by_class[bound.row_class], bound.rows)
    rules = problem.rules
    rows = max(whole, sum(by_class.values()), rules.min_rows)
    # a class that cannot fill its own rows makes every total infeasible
    counts = {c: int(np.count_nonzero(problem.items.row_class == c)) for c in by_class}
    if any(by_class[c] > counts[c] // problem.topology.dp for c in by_class):
        rows = max(rows, _most_rows(problem) + 1)
    return -(-rows // rules.row_multiple) * rules.row_multiple, tuple(trusted)


def _most_rows(problem: Problem) -> int:
    """Rows that can be filled without an empty cell, class by class."""
    _, counts = np.unique(problem.items.row_class, return_counts=True)
    return sum(int(count) // problem.topology.dp for count in counts)


def _check_packing(certificate: RowCertificate, problem: Problem) -> None:
    """Check that the packing is a layout of the claimed rows that obeys every rule."""
    items, rules, dp, rows = problem.items, problem.rules, problem.topology.dp, certificate.rows
    _require(
        certificate.packing is not None and rows is not None,
        "rows without a packing or a packing without rows",
    )
    assert certificate.packing is not None
    assert rows is not None
    cell = np.asarray(certificate.packing, dtype=np.int64)
    _require(
        rows >= max(1, rules.min_rows) and rows % rules.row_multiple == 0, f"{rows} rows break the row rules"
    )
    _require(cell.shape == (items.size,), f"{items.size} items, but a packing of {cell.size}")
    _require(bool((cell >= 0).all() and (cell < rows * dp).all()), "a cell outside the grid")
    members: list[list[int]] = [[] for _ in range(rows * dp)]
    for item, where in enumerate(cell.tolist()):
        members[where].append(item)
    tokens, samples = items.tokens.tolist(), items.samples.tolist()
    classes, alone = items.row_class.tolist(), items.alone.tolist()
    slot_samples, row_classes = [0] * dp, [set[int]() for _ in range(rows)]
    for where, group in enumerate(members):
        _require(bool(group), f"cell {divmod(where, dp)} is empty")
        if any(alone[i] for i in group):
            _require(len(group) == 1, f"cell {divmod(where, dp)}: an oversize sample has company")
        else:
            load = sum(tokens[i] for i in group)
            _require(
                load <= problem.cell_cap,
                f"cell {divmod(where, dp)} holds {load} of {problem.cell_cap} tokens",
            )
        count = sum(samples[i] for i in group)
        cap = rules.max_samples_per_cell
        _require(cap is None or count <= cap, f"cell {divmod(where, dp)} holds {count} of {cap} samples")
        slot_samples[where % dp] += count
        row_classes[where // dp].update(classes[i] for i in group)
    _require(all(len(c) == 1 for c in row_classes), "a row mixes classes")
    if rules.equal_samples_per_slot:
        _require(len(set(slot_samples)) == 1, f"samples per slot differ: {slot_samples}")


def _check_bound(bound: RowBound, problem: Problem) -> None:
    """Check one lower bound that needs no solver."""
    if bound.rows <= 1:
        return
    if bound.kind == "rule":
        _require(_rules_contradict(problem), f"the rules do not contradict each other ({bound.source})")
        return
    items, dp, k = problem.items, problem.topology.dp, bound.k
    _require(bound.weights is not None and k is not None, f"{bound.kind} without weights or K")
    assert bound.weights is not None
    assert k is not None
    weights = np.asarray(bound.weights, dtype=np.int64)
    _require(weights.shape == (items.size,), f"{items.size} items, but {weights.size} weights")
    _require(bool((weights >= 0).all()) and sum(weights.tolist()) < 2**62, "weights out of range")
    inside = np.ones(items.size, bool) if bound.row_class is None else items.row_class == bound.row_class
    _require(not weights[~inside].any(), "a weight on an item of another class")
    _require(not weights[items.alone].any(), "a weight on an oversize sample")
    _require(0 <= k < 2**62, "K out of range")
    packed = inside & ~items.alone
    heaviest = heaviest_cell(
        items.tokens[packed],
        items.samples[packed],
        weights[packed],
        problem.cell_cap,
        problem.rules.max_samples_per_cell,
        k,
    )
    _require(heaviest <= k, f"K = {k} claimed, a cell can weigh {heaviest}")
    alone = int(np.count_nonzero(inside & items.alone))
    if bound.kind == "slots":
        _check_slots(bound, problem, weights, k)
        return
    cells = (bound.rows - 1) * dp - alone
    total = sum(weights.tolist())
    _require(
        cells < 0 or total > k * cells, f"{bound.rows - 1} rows are not excluded: {total} <= {k} * {cells}"
    )


def _check_slots(bound: RowBound, problem: Problem, weights: IntArray, k: int) -> None:
    """Check the count per slot: a slot of R cells loses at most R*K - N/D samples.

    Every cell holds at most K minus the losses of its items, where an item's loss is its weight less its
    samples (K less its samples for an oversize sample), so the losses in one slot sum to at most
    ``R * K - N / D``. Too many items of at least ``threshold`` loss fit no D slots.
    """
    items, dp = problem.items, problem.topology.dp
    _require(
        problem.rules.equal_samples_per_slot and bound.row_class is None, "a count per slot without the rule"
    )
    losses = np.where(items.alone, k, weights) - items.samples
    _require(bool((losses >= 0).all()), "a weight under the samples of its item")
    threshold = int(bound.details.get("threshold", 0))
    samples = sum(items.samples.tolist())
    room = (bound.rows - 1) * k - samples // dp
    heavy = int(np.count_nonzero(losses >= threshold))
    fits = threshold >= 1 and room >= 0 and heavy <= dp * (room // threshold)
    _require(threshold >= 1 and not fits, f"the counts per slot do not exclude {bound.rows - 1} rows")


def _rules_contradict(problem: Problem) -> bool:
    """Whether counts alone show that no row count at all obeys the rules."""
    items, rules, dp = problem.items, problem.rules, problem.topology.dp
    samples, cap = items.samples.tolist(), rules.max_samples_per_cell
    if any(
        t > problem.cell_cap and not a
        for t, a in zip(items.tokens.tolist(), items.alone.tolist(), strict=True)
    ):
        return True
    if cap is not None and max(samples) > cap:
        return True
    return rules.equal_samples_per_slot and (sum(samples) % dp != 0 or max(samples) > sum(samples) // dp)


def heaviest_cell(
    tokens: IntArray, samples: IntArray, weights: IntArray, cap: int, max_samples: int | None, enough: int = 0
) -> int:
    """Most weight of a set of items that may share a cell, or an upper bound where that is too much work.

    Parameters
    ----------
    tokens, samples, weights : int64[M]
        Of the items, all non-negative.
    cap : int
        Tokens that a cell may hold.
    max_samples : int or None
        Samples that a cell may hold.
    enough : int
        An upper bound up to this size is good enough, and saves the table.

    Returns
    -------
    int
        By dynamic programming over tokens (and samples, unless that is too much work), one item size at a
        time; by the densest item where that is enough or the capacity too large for a table.
    """
    if not tokens.size:
        return 0
    densest = max(int(w) * cap // int(t) for w, t in zip(weights, tokens, strict=True))
    if densest <= enough or cap > LARGEST_TABLE:
        return densest
    unit = max(1, int(np.gcd.reduce(tokens)))
    cap, tokens = cap // unit, tokens // unit
    kinds, copies = np.unique(np.stack([tokens, samples, weights]), axis=1, return_counts=True)
    most_samples = int(samples.sum())
    limit = most_samples if max_samples is None else min(max_samples, most_samples)
    if limit >= most_samples or kinds.shape[1] * (cap + 1) * (limit + 1) > MOST_UPDATES:
        limit, kinds = 0, np.stack([kinds[0], np.zeros_like(kinds[1]), kinds[2]])
    best = np.zeros((limit + 1, cap + 1), dtype=np.int64)
    for (size, count, weight), many in zip(kinds.T.tolist(), copies.tolist(), strict=True):
        if weight == 0 or size > cap or count > limit:
            continue
        left, step = many, 1
        while left:
            take = min(step, left)
            left, step = left - take, step * 2
            width, height = size * take, count * take
            if width <= cap and height <= limit:
                window = best[height:, width:]
                np.maximum(window, best[: limit + 1 - height, : cap + 1 - width] + weight * take, out=window)
    return int(best[-1, -1])


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


def _array(values: list[int] | None) -> IntArray | None:
    if values is None:
        return None
    if not all(type(v) is int for v in values):
        raise FormatError("whole numbers", "something else", "certificate")
    return np.array(values, dtype=np.int64)
