"""What the layers of a model cost: FLOPs per token and per assignment, and which layer uses which stage.

Guarantees: attention is taken from the stages of the problem, so that simulation and objective agree on it;
the rest is counted from public shapes, forward pass, two FLOPs per multiply-add.
"""

from __future__ import annotations

from dataclasses import dataclass

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel


@dataclass(frozen=True)
class ModelWork:
    """Forward work of one device.

    Parameters
    ----------
    hidden : int
        Width of what is sent per assignment.
    assignment_flops : float
        One token through one routed expert.
    dense_flops : tuple of float
        Per decoder layer: one token of a slot through shared experts, dense layer and router, divided by the
        devices of the slot.
    moe_layers : tuple of int
        Decoder layers with routed experts, ascending.
    stage_layers : tuple of tuple of int
        Decoder layers of every attention stage of the problem; their work is shared equally.
    """

    hidden: int
    assignment_flops: float
    dense_flops: tuple[float, ...]
    moe_layers: tuple[int, ...]
    stage_layers: tuple[tuple[int, ...], ...]

    @property
    def layers(self) -> int:
        """Decoder layers."""
        return len(self.dense_flops)


def preset_work(name: str, devices: int = 1) -> ModelWork:
    """Return the work of a preset, stages as `preset_stages` gives them; a slot has `devices` devices."""
    model, shape = MoEModel.preset(name), MoEModel.preset_shape(name)
    stage_layers = tuple(kind.layers for kind in shape.attention)
    widths = shape.expert_width, shape.shared_width, shape.dense_width
    return _work(model, shape.hidden, *widths, devices, stage_layers)


def shape_work(
    model: MoEModel, stages: int, *, hidden: int, expert_width: int, shared_width: int = 0, devices: int = 1
) -> ModelWork:
    """Return the work of a model of given widths, every stage spread over all decoder layers.

    Parameters
    ----------
    model : MoEModel
        Layers, experts and dense layers; dense layers count attention only.
    stages : int
        Attention stages of the problem.
    hidden, expert_width, shared_width : int
        Widths of the residual stream, of one routed expert, and of all shared experts together.
    devices : int
        Devices of a slot.

    Raises
    ------
    InputError
        When a width is not above 0.
    """
    if min(hidden, expert_width) < 1 or shared_width < 0:
        raise InputError("widths above 0", f"hidden {hidden}, expert_width {expert_width}", "shape")
    every = tuple(range(model.layers))
    return _work(model, hidden, expert_width, shared_width, 0, devices, (every,) * stages)


def _work(
    model: MoEModel,
    hidden: int,
    expert: int,
    shared: int,
    dense: int,
    devices: int,
    stage_layers: tuple[tuple[int, ...], ...],
) -> ModelWork:
    routed = set(model.moe_layers)
    per_layer = tuple(
        2.0 * hidden * (3 * shared + model.experts if layer in routed else 3 * dense) / devices
        for layer in range(model.layers)
    )
    return ModelWork(hidden, 6.0 * hidden * expert, per_layer, model.moe_layers, stage_layers)
