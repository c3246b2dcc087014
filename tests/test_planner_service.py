"""The planner as a service: plans in time, one placement per plan, and a fallback for every fault.

Faults are put in by workers that raise, hang or are killed; no test depends on how long anything takes.
"""

import logging
import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from routepack_opt import metrics
from routepack_opt.errors import InfeasibleError, InputError, NoLayoutError, RoutePackError
from routepack_opt.layout import Layout
from routepack_opt.model import MoEModel
from routepack_opt.placement import Placement
from routepack_opt.planner import Planner, PlannerConfig, plan
from routepack_opt.planner.config import SearchConfig
from routepack_opt.planner.jobs import JobClock
from routepack_opt.planner.reserve import Reserve
from routepack_opt.planner.workers import ProcessWorker, ThreadWorker, WorkerDiedError
from routepack_opt.solvers.annealing.parameters import Budget
from routepack_opt.window import Window, read_replay

CONFIG = {
    "topology": {"dp": 2, "ep": 2},
    "capacity": 40,
    "stages": [{"name": "full", "alpha": 1.0, "beta": 1.0}],
    "search": {"deadline": None, "proposals": 500, "enough": None},
}
OWN = [[[0, 1, 2], [3, 4, 5]], [[6, 7, 8], [9, 10, 11]]]


def window(seed=0, size=12, experts=4, layers=2):
    """A small window with skewed routing."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, 13, size)
    shares = rng.dirichlet(np.full(experts, 0.5), (size, layers))
    counts = np.stack(
        [[rng.multinomial(n, s) for s in share] for n, share in zip(lengths, shares, strict=True)]
    )
    return Window.from_counts(lengths, counts)


def config(on_error="fallback", **search):
    """The small configuration with other search options."""
    return PlannerConfig.from_dict({**CONFIG, "on_error": on_error, "search": CONFIG["search"] | search})


@pytest.fixture
def hold():
    """An event on which workers hang until the test is over."""
    event = threading.Event()
    yield event
    event.set()


class Faulty(ThreadWorker):
    """A worker whose jobs first do what the test says."""

    def __init__(self, fault):
        super().__init__(1)
        self.fault, self.ended = fault, False

    def run(self, job, clock, report):
        self.fault(job, clock, report)
        return super().run(job, clock, report)

    def end(self, wait):
        self.ended = True
        super().end(wait)


def faulty(fault, **options):
    """A planner with such workers; `workers` lists them."""
    workers = []

    def start(search):
        workers.append(Faulty(fault))
        return workers[-1]

    planner = Planner(options.pop("config", None) or config(), warm_up=False, start=start, **options)
    return planner, workers


def test_a_plan_is_the_one_that_the_function_makes():
    problem = config().problem(window())
    with Planner(config(), warm_up=False) as planner:
        first, again = planner.plan(window(), previous=None), planner.plan(window(), previous=None)
    wanted = plan(problem, budget=Budget(500))
    assert first.hash == again.hash == wanted.hash
    assert first.rung == "annealed"
    assert first.provenance["moves"] == wanted.provenance["moves"]
    first.validate(problem)


def test_threads_and_a_second_window_change_nothing():
    with Planner(config(threads=3), warm_up=False) as planner:
        futures = [planner.submit(window(k), previous=None) for k in (1, 0)]
        assert futures[1].result().hash == plan(config().problem(window()), budget=Budget(500)).hash
        assert futures[0].result().hash == plan(config().problem(window(1)), budget=Budget(500)).hash


def test_the_placement_of_the_window_before_is_the_one_to_move_from():
    with Planner(config(), warm_up=False) as planner:
        first = planner.plan(window())
        second = planner.plan(window())
        third = planner.plan(window(experts=6))
    assert second.placement == first.placement
    assert second.provenance["moves"] == 0
    assert third.placement.num_experts == 6


def test_moves_are_limited_from_the_first_window_on():
    with Planner(config(max_moves=1), warm_up=False) as planner:
        found = planner.plan(window())
    assert found.placement.moves_from(Placement.identity(2, 4, 2)) <= 1


def test_a_planner_starts_from_the_placement_it_is_given():
    placed = plan(config().problem(window()), budget=Budget(500)).placement
    with Planner(config(), warm_up=False, placement=placed) as planner:
        assert planner.plan(window()).provenance["moves"] == 0


def test_the_placement_is_delivered_while_packing_goes_on(hold):
    class Slow(ThreadWorker):
        def run(self, job, clock, report):
            def report_and_hang(placement):
                report(placement)
                hold.wait()

            return super().run(job, clock, report_and_hang)

    planner = Planner(config(), warm_up=False, start=lambda search: Slow(1))
    future = planner.submit(window())
    placement = future.placement()
    assert placement is not None
    assert not future.done()
    hold.set()
    assert future.result().placement == placement
    assert future.timeline(actor=1.0, admit=0.0).target >= 1.0
    planner.close()


def test_a_late_plan_is_replaced_by_the_own_layout_under_the_delivered_placement(hold):
    class Slow(ThreadWorker):
        def run(self, job, clock, report):
            done = super().run(job, clock, report)
            hold.wait()
            return done

    planner = Planner(config(), warm_up=False, start=lambda search: Slow(1))
    future = planner.submit(window(), own=OWN)
    placement = future.placement()
    late = future.result(0.01)
    assert (late.rung, late.feasible) == ("own", True)
    assert "no plan within the deadline" in late.reason
    assert late.cells == Layout.from_cells(OWN).cells
    assert late.placement == placement
    hold.set()
    assert future.result() is late
    assert metrics(late)["routepack/rung"] == 3.0
    planner.close()


def test_a_hurried_search_returns_the_best_it_has():
    now = [0.0]
    clock = JobClock(lambda: now[0], 10.0)
    clock.keep(1.0)
    assert (clock.left, clock.wait) == (9.0, 9.99)
    clock.hurry(2.0)
    assert (clock.left, clock.wait, clock()) == (2.0, 9.99, 7.0)
    clock.hurry(5.0)
    assert clock.left == 2.0
    clock.cancel()
    with pytest.raises(RoutePackError):
        clock()


def test_a_solver_that_raises_costs_the_plan_not_the_step(caplog):
    def fault(job, clock, report):
        raise ZeroDivisionError("inside a solver")

    planner, _ = faulty(fault)
    with planner, caplog.at_level(logging.WARNING, "routepack_opt"):
        first, second = planner.plan(window(), own=OWN), planner.plan(window())
    assert (first.rung, first.reason) == ("own", "ZeroDivisionError: inside a solver")
    assert first.feasible
    assert (second.rung, second.layout) == ("none", None)
    assert len(caplog.records) == 1
    assert "ZeroDivisionError" in caplog.text
    assert planner.rungs == {"own": 1, "none": 1}


def test_a_solver_that_hangs_is_given_up_and_its_worker_replaced(hold):
    planner, workers = faulty(lambda job, clock, report: hold.wait() if len(workers) == 1 else None)
    assert planner.submit(window(), own=OWN).result(0.01).rung == "own"
    assert planner.plan(window()).rung == "annealed"
    assert len(workers) == 2
    assert workers[0].ended
    hold.set()
    planner.close()


def test_in_strict_mode_faults_are_raised(hold):
    with Planner(config("raise"), warm_up=False) as planner:
        with pytest.raises(InfeasibleError):
            planner.plan(window(size=1))
        with pytest.raises(InputError, match="sample 0"):
            planner.plan(Window.from_counts([50], [[[50, 0]]]))
    planner, _ = faulty(lambda job, clock, report: hold.wait(), config=config("raise"))
    with pytest.raises(NoLayoutError, match="deadline"):
        planner.submit(window()).result(0.01)
    hold.set()
    planner.close()


def _replay_without_a_layer():
    ids = [np.zeros((3, 1, 1), np.int64)]
    return read_replay(ids, MoEModel(layers=2, experts=4, top_k=1), lengths=[3])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (lambda: Window.from_lengths([]), "empty window"),
        (lambda: Window.from_counts([50], [[[50, 0]]]), "sample 0"),
        (_replay_without_a_layer, "layer"),
        (lambda: 1 / 0, "ZeroDivisionError"),
    ],
)
def test_a_window_that_cannot_be_used_leaves_the_own_layout(source, reason):
    with Planner(config(), warm_up=False) as planner:
        found = planner.plan(source, own=[[[0], [1]]])
        empty = planner.plan(source)
    assert (found.rung, found.feasible, found.broken_rule) == ("own", False, "unchecked")
    assert reason in found.reason
    assert (empty.rung, empty.layout) == ("none", None)
    assert reason in empty.reason


def test_an_infeasible_window_names_the_rule_and_keeps_the_own_layout():
    with Planner(config(), warm_up=False) as planner:
        found = planner.plan(window(size=1), own=[[[0], []]])
    assert (found.rung, found.feasible) == ("own", False)
    assert "InfeasibleError" in found.reason


def test_an_own_layout_that_breaks_a_rule_says_which():
    def fault(job, clock, report):
        raise RuntimeError("no")

    planner, _ = faulty(fault)
    with planner:
        found = planner.plan(window(), own=[[list(range(11)), [11]]])
    assert (found.rung, found.feasible, found.score) == ("own", False, None)
    assert found.broken_rule == "at most 40 tokens in a cell"


@pytest.mark.parametrize(
    ("args", "options"),
    [
        (([3, 4],), {}),
        ((window(),), {"own": [[[0, 0]]]}),
        ((window(),), {"previous": "last"}),
        ((window(),), {"min_rows": 2}),
    ],
)
def test_bad_arguments_raise_even_in_lenient_mode(args, options):
    with Planner(config(), warm_up=False) as planner, pytest.raises(InputError):
        planner.plan(*args, **options)


def test_a_closed_planner_is_refused_and_closing_settles_what_is_in_flight(hold):
    planner, workers = faulty(lambda job, clock, report: hold.wait())
    future = planner.submit(window(), own=OWN)
    closer = threading.Thread(target=planner.close)
    closer.start()
    assert future.result().rung == "own"
    hold.set()
    closer.join()
    assert workers[0].ended
    assert not [t for t in threading.enumerate() if t.name.startswith("routepack")]
    planner.close()
    with pytest.raises(InputError, match="closed"):
        planner.plan(window())


def test_windows_where_planning_cannot_pay_say_so():
    same = Window.from_counts([4] * 8, [[[3, 1, 0, 0]] * 2] * 8)
    with Planner(config(), warm_up=False) as planner:
        alike = planner.plan(same)
    with Planner(config(enough=10.0), warm_up=False) as planner:
        near = planner.plan(window())
    assert (alike.rung, near.rung) == ("seed", "seed")
    assert "cannot pay: all samples" in alike.reason
    assert "cannot pay: within" in near.reason
    assert near.provenance["proposals"] == 0


def test_predicted_routing_is_a_metric():
    source = window()
    forecast = Window.from_counts(source.lengths, source.counts, routing="predicted")
    with Planner(config(), warm_up=False) as planner:
        assert metrics(planner.plan(forecast))["routepack/predicted"] == 1.0
        assert metrics(planner.plan(source))["routepack/predicted"] == 0.0
        assert len(metrics(planner.plan(source))) <= 20


@pytest.fixture(scope="module")
def process_planner():
    """A planner with a process of its own, killed and replaced by its tests."""
    planner = Planner(config(worker="process"))
    yield planner
    planner.close()


def test_a_process_plans_the_same_and_can_die(process_planner):
    planner, wanted = process_planner, plan(config().problem(window()), budget=Budget(500))
    future = planner.submit(window(), previous=None)
    assert future.placement() == wanted.placement
    assert future.result().hash == wanted.hash
    infeasible = planner.plan(window(size=1))
    assert "InfeasibleError" in infeasible.reason
    worker = planner._worker
    assert isinstance(worker, ProcessWorker)
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(WorkerDiedError):
        worker.hurry(1.0)
    assert planner.plan(window(), previous=None).hash == wanted.hash
    planner.close()
    assert planner._worker is None


def test_a_process_that_is_killed_with_a_plan_in_flight_leaves_the_own_layout():
    planner = Planner(config(worker="process", proposals=10**9))
    future = planner.submit(window(), own=OWN)
    placement = future.placement()
    worker = planner._worker
    worker.process.kill()
    found = future.result()
    assert found.rung == "own"
    assert "the planning process ended" in found.reason
    assert found.placement == placement
    planner.close()
    assert worker.process.poll() is not None


SCRIPT = """
import os, sys, threading
sys.path.insert(0, {tests!r})
from test_planner_service import config, window, OWN
from routepack_opt.planner import Planner
{body}
"""


def run(body):
    """Run a script in a fresh interpreter; a hang fails the test."""
    code = SCRIPT.format(tests=os.path.dirname(__file__), body=body)
    root = os.path.dirname(os.path.dirname(__file__))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=root, timeout=240, check=False
    )


@pytest.mark.parametrize("threads", [1, 2])
def test_the_interpreter_ends_with_a_plan_in_flight(threads):
    body = f"""
planner = Planner(config(threads={threads}, proposals=10**12), warm_up=False)
assert planner.submit(window()).placement() is not None
print("leaving")
"""
    found = run(body)
    assert (found.returncode, found.stdout) == (0, "leaving\n"), found.stderr


def test_the_planning_process_ends_with_its_interpreter():
    body = """
planner = Planner(config(worker="process", proposals=10**12), warm_up=False)
assert planner.submit(window()).placement() is not None
print(planner._worker.process.pid)
"""
    found = run(body)
    assert found.returncode == 0, found.stderr
    until = time.monotonic() + 30
    while os.path.exists(f"/proc/{int(found.stdout)}") and time.monotonic() < until:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{int(found.stdout)}")


@pytest.mark.parametrize("warm_up", [False, True])
def test_a_forked_child_plans_with_workers_of_its_own(warm_up):
    body = f"""
planner = Planner(config(threads=2), warm_up={warm_up})
wanted = planner.plan(window(), previous=None).hash
child = os.fork()
if child == 0:
    os._exit(0 if planner.plan(window(), previous=None).hash == wanted else 3)
assert os.waitpid(child, 0)[1] == 0
assert planner.plan(window(), previous=None).hash == wanted
planner.close()
print(sorted(t.name for t in threading.enumerate()))
"""
    found = run(body)
    assert (found.returncode, found.stdout) == (0, "['MainThread']\n"), found.stderr


def test_a_forked_child_leaves_its_parents_process_alone():
    body = """
planner = Planner(config(worker="process"), warm_up=False)
planner.submit(window()).placement()
process = planner._worker.process
child = os.fork()
if child == 0:
    assert planner._worker is None
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert planner.plan(window()).rung == "annealed"
assert planner._worker.process is process
print("well")
"""
    found = run(body)
    assert (found.returncode, found.stdout) == (0, "well\n"), found.stderr


def test_the_reserve_grows_with_late_plans_and_shrinks_again():
    reserve = Reserve(SearchConfig(deadline=1.0, margin=0.05))
    assert reserve.seconds == 0.05
    reserve.ended(0.2)
    assert reserve.seconds == 0.05
    reserve.ended(-0.1)
    assert reserve.seconds == pytest.approx(0.15)
    reserve.missed()
    assert reserve.seconds == pytest.approx(0.3)
    for _ in range(5):
        reserve.missed()
    assert reserve.seconds == 0.5
    for _ in range(200):
        reserve.ended(0.0)
    assert reserve.seconds == 0.05
