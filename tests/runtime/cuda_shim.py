"""What must be faked so that Megatron-Core 0.16.1 runs on a machine without CUDA. Tests only.

Everything else in these tests is the real thing: router, dispatchers, experts, DDP buffers, optimizer.
"""

from __future__ import annotations

import contextlib

import torch
from torch.overrides import TorchFunctionMode

CPU = torch.device("cpu")


class _Stream:
    """A stream that is always done."""

    def wait_stream(self, other):
        """Nothing to wait for."""

    def record_event(self):
        """Return something that can be synchronized."""
        return self

    def synchronize(self):
        """Nothing to wait for."""


_STREAM = _Stream()


class CudaSpelledAsCpu(TorchFunctionMode):
    """`device="cuda"` means the CPU, and dtype strings are spelled as on CUDA."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        """Rewrite the few calls that ask for CUDA by name."""
        kwargs = dict(kwargs or {})
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = CPU
        if func is torch.Tensor.type and len(args) == 1 and not kwargs:
            return func(*args).replace("torch.", "torch.cuda.")
        if func is torch.Tensor.cuda:
            return args[0]
        return func(*args, **kwargs)


_INSTALLED: list[bool] = []


def install():
    """Patch torch and megatron in this process, once, before building a model."""
    if _INSTALLED:
        return
    _INSTALLED.append(True)
    from megatron.core.transformer.moe import moe_utils, token_dispatcher

    for name in ("Stream", "current_stream", "default_stream"):
        setattr(torch.cuda, name, lambda *a, **k: _STREAM)
    torch.cuda.current_device = lambda: CPU
    torch.cuda.synchronize = torch.cuda.empty_cache = lambda *a, **k: None
    torch.cuda.stream = lambda *a, **k: contextlib.nullcontext()
    moe_utils.te_general_gemm = None
    token_dispatcher.MoEAlltoAllTokenDispatcher.cuda_dtoh_stream = _STREAM

    def to_cpu(tensor, as_numpy=False, record_stream=False):
        return tensor.numpy() if as_numpy and isinstance(tensor, torch.Tensor) else tensor

    token_dispatcher.maybe_move_tensor_to_cpu = to_cpu
    from megatron.core.tensor_parallel import random as mcore_random

    mcore_random._get_cuda_rng_state = lambda *a, **k: torch.get_rng_state()
    mcore_random._set_cuda_rng_state = lambda state, *a, **k: torch.set_rng_state(state)
    torch.cuda.get_rng_state = lambda *a, **k: torch.get_rng_state()
    torch.cuda.manual_seed = torch.manual_seed
    CudaSpelledAsCpu().__enter__()
