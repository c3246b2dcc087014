"""Reports of packer users: the answers hold by exhaustive search, and the product gives them."""

import re

import oracles
import pytest
from packing_reports import REPORTS, Infeasible, Refused, Rows
from validity import broken_by, broken_rules

from routepack_opt.errors import InfeasibleError, InputError
from routepack_opt.planner import plan
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.solvers.rows import certify_rows
from routepack_opt.window import Window


def of(kind, where=lambda report: True):
    chosen = [report for report in REPORTS if isinstance(report.answer, kind) and where(report)]
    return pytest.mark.parametrize("report", chosen, ids=[report.name for report in chosen])


def build(report):
    window = Window.from_lengths(report.lengths)
    return Problem(window, Topology(report.dp), report.capacity, rules=LayoutRules(**report.rules))


def searched(report, extra=0):
    """Arguments of the exhaustive search, with `extra` one-token samples of a class of their need."""
    rules = dict(report.rules)
    if extra and "row_class" in rules:
        rules["row_class"] = (*rules["row_class"], *[rules["row_class"][-1]] * extra)
    return (*report.lengths, *[1] * extra), {"dp": report.dp, "capacity": report.capacity, **rules}


@of(Rows, lambda report: report.small)
def test_the_row_count_is_the_smallest(report):
    lengths, rules = searched(report)
    assert oracles.least_rows(lengths, **rules) == report.answer.rows
    found = oracles.find_layout(lengths, report.answer.rows, **rules)
    assert set(broken_rules(found, lengths, **rules)) <= {"row_order"}


@of(Rows, lambda report: not report.small)
def test_the_row_count_of_a_large_window_is_a_bound_that_is_met(report):
    cells = -(-sum(report.lengths) // report.capacity)
    assert report.answer.rows == -(-cells // report.dp)


@of(Infeasible, lambda report: report.small)
def test_infeasible_windows_have_no_layout_and_the_dummies_help(report):
    for extra in range(report.answer.dummies + 1):
        lengths, rules = searched(report, extra)
        assert (oracles.least_rows(lengths, **rules) is not None) == (extra == report.answer.dummies)


@of(Refused)
def test_refused_windows_say_why(report):
    with pytest.raises(InputError, match=report.answer.message):
        build(report)


@of(Rows)
def test_certification_finds_the_row_count(report):
    certificate = certify_rows(build(report))
    assert (certificate.status, certificate.rows) == ("certified", report.answer.rows)
    assert certificate.lower_bound == report.answer.rows


@of(Infeasible)
def test_certification_names_the_rule_that_binds(report):
    certificate = certify_rows(build(report))
    assert (certificate.status, certificate.rule) == ("infeasible", report.answer.rule)
    assert certificate.dummies == report.answer.dummies
    assert re.search(rf"\b{report.answer.dummies} dummy sample", certificate.message)


@of(Rows, lambda report: len(report.lengths) < 1000)
def test_plans_have_the_row_count_and_break_no_rule(report):
    problem = build(report)
    found = plan(problem, method="seed")
    assert found.rows.rows == len(found.cells) == report.answer.rows
    assert broken_by(problem, found.cells) == []
    assert plan(problem, method="seed").cells == found.cells


@of(Infeasible)
def test_no_plan_is_made_up_for_an_infeasible_window(report):
    with pytest.raises(InfeasibleError) as caught:
        plan(build(report), method="seed")
    assert caught.value.rule == report.answer.rule
