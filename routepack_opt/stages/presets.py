"""Attention stages of published models, from their public shapes.

Guarantees: coefficients are ratios of multiply-adds (forward; the backward pass doubles both sides), rounded
to four significant digits, so that they stay exact in the integer objective. The docs page on costs derives
one preset by hand and says what the count leaves out.
"""

from __future__ import annotations

from typing import Any

from routepack_opt.errors import InputError
from routepack_opt.model import AttentionShape, MoEModel
from routepack_opt.stages.stage import AttentionStage, check_capacity


def preset_stages(name: str, *, capacity: int, tp: int = 1, cp: int = 1) -> tuple[AttentionStage, ...]:
    """Return the attention stages of a published model.

    Parameters
    ----------
    name : str
        A preset of :class:`routepack_opt.MoEModel`, in any case.
    capacity : int
        Capacity C in tokens per cell.
    tp, cp : int, optional
        Tensor- and context-parallel size of attention: a DP slot is tp * cp devices, which share its
        attention work evenly, while a routed expert runs on one.

    Returns
    -------
    tuple of AttentionStage
        One per attention type of the model, in the order in which the model first uses them.

    Raises
    ------
    InputError
        Unknown preset, or a size below 1.
    """
    shape = MoEModel.preset_shape(name)
    devices = _size(tp, "tp") * _size(cp, "cp")
    assignment = 3 * shape.hidden * shape.expert_width * devices
    stages = []
    for kind in shape.attention:
        linear, doubled_quadratic = multiply_adds(kind, shape.hidden)
        exact = AttentionStage.from_costs(
            kind.name, linear, doubled_quadratic / 2, check_capacity(capacity), assignment
        )
        stages.append(AttentionStage(kind.name, _rounded(exact.alpha), _rounded(exact.beta)))
    return tuple(stages)


def multiply_adds(kind: AttentionShape, hidden: int) -> tuple[int, int]:
    """Return multiply-adds of all layers of an attention type: per token, and twice those per squared token.

    A causal query sees (t**2 + t) / 2 keys in a sample of t tokens, hence the doubled second count, which
    keeps both whole.
    """
    pair = kind.heads * (kind.qk_dim + kind.v_dim)
    linear, doubled = _projections(kind, hidden), 0
    if kind.kind == "kda":
        # Read the state with the key, write the rank-one correction, read it with the query.
        linear += 3 * kind.heads * kind.qk_dim * kind.v_dim
    elif kind.window is not None:
        linear += pair * kind.window
    else:
        linear += pair // 2
        doubled = pair
    return linear * len(kind.layers), doubled * len(kind.layers)


def _projections(kind: AttentionShape, hidden: int) -> int:
    query, value = kind.heads * kind.qk_dim, kind.heads * kind.v_dim
    output = value * hidden
    if kind.kind == "gqa":
        return hidden * query + hidden * kind.kv_heads * (kind.qk_dim + kind.v_dim) + output
    if kind.kind == "kda":
        # Query, key, forget gate; value, output gate; one write strength per head.
        return hidden * (3 * query + 2 * value + kind.heads) + output
    queries = (hidden + query) * kind.q_rank if kind.q_rank else hidden * query
    latent = hidden * (kind.kv_rank + kind.rope_dim)
    expand = kind.kv_rank * kind.heads * (kind.qk_dim - kind.rope_dim + kind.v_dim)
    return queries + latent + expand + output


def _rounded(value: float) -> float:
    return float(f"{value:.3e}")


def _size(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise InputError("a whole number of at least 1", repr(value), where)
    return value
