"""Placement: bijections, projection, and the formats of other systems."""

import json
import pickle

import numpy as np
import oracles_placement as oracle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.placement import KINDS, Placement, formats, loads_from_sglang, read_map, write_map
from routepack_opt.placement.projection import sum_by_group

MODEL = MoEModel(layers=5, experts=12, top_k=2, dense_layers=(0, 3))


def random_placement(seed, layers=3, experts=12, ranks=4):
    rng = np.random.default_rng(seed)
    return Placement(np.stack([rng.permutation(experts) for _ in range(layers)]), ranks)


@st.composite
def placements(draw):
    ranks, per_rank = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rows = draw(st.lists(st.permutations(range(ranks * per_rank)), min_size=1, max_size=3))
    return Placement(rows, ranks)


@given(placements())
def test_both_maps_are_inverse_bijections(placement):
    experts = np.arange(placement.num_experts)
    for forward, inverse in zip(placement.slot_of_expert, placement.expert_of_slot, strict=True):
        assert (inverse[forward] == experts).all()
        assert (forward[inverse] == experts).all()
    assert (placement.rank_of_expert == placement.slot_of_expert // placement.slots_per_rank).all()
    assert Placement.from_expert_of_slot(placement.expert_of_slot, placement.ranks) == placement


def test_arrays_are_copied_and_read_only():
    table = np.arange(4)[None].copy()
    placement = Placement(table, 2)
    table[0, 0] = 3
    assert placement.slot_of_expert[0, 0] == 0
    for array in (placement.slot_of_expert, placement.expert_of_slot, placement.rank_of_expert):
        assert array.dtype == np.int64
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 1


@pytest.mark.parametrize(
    ("table", "ranks", "words"),
    [
        ([[0, 1, 2, 3], [0, 1, 1, 3]], 2, ["slot 1", "experts 1, 2", "layer 1", "slot 2 missing"]),
        ([[0, 1, 2, 4]], 2, ["slot 4", "layer 0", "expert 3", "0..3"]),
        ([[0, 1, 2, -1]], 2, ["slot -1", "layer 0", "expert 3"]),
        ([[0, 1, 2, 0.5]], 2, ["0.5"]),
        ([[0, 1], [0]], 1, ["slot_of_expert"]),
        ([0, 1], 1, ["shape"]),
        ([[0, 1, 2]], 2, ["3 experts over 2 ranks", "1 left over"]),
        ([[0, 1]], 0, ["ranks", "0"]),
        ([[0, 1]], 1.5, ["ranks", "1.5"]),
        ([[True, False]], 1, ["bool"]),
    ],
)
def test_what_is_no_placement_is_refused_with_its_position(table, ranks, words):
    with pytest.raises(InputError) as error:
        Placement(table, ranks)
    for word in words:
        assert word in str(error.value)


def test_inverse_errors_speak_of_slots():
    with pytest.raises(InputError, match=r"expert 5 at slots 0, 2 of layer 0, expert 0 missing"):
        Placement.from_expert_of_slot([[5, 1, 5, 2, 3, 4]], 2)


def test_no_layers_is_legal():
    empty = Placement.identity(0, 0, 8)
    assert (empty.num_layers, empty.num_experts, empty.slots_per_rank) == (0, 0, 0)
    assert empty.demand(np.zeros((3, 0, 0), np.int32)).shape == (3, 0, 8)
    assert empty.loads(np.zeros((0, 0), np.int64)).shape == (0, 8)
    assert empty == Placement(empty.slot_of_expert, 8) != Placement.identity(0, 0, 4)


def test_equality_digest_and_hash_agree():
    one, same, other = random_placement(1), random_placement(1), random_placement(2)
    assert one == same
    assert one.digest == same.digest
    assert hash(one) == hash(same)
    assert one != other
    assert one.digest != other.digest
    assert one != Placement(one.slot_of_expert, 2)
    assert one.digest != Placement(one.slot_of_expert, 2).digest
    assert one != "placement"
    assert pickle.loads(pickle.dumps(one)) == one
    assert Placement.identity(1, 4, 2).digest == Placement([[0, 1, 2, 3]], 2).digest


@given(placements(), st.integers(0, 2**32), st.integers(0, 6))
def test_demand_is_equation_5(placement, seed, digits):
    rng = np.random.default_rng(seed)
    shape = (6, placement.num_layers, placement.num_experts)
    counts = rng.integers(0, 10**digits, shape, dtype=np.int32)
    result = placement.demand(counts)
    assert result.tolist() == oracle.demand(counts, placement.slot_of_expert, placement.ranks)
    assert (placement.demand(counts.astype(np.int64)) == result).all()
    assert (placement.loads(counts.sum(axis=0)) == result.astype(np.int64).sum(axis=0)).all()


@pytest.mark.parametrize(
    ("largest", "dtype"),
    [(255, np.uint8), (256, np.uint16), (2**16 - 1, np.uint16), (2**16, np.uint32), (2**32, np.uint64)],
)
def test_demand_uses_the_narrowest_type_that_holds_every_sum(largest, dtype):
    counts = np.array([[[largest - 1, 1, 0, 3]]], dtype=np.int64)
    result = Placement.identity(1, 4, 2).demand(counts)
    assert result.dtype == dtype
    assert result.tolist() == [[[largest, 3]]]


def test_demand_refuses_what_it_cannot_project():
    placement = Placement.identity(2, 4, 2)
    with pytest.raises(InputError, match=r"\[samples, 2, 4\]"):
        placement.demand(np.zeros((3, 4, 2), np.int32))
    with pytest.raises(InputError, match="float64"):
        placement.demand(np.zeros((3, 2, 4)))
    counts = np.zeros((3, 2, 4), np.int32)
    counts[2, 1, 3] = -5
    with pytest.raises(InputError, match=r"\(2, 1, 3\)"):
        placement.demand(counts)


@given(st.sampled_from(["u1", "u2", "u4", "u8", "i4"]), st.lists(st.integers(0, 3), max_size=19), st.data())
def test_sums_by_group_are_those_of_numpy(kind, group, data):
    shape = (len(group), data.draw(st.integers(0, 2)), 3)
    high = min(int(np.iinfo(kind).max), 2**57)
    table = np.random.default_rng(len(group)).integers(0, high, shape, dtype=kind, endpoint=True)
    expected = np.zeros((4, *shape[1:]), np.int64)
    np.add.at(expected, np.array(group, np.int64), table.astype(np.int64))
    assert (sum_by_group(table, np.array(group, np.int64), 4) == expected).all()


def test_moves_count_ranks_and_slot_changes_count_slots():
    before = Placement.identity(2, 4, 2)
    after = Placement([[1, 0, 2, 3], [2, 1, 0, 3]], 2)
    assert after.moves_from(before) == 2
    assert after.slot_changes_from(before) == 4
    with pytest.raises(InputError, match="previous"):
        after.moves_from(Placement.identity(1, 4, 2))


# Formats of other systems


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".json", ".npy", ".yaml"])
def test_written_maps_read_back_as_the_same_placement(tmp_path, kind, suffix):
    if suffix == ".npy" and kind not in ("eplb", "megatron"):
        pytest.skip("a text format")
    if kind == "trtllm":
        pytest.importorskip("yaml")
    placement, path = random_placement(3), tmp_path / f"map{suffix}"
    for model in (None, MODEL):
        write_map(placement, path, kind, model)
        assert read_map(path, kind, 4, model) == placement


def test_read_map_needs_a_known_kind_and_enough_to_go_on(tmp_path):
    placement, path = random_placement(3), tmp_path / "map.json"
    write_map(placement, path, "eplb")
    with pytest.raises(InputError, match="eplb, sglang"):
        read_map(path, "other")
    with pytest.raises(InputError, match="ranks"):
        read_map(path, "eplb")
    write_map(placement, path, "megatron")
    with pytest.raises(InputError, match="3 ranks"):
        read_map(path, "megatron", 3)
    path.write_text("[[0, 1")
    with pytest.raises(InputError, match=r"map\.json"):
        read_map(path, "megatron", 4)


def test_eplb_triple_is_consistent():
    placement = random_placement(4)
    phy2log, log2phy, replicas = formats.to_phy2log(placement)
    for layer in range(3):
        for expert in range(12):
            assert phy2log[layer, log2phy[layer, expert, 0]] == expert
    assert (replicas == 1).all()
    assert formats.from_phy2log(phy2log, 4) == placement


def test_sglang_map_has_a_row_for_every_decoder_layer_of_a_model():
    placement = random_placement(5)
    data = formats.to_sglang(placement, MODEL)
    table = data["physical_to_logical_map"]
    assert len(table) == 5
    assert table[0] == table[3] == list(range(12))
    assert formats.from_sglang(json.dumps(data), 4, MODEL) == placement
    with pytest.raises(InputError, match="3 MoE layers or 5 decoder layers"):
        formats.from_sglang({"physical_to_logical_map": table[:4]}, 4, MODEL)


def test_trtllm_text_numbers_decoder_layers():
    yaml = pytest.importorskip("yaml")
    placement = random_placement(6)
    data = yaml.safe_load(formats.to_trtllm(placement, MODEL))
    assert data["num_slots"] == 12
    assert list(data["initial_global_assignments"]) == [1, 2, 4]
    assert formats.from_trtllm(data, 4) == placement
    data["num_slots"] = 13
    with pytest.raises(InputError, match="num_slots"):
        formats.from_trtllm(data, 4)


def test_megatron_slot_order_is_blocks_of_local_experts():
    lists = formats.to_rank_lists(Placement([[3, 2, 1, 0]], 2))
    assert lists.tolist() == [[[3, 2], [1, 0]]]


def _broken(change):
    data = formats.to_ascend(random_placement(7))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["layer_list"].pop(1), ["layer_ids 0..1", "no layer_id 1"]),
        (lambda d: d["layer_list"].pop(2), ["moe_layer_count = 3", "2"]),
        (lambda d: d["layer_list"][1]["device_list"].pop(0), ["layer_list[1]", "device_count"]),
        (lambda d: d["layer_list"][1]["device_list"][3].update(device_id=1), ["device_id 1 again"]),
        (lambda d: d["layer_list"][0]["device_list"][2].pop("device_expert"), ["device_expert"]),
        (lambda d: d["layer_list"][2]["device_list"][1]["device_expert"].pop(), ["2 at device 1"]),
        (lambda d: d["layer_list"][2]["device_list"][1].update(device_expert=5), ["5 at device 1"]),
        (
            lambda d: d["layer_list"][0]["device_list"][0].update(device_expert=[9, 9, 9]),
            ["expert 9", "layer 0"],
        ),
        (
            lambda d: d["layer_list"][0]["device_list"][1].update(device_expert=[12, 0, 1]),
            ["expert 12", "slot 3"],
        ),
        (lambda d: d["layer_list"][0]["device_list"][1].update(device_expert=[0.5, 0, 1]), ["0.5", "slot 3"]),
        (lambda d: d.update(layer_list=3), ["a list", "int"]),
        (lambda d: d.pop("layer_list"), ["layer_list", "moe_layer_count"]),
    ],
)
def test_a_broken_ascend_map_is_refused_with_its_position(change, words):
    with pytest.raises(InputError) as error:
        formats.from_ascend(_broken(change))
    for word in words:
        assert word in str(error.value)


def test_short_rows_name_the_layer_and_a_lacking_expert():
    with pytest.raises(InputError, match=r"3 at layer 1, which lacks expert 2"):
        formats.from_phy2log([[0, 1, 2, 3], [0, 1, 3]], 2)


def test_replicas_are_refused():
    with pytest.raises(InputError, match=r"expert 1 at slots 1, 4 of layer 0, expert 4 missing"):
        formats.from_phy2log([[0, 1, 2, 3, 1, 2]], 2)


def test_sources_that_are_no_map():
    for source in ("{", "{}", 7, "[1]"):
        with pytest.raises((InputError, FileNotFoundError)):
            formats.from_sglang(source, 2)


def test_sglang_loads_are_summed_over_steps_and_passes():
    steps = np.arange(12, dtype=np.int32).reshape(2, 2, 3)
    assert (loads_from_sglang({"logical_count": steps}) == steps.sum(axis=0)).all()
    assert loads_from_sglang('{"logical_count": [[1, 2]]}').tolist() == [[1, 2]]
    record = {
        "records": [
            {"global_physical_count": [[1, 2, 3]]},
            {"global_physical_count": np.array([[10, 20, 30]])},
        ],
        "last_physical_to_logical_map": np.array([[1, 0, 1]]),
    }
    assert loads_from_sglang(record).tolist() == [[22, 44]]
    rows = np.ones((5, 12), np.int64) * np.arange(5)[:, None]
    assert loads_from_sglang({"logical_count": rows}, MODEL)[:, 0].tolist() == [1, 2, 4]
    with pytest.raises(InputError, match="-1"):
        loads_from_sglang({"logical_count": [[1, -1]]})


@settings(max_examples=200)
@given(st.data())
def test_a_mutated_map_never_becomes_another_placement(data):
    placement = random_placement(8)
    table = placement.expert_of_slot.tolist()
    layer, slot = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 11))
    value = data.draw(
        st.one_of(st.integers(-3, 15), st.floats(), st.none(), st.text(max_size=2), st.booleans())
    )
    table[layer][slot] = value
    if type(value) is int and value == placement.expert_of_slot[layer, slot]:
        assert formats.from_phy2log(table, 4) == placement
    else:
        with pytest.raises(InputError):
            formats.from_phy2log(table, 4)
