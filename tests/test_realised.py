"""Planned against realised loads, and the sinks of metrics."""

import numpy as np
import pytest
from test_planner_service import config, window

from routepack_opt import compare, metrics
from routepack_opt.errors import InputError
from routepack_opt.planner import plan
from routepack_opt.planner.fallback import no_plan
from routepack_opt.plans.sinks import known, to_log, to_prometheus, to_writer
from routepack_opt.scoring import loads_of
from routepack_opt.solvers.annealing.parameters import Budget
from routepack_opt.window import Window


@pytest.fixture(scope="module")
def planned():
    """A plan, its problem and its W."""
    problem = config().problem(window())
    found = plan(problem, budget=Budget(0), method="seed")
    return found, problem, loads_of(problem, found.placement.demand(problem.item_counts), found.layout).routed


def test_a_step_that_keeps_the_recorded_routing_is_exact(planned):
    found, _, routed = planned
    for loads in (routed, routed.sum(axis=(0, 1))):
        result = compare(found, loads)
        assert result.exact
        assert result.error == 0.0
        assert result.worst is None
        assert "as planned" in str(result)
        assert result.assignments[0] == result.assignments[1] == int(routed.sum())


def test_a_single_token_routed_elsewhere_is_noticed(planned):
    found, _, routed = planned
    changed = routed.copy()
    r, g, layer, _ = (int(k) for k in np.unravel_index(changed.argmax(), changed.shape))
    rank = int(changed[r, g, layer].argmax())
    changed[r, g, layer, rank] += 1
    result = compare(found, changed)
    assert not result.exact
    assert result.worst == (r, g)
    assert result.assignments[1] == result.assignments[0] + 1
    assert f"row {r}, shard {g}" in str(result)
    by_rank = compare(found, changed.sum(axis=(0, 1)))
    assert by_rank.worst == (layer, rank)
    assert int((by_rank.realised - by_rank.planned).sum()) == 1


def test_predicted_windows_say_so_in_every_output(planned):
    source = window()
    forecast = Window.from_counts(source.lengths, source.counts, routing="predicted")
    found = plan(config().problem(forecast), budget=Budget(0), method="seed")
    result = compare(found, planned[2])
    assert "predicted" in str(result)
    assert result.as_dict()["routepack/predicted"] == 1.0
    assert metrics(found)["routepack/predicted"] == 1.0


def test_what_cannot_be_compared_is_refused(planned):
    found, _, routed = planned
    with pytest.raises(InputError, match="realised_loads"):
        compare(found, routed[:, :, :1])
    with pytest.raises(InputError, match="rung 'none'"):
        compare(no_plan(found.placement), routed)


def test_sinks_leave_out_what_is_unknown():
    values = {"routepack/a": 1.5, "routepack/b": None, "routepack/c": 2}
    assert known(values) == {"routepack/a": 1.5, "routepack/c": 2.0}
    logged = []
    to_log(lambda *args, **options: logged.append((args, options)), values, step=3)
    to_log(lambda *args, **options: logged.append((args, options)), values)
    assert logged == [((known(values),), {"step": 3}), ((known(values),), {})]

    class Writer:
        def __init__(self):
            self.rows = []

        def add_scalar(self, *row):
            self.rows.append(row)

    writer = Writer()
    to_writer(writer, values, 7)
    assert writer.rows == [("routepack/a", 1.5, 7), ("routepack/c", 2.0, 7)]


def test_prometheus_text():
    text = to_prometheus({"routepack/a": 1.5, "routepack/b": None}, {"run": 'a"b'})
    assert text == '# TYPE routepack_a gauge\nroutepack_a{run="a\\"b"} 1.5\n'
    assert to_prometheus({}) == ""
