"""Copy bytes of CPU memory past the caches.

Guarantees: the target holds the source's bytes when the call returns, for every thread; the compiled and the
plain form write the same. A plain copy reads the lines that it is about to overwrite; with streaming stores,
four pages under way at once, a copy of megabytes that no cache holds takes half the time.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic

__all__ = ["copy_bytes"]

_LINE = 64
_PAGE = 4096
_PAGES = 4


def _copy_plain(target: Any, source: Any) -> None:
    np.copyto(target, source)


@intrinsic
def _stream_line(typingctx, target, source):  # type: ignore[no-untyped-def]
    """Copy one line from any address to an aligned one, with a streaming store."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        line = ir.VectorType(ir.IntType(64), _LINE // 8).as_pointer()
        value = builder.load(builder.inttoptr(arguments[1], line))
        value.align = 1
        store = builder.store(value, builder.inttoptr(arguments[0], line), align=_LINE)
        store.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(ir.IntType(32), 1)]))
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp), emit


@intrinsic
def _fence(typingctx):  # type: ignore[no-untyped-def]
    """Make streaming stores visible before any later store: they are not ordered by themselves."""

    def emit(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        builder.fence("seq_cst")
        return context.get_dummy_value()

    return types.void(), emit


@njit("void(uint8[::1], uint8[::1])", cache=True, nogil=True)
def _copy_streaming(target: Any, source: Any) -> None:
    size = len(target)
    into: Any = np.int64(target.ctypes.data)
    out: Any = np.int64(source.ctypes.data)
    head: int = min(size, -into % _LINE)
    lines = size - (size - head) % _LINE
    blocks = lines - (lines - head) % (_PAGES * _PAGE)
    target[:head] = source[:head]
    for block in range(head, blocks, _PAGES * _PAGE):
        for line in range(block, block + _PAGE, _LINE):
            for at in range(line, line + _PAGES * _PAGE, _PAGE):
                _stream_line(into + at, out + at)  # type: ignore[call-arg]
    for at in range(blocks, lines, _LINE):
        _stream_line(into + at, out + at)  # type: ignore[call-arg]
    target[lines:] = source[lines:]
    _fence()  # type: ignore[call-arg]


_compiled = isinstance(_copy_streaming, Dispatcher)


def copy_bytes(target: Any, source: Any) -> None:
    """Copy `source` over `target`: uint8 arrays of the same length, contiguous, not overlapping.

    Raises
    ------
    ValueError
        When the lengths differ; nothing is written.
    """
    if target.shape != source.shape:
        raise ValueError(f"expected {target.shape} bytes, found {source.shape}")
    (_copy_streaming if _compiled else _copy_plain)(target, source)
