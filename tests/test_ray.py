"""Ray: the same plan as on one machine, also when actors are lost."""

import os
import re
from functools import partial

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
ray = pytest.importorskip("ray")

from test_evaluation import suite_file  # noqa: E402, F401
from test_planner_service import OWN, config, window  # noqa: E402

from routepack_opt.integrations.ray import RayExecutor, RayPlanner, RayWorker, ray_map  # noqa: E402
from routepack_opt.planner import Planner, plan  # noqa: E402
from routepack_opt.solvers.annealing.parameters import Budget  # noqa: E402
from routepack_opt.suite.evaluation import read_suite, run_evaluation  # noqa: E402

pytestmark = pytest.mark.ray


@pytest.fixture(scope="module", autouse=True)
def cluster(tmp_path_factory):
    """A Ray of two cores; its sockets need a short path."""
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        _temp_dir=f"/tmp/rp{os.getpid()}",
        object_store_memory=100 * 2**20,
        log_to_driver=False,
        runtime_env={"env_vars": {"PYTHONPATH": os.path.dirname(os.path.dirname(__file__))}},
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def wanted():
    """What one machine plans."""
    return plan(config().problem(window()), budget=Budget(500))


def test_the_population_on_ray_gives_the_same_plan_also_without_an_actor(wanted):
    executor = RayExecutor(2, num_cpus=0.5)
    problem = config().problem(window())
    assert plan(problem, budget=Budget(500), executor=executor).hash == wanted.hash
    ray.kill(executor._actors[1])
    assert plan(problem, budget=Budget(500), executor=executor).hash == wanted.hash
    timed = plan(problem, deadline=0.5, executor=executor)
    assert timed.provenance["proposals"] > 0
    executor.close()


def test_a_planner_searches_on_ray(wanted):
    with Planner(config(), warm_up=False, start=RayWorker) as planner:
        assert planner.plan(window(), previous=None).hash == wanted.hash


def test_the_planner_as_an_actor_falls_back_when_it_is_lost(wanted):
    planner = RayPlanner(config(), num_cpus=1)
    assert planner.plan(window()).hash == wanted.hash
    ray.kill(planner.actor)
    lost = planner.plan(window(), own=OWN)
    assert (lost.rung, lost.feasible) == ("own", True)
    assert "ActorDied" in lost.reason
    assert lost.placement == wanted.placement
    assert planner.plan(window()).rung == "annealed"
    planner.close()


def test_an_evaluation_on_ray_ends_in_the_same_table(suite_file, tmp_path):  # noqa: F811
    suite = read_suite(suite_file)
    here, there = (tmp_path / name for name in ("here.jsonl", "there.jsonl"))
    run_evaluation(suite, proposals=200, output=here)
    run_evaluation(suite, proposals=200, output=there, mapper=ray_map)
    tables = [re.sub(r'"plan_seconds": [^,]+', "", path.read_text()) for path in (here, there)]
    assert tables[0] == tables[1]


def test_what_a_window_raises_on_ray_is_raised_here():
    found = ray_map(partial(int), ["1", "2", "no"])
    assert [next(found), next(found)] == [1, 2]
    with pytest.raises(ValueError, match="no"):
        next(found)
