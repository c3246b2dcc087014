"""Send each logical expert's tokens to its slot: the one place where logical ids become physical.

Guarantees: the router, its bias, top-k, replay and auxiliary loss see logical ids only; the remap is
differentiable in the probabilities and their gradients arrive in the logical columns; a module is mapped at
most once; map tensors keep their address when a placement is committed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from routepack_opt.errors import InputError

__all__ = ["LayerMap", "map_dispatcher", "map_experts_module", "remap_ids", "remap_routing"]

Observer = Callable[[Tensor], None]
_MARK = "_routepack_mapped"
_ID_ARGUMENTS = ("top_k_index", "router_indices")


class LayerMap:
    """The committed placement of one layer, on the device of its experts.

    Parameters
    ----------
    slots : int64 [experts]
        Slot of each logical expert.
    device : torch.device
        Where the dispatcher's tensors live.

    Attributes
    ----------
    slot_of_expert, expert_of_slot : Tensor, int64 [experts]
        Written in place by :meth:`commit`, so captured graphs stay valid.
    version : int
        Number of commits.
    observers : list of callable
        Called with the logical routing (map or ids) before every remap.
    """

    def __init__(self, slots: NDArray[np.int64], device: torch.device) -> None:
        self.slot_of_expert = torch.empty(len(slots), dtype=torch.int64, device=device)
        self.expert_of_slot = torch.empty_like(self.slot_of_expert)
        self.version = -1
        self.observers: list[Observer] = []
        self.commit(slots)

    def commit(self, slots: NDArray[np.int64]) -> None:
        """Make `slots` the placement."""
        with torch.no_grad():
            self.slot_of_expert.copy_(torch.from_numpy(np.ascontiguousarray(slots, dtype=np.int64)))
            self.expert_of_slot.copy_(torch.from_numpy(np.argsort(slots).astype(np.int64)))
        self.version += 1

    def observe(self, routing: Tensor) -> None:
        """Show logical routing to the observers (a recorder)."""
        for observer in self.observers:
            observer(routing)


def remap_routing(routing_map: Tensor, probs: Tensor, expert_of_slot: Tensor) -> tuple[Tensor, Tensor]:
    """Reorder the expert columns of a routing map and of its probabilities from logical to physical.

    Parameters
    ----------
    routing_map : Tensor, bool [..., experts]
    probs : Tensor, float [..., experts]
    expert_of_slot : Tensor, int64 [experts]
        The inverse placement of the layer.

    Returns
    -------
    tuple of Tensor
        Column v of each is the input's column of the expert in slot v.
    """
    return routing_map.index_select(-1, expert_of_slot), probs.index_select(-1, expert_of_slot)


def remap_ids(ids: Tensor, slot_of_expert: Tensor) -> Tensor:
    """Replace logical expert ids by slots; negative ids (dropped tokens) stay as they are."""
    return torch.where(ids < 0, ids, slot_of_expert[ids.clamp_min(0).long()].to(ids.dtype))


def _claim(owner: Any) -> None:
    """Refuse a second mapping: applied twice it would be another permutation, silently."""
    if getattr(owner, _MARK, False):
        raise InputError(
            "a module without an expert map",
            f"{type(owner).__name__} that already has one",
            "dispatch",
            "detach the first map before attaching another",
        )
    setattr(owner, _MARK, True)


def map_dispatcher(dispatcher: Any, layer_map: LayerMap) -> Callable[[], None]:
    """Map a Megatron-Core token dispatcher: allgather, alltoall or flex.

    Exactly `dispatch_preprocess(hidden_states, routing_map, probs)` is wrapped; all before it is logical.

    Returns
    -------
    callable
        Detaches the map.

    Raises
    ------
    InputError
        When the dispatcher is mapped already.
    """
    _claim(dispatcher)
    original = dispatcher.dispatch_preprocess

    def mapped(hidden_states: Tensor, routing_map: Tensor, probs: Tensor, *args: Any, **kwargs: Any) -> Any:
        layer_map.observe(routing_map)
        return original(
            hidden_states, *remap_routing(routing_map, probs, layer_map.expert_of_slot), *args, **kwargs
        )

    dispatcher.dispatch_preprocess = mapped

    def detach() -> None:
        del dispatcher.dispatch_preprocess
        setattr(dispatcher, _MARK, False)

    return detach


def map_experts_module(experts: nn.Module, layer_map: LayerMap) -> Callable[[], None]:
    """Map a module called as `experts(hidden, ids, weights)`, the fused experts of Hugging Face.

    Returns
    -------
    callable
        Detaches the map.

    Raises
    ------
    InputError
        When the module is mapped already.
    """
    _claim(experts)

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        name = next((name for name in _ID_ARGUMENTS if name in kwargs), None)
        ids = args[1] if name is None else kwargs[name]
        layer_map.observe(ids)
        slots = remap_ids(ids, layer_map.slot_of_expert)
        if name is None:
            return (args[0], slots, *args[2:]), kwargs
        return args, {**kwargs, name: slots}

    handle = experts.register_forward_pre_hook(hook, with_kwargs=True)

    def detach() -> None:
        handle.remove()
        setattr(experts, _MARK, False)

    return detach
