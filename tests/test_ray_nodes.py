"""Ray: a node that is lost in the middle of a search costs time, and nothing else."""

import os

import pytest

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
ray = pytest.importorskip("ray")

from ray.cluster_utils import Cluster  # noqa: E402
from test_planner_service import config, window  # noqa: E402

from routepack_opt.integrations.ray import RayExecutor  # noqa: E402
from routepack_opt.planner import plan  # noqa: E402
from routepack_opt.solvers.annealing.parameters import Budget  # noqa: E402

pytestmark = pytest.mark.ray


def test_a_lost_node_changes_nothing():
    small = {"object_store_memory": 100 * 2**20, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, **small})
    try:
        far = cluster.add_node(num_cpus=2, resources={"far": 2}, object_store_memory=100 * 2**20)
        path = os.path.dirname(os.path.dirname(__file__))
        ray.init(address=cluster.address, log_to_driver=False, runtime_env={"env_vars": {"PYTHONPATH": path}})
        # Actors that only this node can hold: those that take the place of lost ones never start.
        executor = RayExecutor(2, num_cpus=0.5, resources={"far": 1})
        levels = []

        def lose(stage, facts):
            if stage == "level":
                levels.append(facts["level"])
                if len(levels) == 2:
                    cluster.remove_node(far)

        problem = config().problem(window())
        found = plan(problem, budget=Budget(500), executor=executor, progress=lose)
        assert len(levels) > 3
        assert found.hash == plan(problem, budget=Budget(500)).hash
        executor.close()
    finally:
        ray.shutdown()
        cluster.shutdown()
