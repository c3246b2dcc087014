"""Plain torch: modules with fused expert tensors (expert axis declared per tensor) and torch.optim state.

Guarantees: every declared tensor and every element-wise optimizer state of it moves; step counts stay and
must be equal on all ranks; an optimizer that is not known to be element-wise, a parameter that the optimizer
does not hold, a tensor subclass, and an undeclared tensor are refused by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor, nn

from routepack_opt.errors import InputError
from routepack_opt.runtime.adapters.dtensor import dtensor_ranges, is_dtensor
from routepack_opt.runtime.materialize import Groups
from routepack_opt.runtime.pieces import TensorSpec
from routepack_opt.runtime.state import (
    ExpertTensor,
    check_complete,
    full_ranges,
    is_broadcast,
    shared_digest,
    tensors_of,
)

__all__ = ["ELEMENTWISE_OPTIMIZERS", "ExpertLayer", "TorchAdapter", "state_of"]

ELEMENTWISE_OPTIMIZERS: Final = frozenset(
    {"Adam", "AdamW", "SGD", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "FusedAdam"}
)
"""Optimizers whose state has, per element of a parameter, one element of its own."""


@dataclass(frozen=True)
class ExpertLayer:
    """The experts of one layer.

    Parameters
    ----------
    layer : int
        Row of the placement.
    name : str
        Module path, for messages and exports.
    module : nn.Module
        Holds the tensors.
    axes : dict of str to int
        Axis of the expert in each expert-indexed tensor, by its name inside the module.
    shared : tuple of str
        Names of tensors that do not depend on the expert.
    """

    layer: int
    name: str
    module: nn.Module
    axes: Mapping[str, int]
    shared: tuple[str, ...] = field(default=())


class TorchAdapter:
    """Fused expert tensors with `torch.optim` state; plain tensors or DTensors (see `adapters.dtensor`).

    Parameters
    ----------
    experts : sequence of ExpertLayer
        One per layer.
    optimizer : torch.optim.Optimizer or None
        None for a model that is not trained.
    groups : Groups
        Expert-parallel group and lanes.
    """

    def __init__(
        self, experts: Iterable[ExpertLayer], optimizer: Any = None, groups: Groups | None = None
    ) -> None:
        self._experts = {one.layer: one for one in experts}
        self._optimizer = optimizer
        self._groups = groups or Groups()

    @property
    def layers(self) -> Sequence[int]:
        """Rows of the placement, ascending."""
        return sorted(self._experts)

    @property
    def experts(self) -> Sequence[ExpertLayer]:
        """Layers, ascending."""
        return [self._experts[layer] for layer in self.layers]

    def check(self) -> None:
        """Refuse while gradients wait to be used, or with an optimizer that is not element-wise.

        Raises
        ------
        InputError
            Naming the parameter or the optimizer.
        """
        held = {id(p) for group in self._groups_of_optimizer() for p in group["params"]}
        for one in self.experts:
            tensors = dict(tensors_of(one.module))
            check_complete(one.module, one.axes, one.shared, one.name)
            for name in one.axes:
                parameter = tensors.get(name)
                where = f"{one.name}.{name}"
                if parameter is None:
                    raise InputError("a tensor of that name", "none", where)
                refuse_gradient(parameter, where)
                if self._optimizer is not None and parameter.requires_grad and id(parameter) not in held:
                    raise InputError("the optimizer to hold the parameter", "another copy or none", where)

    def _groups_of_optimizer(self) -> list[dict[str, Any]]:
        if self._optimizer is None:
            return []
        name = type(self._optimizer).__name__
        if name not in ELEMENTWISE_OPTIMIZERS:
            raise InputError(f"one of {sorted(ELEMENTWISE_OPTIMIZERS)}", name, "optimizer")
        groups: list[dict[str, Any]] = self._optimizer.param_groups
        return groups

    def synchronize(self) -> None:
        """Nothing to do: every lane's parameters are current."""

    def tensors(self, layer: int) -> list[ExpertTensor]:
        """Parameters, buffers and optimizer state of the layer's experts, by name."""
        one = self._experts[layer]
        found = dict(tensors_of(one.module))
        result = []
        for name in sorted(one.axes):
            where, tensor = f"{one.name}.{name}", found[name]
            result.append(self._expert_tensor(where, tensor, one.axes[name]))
            for key, value in self._moving_state(where, tensor):
                result.append(self._expert_tensor(f"{where}/{key}", value, one.axes[name]))
        return result

    def _moving_state(self, where: str, tensor: Tensor) -> list[tuple[str, Tensor]]:
        state = {} if self._optimizer is None else self._optimizer.state.get(tensor, {})
        return state_of(where, state, tuple(tensor.shape))[0]

    def _expert_tensor(self, name: str, tensor: Tensor, axis: int) -> ExpertTensor:
        _, lanes, _, _ = self._groups.place()
        tensor = tensor.detach()
        if is_dtensor(tensor):
            if axis != 0:
                raise InputError("the expert axis first in a DTensor", f"axis {axis}", name)
            held, views = dtensor_ranges(tensor, name, self._groups.ranks, self._groups.lanes)
            size = int(held[..., 1].max())
            return ExpertTensor(TensorSpec(name, tensor.element_size(), size, held), tuple(views))
        refuse_subclass(tensor, name)
        # Before the views: a broadcast expert axis cannot be seen in one expert.
        if is_broadcast(tensor):
            raise InputError("own storage for every expert", "a broadcast (stride 0) tensor", name)
        size = tensor.numel() // tensor.shape[axis]
        held = full_ranges(lanes, tensor.shape[axis], size)
        return ExpertTensor(TensorSpec(name, tensor.element_size(), size, held), tensor.unbind(axis))

    def shared(self) -> bytes:
        """Digest of shared tensors and step counts."""
        parts: list[tuple[str, Tensor]] = []
        for one in self.experts:
            found = dict(tensors_of(one.module))
            parts += [(f"{one.name}.{name}", found[name]) for name in one.shared]
            for name in one.axes if self._optimizer is not None else ():
                where, tensor = f"{one.name}.{name}", found[name]
                state = self._optimizer.state.get(tensor, {})
                scalars = state_of(where, state, tuple(tensor.shape))[1]
                parts += [(f"{where}/{key}", torch.as_tensor(value)) for key, value in scalars]
        return shared_digest(parts)


def state_of(
    where: str, state: Mapping[str, Any], shape: tuple[int, ...]
) -> tuple[list[tuple[str, Tensor]], list[tuple[str, Any]]]:
    """Split a parameter's optimizer state into tensors that move and scalars that stay.

    Raises
    ------
    InputError
        For state of any other shape, by name.
    """
    moving, staying = [], []
    for key, value in sorted(state.items()):
        if isinstance(value, Tensor) and tuple(value.shape) == shape:
            moving.append((key, value))
        elif isinstance(value, int | float) or (isinstance(value, Tensor) and value.dim() == 0):
            staying.append((key, value))
        elif value is not None:
            found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
            raise InputError(f"optimizer state of shape {shape} or a scalar", found, f"{where}/{key}")
    return moving, staying


def refuse_gradient(parameter: Tensor, name: str) -> None:
    """Refuse a gradient that the next optimizer step would apply to the wrong expert."""
    grad: Any = parameter.grad if parameter.is_leaf else None
    grad = grad.to_local() if grad is not None and is_dtensor(grad) else grad
    if grad is not None and bool((grad != 0).any()):
        raise InputError("no gradient at a step boundary", "a gradient", name, "call zero_grad() first")


def refuse_subclass(tensor: Tensor, name: str) -> None:
    """Refuse tensors that carry more than their bytes (quantized wrappers)."""
    if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
        raise InputError("a plain tensor", type(tensor).__name__, name, "register its data and scales apart")
