"""What a mixture-of-experts model looks like to routing replay: layers, experts, top-k, dense layers.

Guarantees: a :class:`MoEModel` is valid once built (at least one MoE layer, ``top_k <= experts``, dense
layers sorted, distinct and in range), never changes, and is the only place that decides which decoder
layers are MoE layers. The presets hold public shapes only; what they cost is derived elsewhere.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, SupportsIndex

from routepack_opt.errors import InputError


@dataclass(frozen=True)
class AttentionShape:
    """Public shape of one attention type of a model.

    Parameters
    ----------
    name : str
        Name of the attention stage.
    kind : {"gqa", "mla", "kda"}
        Grouped-query softmax, latent softmax (low-rank keys and values), or gated delta-rule linear
        attention.
    layers : tuple of int
        Decoder layers that use it.
    heads, kv_heads : int
        Query heads, and key/value heads.
    qk_dim, v_dim : int
        Width of one head's query and key (rotary part included), and of its value.
    rope_dim : int
        Rotary part of `qk_dim` that all heads share; only ``mla``.
    q_rank, kv_rank : int
        Width of the latent queries and keys/values; 0 without a latent.
    window : int, optional
        Tokens that a query sees at most; ``None`` for all.
    """

    name: str
    kind: Literal["gqa", "mla", "kda"]
    layers: tuple[int, ...]
    heads: int
    kv_heads: int
    qk_dim: int
    v_dim: int
    rope_dim: int = 0
    q_rank: int = 0
    kv_rank: int = 0
    window: int | None = None


@dataclass(frozen=True)
class ModelShape:
    """Public shape of a preset, as far as the work per token depends on it.

    Parameters
    ----------
    hidden : int
        Width of the residual stream.
    expert_width, shared_width, dense_width : int
        Intermediate width of one routed expert, of all shared experts together, and of a dense layer's MLP
        (all gated: three matrices); 0 where there is none.
    attention : tuple of AttentionShape
        One entry per attention type; their layers partition the decoder layers.
    """

    hidden: int
    expert_width: int
    shared_width: int
    dense_width: int
    attention: tuple[AttentionShape, ...]


@dataclass(frozen=True)
class MoEModel:
    """Layers, experts and top-k of a mixture-of-experts model.

    Parameters
    ----------
    layers : int
        Decoder layers, dense ones included.
    experts : int
        Routed logical experts E of each MoE layer, without shared experts.
    top_k : int
        Experts K that one token is routed to.
    dense_layers : iterable of int, optional
        Decoder layers (from 0) without experts.
    name : str, optional
        A name for reports.

    Raises
    ------
    InputError
        A value is not an integer or out of range, a dense layer repeats, or no MoE layer is left.
    """

    layers: int
    experts: int
    top_k: int
    dense_layers: tuple[int, ...] = ()
    name: str | None = None

    def __post_init__(self) -> None:
        for field in ("layers", "experts", "top_k"):
            object.__setattr__(self, field, _positive(getattr(self, field), field))
        if self.top_k > self.experts:
            raise InputError(f"at most experts = {self.experts}", f"{self.top_k}", "top_k")
        dense = tuple(sorted(_index(layer, "dense_layers") for layer in self.dense_layers))
        for position, layer in enumerate(dense):
            if not 0 <= layer < self.layers:
                raise InputError(f"decoder layers 0..{self.layers - 1}", f"{layer}", "dense_layers")
            if position and dense[position - 1] == layer:
                raise InputError("distinct decoder layers", f"{layer} twice", "dense_layers")
        if len(dense) == self.layers:
            remedy = "A dense model routes nothing: plan it by lengths alone with Window.from_lengths"
            raise InputError(
                "at least one MoE layer", f"all {self.layers} layers dense", "dense_layers", remedy
            )
        object.__setattr__(self, "dense_layers", dense)

    @property
    def moe_layers(self) -> tuple[int, ...]:
        """Decoder indices of the MoE layers, ascending."""
        dense = set(self.dense_layers)
        return tuple(layer for layer in range(self.layers) if layer not in dense)

    @property
    def num_moe_layers(self) -> int:
        """How many layers have experts: the L of counts and placements."""
        return self.layers - len(self.dense_layers)

    @classmethod
    def from_config(
        cls,
        layers: int,
        experts: int,
        top_k: int,
        *,
        first_k_dense_replace: int = 0,
        moe_layer_freq: int | Sequence[int] = 1,
        decoder_sparse_step: int = 1,
        mlp_only_layers: Iterable[int] = (),
        name: str | None = None,
    ) -> MoEModel:
        """Build a model from the fields that published configurations use for dense layers.

        Parameters
        ----------
        layers, experts, top_k : int
            As in :class:`MoEModel`.
        first_k_dense_replace : int
            The first so many decoder layers are dense.
        moe_layer_freq : int or sequence of int
            An integer f keeps layer i an MoE layer when ``i % f == 0``; a sequence has 1 (MoE) or 0 (dense)
            for every decoder layer.
        decoder_sparse_step : int
            Layer i is an MoE layer when ``(i + 1) % decoder_sparse_step == 0``.
        mlp_only_layers : iterable of int
            Decoder layers that are dense whatever the other fields say.
        name : str, optional
            A name for reports.

        Returns
        -------
        MoEModel
            A layer is dense when any of the fields makes it so.

        Raises
        ------
        InputError
            A field is out of range, or `moe_layer_freq` has another length than `layers`.
        """
        layers = _positive(layers, "layers")
        pattern = _layer_pattern(moe_layer_freq, layers)
        step = _positive(decoder_sparse_step, "decoder_sparse_step")
        first = _index(first_k_dense_replace, "first_k_dense_replace")
        if first < 0:
            raise InputError("0 or more", f"{first}", "first_k_dense_replace")
        dense = {_index(layer, "mlp_only_layers") for layer in mlp_only_layers}
        dense |= {i for i in range(layers) if i < first or not pattern[i] or (i + 1) % step}
        return cls(layers, experts, top_k, tuple(dense), name)

    @classmethod
    def preset(cls, name: str) -> MoEModel:
        """Return the model of a published configuration.

        Parameters
        ----------
        name : str
            One of :data:`PRESETS`, in any case.

        Raises
        ------
        InputError
            The name is not a preset.
        """
        return _find(name)[0]

    @classmethod
    def preset_shape(cls, name: str) -> ModelShape:
        """Return the public shape of a preset (`name` as in :meth:`preset`)."""
        return _find(name)[1]


def _index(value: SupportsIndex, where: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InputError("an integer", f"{value!r}", where) from None


def _positive(value: SupportsIndex, where: str) -> int:
    number = _index(value, where)
    if number < 1:
        raise InputError("an integer of at least 1", f"{number}", where)
    return number


def _layer_pattern(freq: int | Sequence[int], layers: int) -> list[bool]:
    if isinstance(freq, Sequence) and not isinstance(freq, str):
        if len(freq) != layers:
            raise InputError(
                f"one entry for each of {layers} layers", f"{len(freq)} entries", "moe_layer_freq"
            )
        for layer, entry in enumerate(freq):
            if entry not in (0, 1):
                raise InputError("1 (MoE) or 0 (dense)", f"{entry!r} for layer {layer}", "moe_layer_freq")
        return [bool(entry) for entry in freq]
    step = _positive(freq, "moe_layer_freq")
    return [layer % step == 0 for layer in range(layers)]


def _softmax(
    layers: Iterable[int], heads: int, kv_heads: int, dim: int, name: str = "gqa", window: int | None = None
) -> AttentionShape:
    return AttentionShape(name, "gqa", tuple(layers), heads, kv_heads, dim, dim, window=window)


def _latent(layers: Iterable[int], heads: int, q_rank: int) -> AttentionShape:
    return AttentionShape("mla", "mla", tuple(layers), heads, heads, 192, 128, 64, q_rank, 512)


def _catalogue() -> dict[str, tuple[MoEModel, ModelShape]]:
    ling_mla = range(5, 42, 6)
    ling_kda = (layer for layer in range(42) if layer not in ling_mla)
    ling = (AttentionShape("kda", "kda", tuple(ling_kda), 32, 32, 128, 128), _latent(ling_mla, 32, 0))
    oss = (
        _softmax(range(0, 36, 2), 64, 8, 64, name="window", window=128),
        _softmax(range(1, 36, 2), 64, 8, 64),
    )
    entries = (
        (MoEModel(42, 512, 8, (0, 1), "Ling-3.0-Flash"), ModelShape(2560, 768, 768, 6144, ling)),
        (
            MoEModel(61, 256, 8, (0, 1, 2), "DeepSeek-V3"),
            ModelShape(7168, 2048, 2048, 18432, (_latent(range(61), 128, 1536),)),
        ),
        (
            MoEModel(48, 128, 8, (), "Qwen3-30B-A3B"),
            ModelShape(2048, 768, 0, 0, (_softmax(range(48), 32, 4, 128),)),
        ),
        (MoEModel(36, 128, 4, (), "gpt-oss-120b"), ModelShape(2880, 2880, 0, 0, oss)),
        (
            MoEModel(32, 8, 2, (), "Mixtral-8x7B"),
            ModelShape(4096, 14336, 0, 0, (_softmax(range(32), 32, 8, 128),)),
        ),
    )
    return {str(model.name).lower(): (model, shape) for model, shape in entries}


_CATALOGUE = _catalogue()

#: Names that :meth:`MoEModel.preset` knows.
PRESETS: tuple[str, ...] = tuple(str(model.name) for model, _ in _CATALOGUE.values())


def _find(name: str) -> tuple[MoEModel, ModelShape]:
    try:
        return _CATALOGUE[name.lower()]
    except (KeyError, AttributeError):
        raise InputError(f"one of {', '.join(PRESETS)}", f"{name!r}", "preset") from None
