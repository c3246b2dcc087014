"""MoEModel: validity, which layers are MoE, presets."""

import pytest

from routepack_opt.errors import InputError
from routepack_opt.model import PRESETS, MoEModel


def test_moe_layers_are_the_complement_of_the_dense_ones():
    model = MoEModel(layers=6, experts=8, top_k=2, dense_layers=[4, 0])
    assert model.dense_layers == (0, 4)
    assert model.moe_layers == (1, 2, 3, 5)
    assert model.num_moe_layers == 4


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((0, 8, 2), "layers"),
        ((4, 0, 1), "experts"),
        ((4, 8, 9), "top_k"),
        ((4, 8, 0), "top_k"),
        ((4, 8, True), "True"),
        ((4.0, 8, 2), "4.0"),
        ((4, 8, 2, (4,)), "4"),
        ((4, 8, 2, (-1,)), "-1"),
        ((4, 8, 2, (1, 1)), "1 twice"),
        ((2, 8, 2, (0, 1)), "at least one MoE layer"),
    ],
)
def test_bad_values_are_named(arguments, words):
    with pytest.raises(InputError, match=words):
        MoEModel(*arguments)


@pytest.mark.parametrize(
    ("fields", "moe"),
    [
        ({"first_k_dense_replace": 3}, (3, 4, 5)),
        ({"moe_layer_freq": 2}, (0, 2, 4)),
        ({"moe_layer_freq": [0, 1, 1, 0, 1, 1]}, (1, 2, 4, 5)),
        ({"mlp_only_layers": [1, 5]}, (0, 2, 3, 4)),
        ({"decoder_sparse_step": 2}, (1, 3, 5)),
        ({"first_k_dense_replace": 1, "moe_layer_freq": 2, "mlp_only_layers": [4]}, (2,)),
    ],
)
def test_configuration_fields_pick_the_moe_layers(fields, moe):
    assert MoEModel.from_config(6, 8, 2, **fields).moe_layers == moe


@pytest.mark.parametrize(
    "fields",
    [
        {"moe_layer_freq": [1, 1]},
        {"moe_layer_freq": [2] * 6},
        {"moe_layer_freq": 0},
        {"mlp_only_layers": [6]},
    ],
)
def test_configuration_fields_are_checked(fields):
    with pytest.raises(InputError):
        MoEModel.from_config(6, 8, 2, **fields)


def test_presets_have_their_public_shapes():
    assert [MoEModel.preset(name).num_moe_layers for name in PRESETS] == [40, 58, 48, 36, 32]
    assert [MoEModel.preset(name).experts for name in PRESETS] == [512, 256, 128, 128, 8]
    assert MoEModel.preset("deepseek-v3").name == "DeepSeek-V3"
    ling = MoEModel.preset_shape("Ling-3.0-Flash")
    assert {part.name: len(part.layers) for part in ling.attention} == {"kda": 35, "mla": 7}
    with pytest.raises(InputError, match="Mixtral"):
        MoEModel.preset("mixtral")


@pytest.mark.parametrize("name", PRESETS)
def test_attention_types_of_a_preset_partition_its_layers(name):
    layers = [layer for part in MoEModel.preset_shape(name).attention for layer in part.layers]
    assert sorted(layers) == list(range(MoEModel.preset(name).layers))
