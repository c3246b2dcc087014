"""The planner's configuration: complete, checked, and strict about names."""

import pickle

import pytest

from routepack_opt.errors import FormatError, InputError
from routepack_opt.planner.config import PlannerConfig, SearchConfig
from routepack_opt.problem import LayoutRules, Topology
from routepack_opt.stages import AttentionStage
from routepack_opt.window import Window

FULL = {
    "topology": {"dp": 4, "ep": 2, "edp_shards": 2},
    "capacity": 64,
    "stages": [{"name": "full", "alpha": 1.0, "beta": 2.0}],
    "rules": {"row_multiple": 2},
    "search": {"deadline": 0.5, "threads": 2, "seed": 7},
    "on_error": "raise",
    "expert_bytes": 10,
}
TOML = """
[trainer.routepack]
capacity = 64
on_error = "raise"
expert_bytes = 10
topology = {dp = 4, ep = 2, edp_shards = 2}
rules = {row_multiple = 2}
search = {deadline = 0.5, threads = 2, seed = 7}
[[trainer.routepack.stages]]
name = "full"
alpha = 1.0
beta = 2.0
"""
BUILT = PlannerConfig(
    Topology(4, 2, 2),
    64,
    (AttentionStage("full", 1.0, 2.0),),
    LayoutRules(row_multiple=2),
    SearchConfig(deadline=0.5, threads=2, seed=7),
    "raise",
    10,
)


def test_a_mapping_becomes_what_its_classes_build():
    assert PlannerConfig.from_dict(FULL) == BUILT
    assert PlannerConfig.from_dict({**FULL, "topology": Topology(4, 2, 2)}) == BUILT


def test_a_toml_table_becomes_the_same(tmp_path):
    path = tmp_path / "trainer.toml"
    path.write_text(TOML)
    assert PlannerConfig.from_toml(path, "trainer.routepack") == BUILT
    with pytest.raises(FormatError, match="none named 'packer'"):
        PlannerConfig.from_toml(path, "trainer.packer")
    path.write_text("capacity = ")
    with pytest.raises(FormatError, match="TOML"):
        PlannerConfig.from_toml(path)


def test_a_configuration_travels():
    assert pickle.loads(pickle.dumps(BUILT)) == BUILT


@pytest.mark.parametrize(
    ("change", "where", "near"),
    [
        ({"capcity": 3}, "configuration", "capacity"),
        ({"topology": {"dp": 4, "epp": 2}}, "topology", "ep"),
        ({"rules": {"row_multiples": 2}}, "rules", "row_multiple"),
        ({"search": {"dead_line": 2}}, "search", "deadline"),
        ({"stages": [{"name": "a", "alfa": 2}]}, "stages[0]", "alpha"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest(change, where, near):
    with pytest.raises(InputError, match=f"Did you mean '{near}'") as caught:
        PlannerConfig.from_dict({**FULL, **change})
    assert caught.value.where == where


@pytest.mark.parametrize(
    "change",
    [
        {"topology": 4},
        {"topology": {}},
        {"capacity": 0},
        {"stages": "full"},
        {"stages": ["full"]},
        {"on_error": "ignore"},
        {"search": {"deadline": 0}},
        {"search": {"deadline": True}},
        {"search": {"deadline": float("nan")}},
        {"search": {"margin": 0.95}},
        {"search": {"enough": -1}},
        {"search": {"worker": "gpu"}},
        {"search": {"method": "best"}},
        {"search": {"threads": 0}},
        {"search": {"refine_placement": True, "max_moves": 3}},
        {"rules": {"same_cell": [[0, 1]]}},
    ],
)
def test_an_illegal_value_is_refused(change):
    with pytest.raises(InputError):
        PlannerConfig.from_dict({**FULL, **change})


def test_a_key_that_is_missing_is_named():
    with pytest.raises(InputError, match="capacity"):
        PlannerConfig.from_dict({"topology": {"dp": 2}})


def test_rules_of_one_window_join_those_of_all():
    problem = BUILT.problem(Window.from_counts([3] * 8, [[[3, 0]]] * 8), same_cell=[(0, 1)], row_class=None)
    assert problem.rules == LayoutRules(row_multiple=2, same_cell=((0, 1),))
