"""Every kind of evidence is checked, survives a file, and is rejected after any tampering."""

import dataclasses
import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from rows_cases import row_problem, small_problems

from routepack_opt.bounds.rows import WeightBound
from routepack_opt.certificates import RowBound, RowCertificate, check
from routepack_opt.errors import CheckError, FormatError, InputError
from routepack_opt.solvers.rows import certify_rows, verify
from routepack_opt.solvers.rows.columns.generate import generate
from routepack_opt.solvers.rows.columns.stage import _decide, _problems
from routepack_opt.solvers.rows.heuristics import first_fit_decreasing
from routepack_opt.solvers.rows.instance import RowTask
from routepack_opt.solvers.rows.state import ClassState, RowState

# the tokens need 259 / 132 bins, so 2 by rounding up, but no packing into 2 exists
NON_IRUP = [44] * 2 + [33] * 3 + [12] * 6


def sum_bound_case():
    problem = row_problem([6, 6, 6, 5, 4, 3], dp=2)
    return problem, certify_rows(problem)


def slots_case():
    problem = row_problem([1, 10, 1, 1], dp=2, equal_samples_per_slot=True)
    return problem, certify_rows(problem)


def claim_case():
    problem = row_problem([5, 5, 5, 1, 1, 1, 7], dp=1, max_samples_per_cell=2, capacity=12)
    bound = RowBound(4, "solver-claim", "fixed-row model", details={"model": "fixed rows", "excluded": [3]})
    found = certify_rows(problem)
    return problem, dataclasses.replace(found, bounds=(bound,))


def enumeration_case():
    """Enumerate with the tokens as weights: column generation alone would close so small a case."""
    problem = row_problem(NON_IRUP, capacity=132)
    task = RowTask.from_problem(problem)
    state = RowState(problem, task, [ClassState(c) for c in task.classes], time.monotonic() + 60)
    known = state.classes[0]
    known.offer(*first_fit_decreasing(known.bins))
    known.lower = 2
    (view,) = _problems(state)
    columns = generate(view.sizes, [], 1, state.deadline)
    tokens = dataclasses.replace(columns, bound=WeightBound(view.sizes.size, view.sizes.cap, "tokens"))
    assert _decide(view, tokens, 2)
    return problem, dataclasses.replace(certify_rows(problem), bounds=(known.bound,))


def replace_bound(certificate, **changes):
    bound = dataclasses.replace(certificate.bounds[0], **changes)
    return dataclasses.replace(certificate, bounds=(bound, *certificate.bounds[1:]))


@pytest.mark.parametrize("case", [sum_bound_case, slots_case, claim_case, enumeration_case])
def test_file_round_trip(case, tmp_path):
    problem, found = case()
    assert found.status == "certified"
    found.save(tmp_path / "c.json")
    again = RowCertificate.load(tmp_path / "c.json")
    assert check(again, problem) == check(found, problem)
    assert again.to_json() == found.to_json()


@settings(max_examples=100, deadline=None)
@given(small_problems())
def test_any_moved_item_or_claim_is_noticed(problem):
    found = certify_rows(problem)
    check(found, problem)
    changes = [{"status": "certified", "rows": None}, {"status": "unknown", "rows": 1}]
    if found.status != "infeasible":
        changes.append({"lower_bound": found.lower_bound + 1})
    for change in changes:
        with pytest.raises(CheckError):
            check(dataclasses.replace(found, **change), problem)
    if found.packing is None:
        return
    for cell in (-1, found.rows * problem.topology.dp):
        packing = found.packing.copy()
        packing[0] = cell
        with pytest.raises(CheckError):
            check(dataclasses.replace(found, packing=packing), problem)
    with pytest.raises(CheckError):
        check(dataclasses.replace(found, rows=found.rows + 1), problem)
    with pytest.raises(CheckError):
        check(dataclasses.replace(found, packing=found.packing[:-1]), problem)


def test_tampered_weights():
    problem, found = sum_bound_case()
    bound = found.bounds[0]
    assert bound.kind == "weights"
    heavier = bound.weights.copy()
    heavier[0] += 1
    lighter = np.zeros_like(bound.weights)
    negative = bound.weights.copy()
    negative[0] = -1
    for change in (
        {"rows": bound.rows + 1}, {"k": bound.k - 1}, {"weights": heavier * 2}, {"weights": lighter},
        {"weights": negative}, {"weights": None}, {"k": None}, {"kind": "faith"}, {"kind": "rule"},
        {"weights": bound.weights[:-1]}, {"row_class": 7},
    ):  # fmt: skip
        with pytest.raises(CheckError):
            check(replace_bound(found, **change), problem)
    with pytest.raises(CheckError):
        check(dataclasses.replace(found, bounds=()), problem)


def test_tampered_slots():
    problem, found = slots_case()
    assert found.bounds[0].kind == "slots"
    for change in ({"details": {"threshold": 1}}, {"details": {}}, {"rows": 3}, {"k": 2}):
        with pytest.raises(CheckError):
            check(replace_bound(found, **change), problem)


def test_enumeration_is_repeated():
    problem, found = enumeration_case()
    bound = found.bounds[0]
    assert (found.rows, found.status, bound.kind) == (3, "certified", "enumeration")
    assert check(found, problem).trusted
    assert not verify(found, problem, rerun=True).trusted
    changes = ({"patterns": bound.details["patterns"] + 1}, {"bins": 1}, {"bins": 3})
    for change in changes:
        with pytest.raises(CheckError):
            verify(replace_bound(found, details={**bound.details, **change}), problem, rerun=True)
    with pytest.raises(CheckError):
        verify(replace_bound(found, k=bound.k - 1), problem, rerun=True)


def test_branch_and_price_is_repeated():
    problem = row_problem(NON_IRUP, capacity=132)
    details = {"model": "branch and price", "solver": "routepack_opt", "bins": 2, "nodes": 1}
    bound = RowBound(3, "solver-claim", "branch and price", 0, details=details)
    found = dataclasses.replace(certify_rows(problem), bounds=(bound,))
    assert check(found, problem).trusted
    assert not verify(found, problem, rerun=True).trusted
    for change in ({"bins": 3}, {"bins": 1}):
        with pytest.raises(CheckError):
            verify(replace_bound(found, details={**details, **change}), problem, rerun=True)


def test_trust_is_named_and_rerun_removes_it():
    problem, found = claim_case()
    assert check(found, problem).trusted
    assert not verify(found, problem, rerun=True).trusted
    false = replace_bound(found, rows=5, details={"model": "fixed rows", "excluded": [4]})
    false = dataclasses.replace(false, rows=found.rows, lower_bound=found.rows)
    with pytest.raises(CheckError):
        verify(false, problem, rerun=True)


@pytest.mark.parametrize(
    ("lengths", "rules", "packing", "words"),
    [
        ([5, 5, 1], {}, [0, 0, 0], "tokens"),
        ([4, 4, 1], {"max_samples_per_cell": 2}, [0, 0, 0], "samples"),
        ([5, 4, 1], {"row_class": [0, 1, 1]}, [0, 0, 1], "classes"),
        ([15, 4, 1], {"oversize": "alone"}, [0, 0, 1], "company"),
        ([5, 4, 1], {}, [0, 0, 0], "empty"),
    ],
)
def test_packings_that_break_a_rule(lengths, rules, packing, words):
    problem = row_problem(lengths, dp=1, **rules)
    rows = max(packing) + 1 + (words == "empty")
    forged = RowCertificate(rows, 1, "best_known", (), np.array(packing), problem.rows_digest, "exhausted")
    with pytest.raises(CheckError, match=words):
        check(forged, problem)


def test_other_problems_and_files(tmp_path):
    _, found = sum_bound_case()
    with pytest.raises(InputError, match="digest"):
        check(found, row_problem([6, 6, 6, 5, 4, 4], dp=2))
    path = tmp_path / "c.json"
    for text in ("", "[]", "{}", json.dumps({**found.to_json(), "schema": 99})):
        path.write_text(text)
        with pytest.raises(FormatError):
            RowCertificate.load(path)
    broken = found.to_json()
    broken["packing"][0] = 0.5
    path.write_text(json.dumps(broken))
    with pytest.raises(FormatError):
        RowCertificate.load(path)
