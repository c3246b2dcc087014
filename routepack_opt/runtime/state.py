"""The registry of expert-indexed tensors: what must move with an expert, and proof that all of it does.

Guarantees: a tensor under an experts module is registered, or declared shared by all experts, or refused by
name; broadcast (stride-0) tensors are refused; registered views alias live storage, so committing writes in
place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from routepack_opt.errors import InputError
from routepack_opt.runtime.pieces import Int, TensorSpec

__all__ = ["ExpertTensor", "check_complete", "full_ranges", "shared_digest", "tensors_of"]

PLAIN_ATTRIBUTES: Final = frozenset({"_parameters", "_buffers", "_modules"})


@dataclass(frozen=True)
class ExpertTensor:
    """One kind of expert state of one layer on this rank.

    Attributes
    ----------
    spec : TensorSpec
        What all ranks know about it.
    views : tuple of Tensor or None
        Live storage of each local slot: this lane's range, None where the lane holds nothing. A view that
        holds a whole expert may have any shape and strides; a part of one is one-dimensional.
    """

    spec: TensorSpec
    views: tuple[Tensor | None, ...]

    def check(self, lane: int) -> None:
        """Refuse views that do not hold what the spec says, or that alias themselves.

        Raises
        ------
        InputError
            Naming the tensor and its slot.
        """
        for slot, view in enumerate(self.views):
            start, end = (int(x) for x in self.spec.held[lane, slot])
            found = 0 if view is None else view.numel()
            if found != end - start:
                raise InputError(f"{end - start} elements", f"{found}", f"{self.spec.name}, slot {slot}")
            if view is None:
                continue
            if view.element_size() != self.spec.itemsize:
                raise InputError(f"{self.spec.itemsize}-byte elements", str(view.dtype), self.spec.name)
            if is_broadcast(view):
                raise InputError(
                    "own storage for every element", "a broadcast (stride 0) view", self.spec.name
                )
            if not view.is_contiguous() and found != self.spec.size:
                raise InputError("contiguous storage", f"strides {view.stride()}", self.spec.name)


def is_broadcast(tensor: Tensor) -> bool:
    """Whether several elements share storage."""
    return any(size > 1 and stride == 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def full_ranges(lanes: int, slots: int, size: int) -> Int:
    """Return the ranges of state that every lane holds whole."""
    held = np.zeros((lanes, slots, 2), dtype=np.int64)
    held[..., 1] = size
    return held


def tensors_of(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor that hangs on a module tree, also those outside parameters and buffers.

    Quantizers re-attach weights as plain attributes or hide them in config objects; such tensors are found
    in attributes, and up to three levels inside lists, tuples, dicts and foreign objects.
    """
    for prefix, part in module.named_modules():
        dot = f"{prefix}." if prefix else ""
        for name, tensor in (*part._parameters.items(), *part._buffers.items()):
            if tensor is not None:
                yield dot + name, tensor
        for name, value in vars(part).items():
            if name not in PLAIN_ATTRIBUTES:
                yield from _inside(dot + name, value, depth=3)


def _inside(name: str, value: Any, depth: int) -> Iterator[tuple[str, Tensor]]:
    """Tensors in a plain attribute."""
    if isinstance(value, Tensor):
        yield name, value
    elif depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _inside(f"{name}[{key!r}]", item, depth - 1)
    elif depth and isinstance(value, list | tuple | set):
        for index, item in enumerate(value):
            yield from _inside(f"{name}[{index}]", item, depth - 1)
    elif depth and not isinstance(value, nn.Module | type) and not callable(value):
        for key, item in getattr(value, "__dict__", {}).items():
            yield from _inside(f"{name}.{key}", item, depth - 1)


def check_complete(module: nn.Module, registered: Iterable[str], shared: Sequence[str], where: str) -> None:
    """Refuse an experts module that holds a tensor nobody declared.

    Parameters
    ----------
    module : nn.Module
        The experts of one layer.
    registered : iterable of str
        Names, relative to the module, of the tensors that move.
    shared : sequence of str
        Names of tensors that do not depend on the expert and stay.
    where : str
        Name of the module in messages.

    Raises
    ------
    InputError
        Naming the tensor, its shape and how to declare it.
    """
    known = {*registered, *shared}
    for name, tensor in tensors_of(module):
        if name not in known:
            raise InputError(
                "every tensor of an experts module to be registered as expert-indexed or declared shared",
                f"'{name}' of shape {tuple(tensor.shape)}",
                where,
                "a value per expert must move with it; one derived on a rank must first be made equal on all",
            )


def shared_digest(tensors: Iterable[tuple[str, Tensor]]) -> bytes:
    """Digest of shared tensors; every rank must have the same, or they were derived locally."""
    state = hashlib.sha256()
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        state.update(name.encode())
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        state.update(data.cpu().numpy().tobytes())
    return state.digest()
