"""The innermost operation: the peak sums of two row-shards after an exchange, eight layers at a time.

Guarantees: exact int32 loads; the compiled and the plain form return the same integers.

Loads are held as ``[blocks, ranks, LANES]``: a block is LANES layers side by side, so that the maximum over
ranks is a chain of vertical SIMD maxima. Compilers do not find this form by themselves (about five times
slower), hence the explicit vector code; with the JIT off the plain form runs.
"""

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.dispatcher import Dispatcher
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from routepack_opt.solvers.annealing._kernels.compile import kernel

LANES = 8
_LOWEST = -(2**31)


def exchanged_peaks_plain(
    loads: Any, a: int, b: int, out_a: Any, i: int, out_b: Any, j: int
) -> tuple[int, int]:
    """Return the sums over layers of the busiest rank of blocks a and b after the exchange.

    Parameters
    ----------
    loads : int32 array [row-shards, blocks, ranks, LANES]
        W of every row-shard; padded layers hold 0.
    a, b : int
        Two row-shards.
    out_a, out_b : int array [*, blocks, ranks, LANES]
        ``out_a[i]`` leaves a for b and ``out_b[j]`` leaves b for a.
    """
    change = out_b[j].astype(np.int64) - out_a[i].astype(np.int64)
    after_a = (loads[a] + change).max(axis=1)
    after_b = (loads[b] - change).max(axis=1)
    return int(after_a.sum()), int(after_b.sum())


@intrinsic
def _vector_peaks(typingctx, loads, a, b, out_a, i, out_b, j):  # type: ignore[no-untyped-def]
    """Typing and code of the vector form; arguments as in `exchanged_peaks_plain`."""
    if not all(isinstance(t, types.Array) and t.layout == "C" and t.ndim == 4 for t in (loads, out_a, out_b)):
        raise TypingError("expected C-contiguous arrays [*, blocks, ranks, lanes]")
    signature = types.UniTuple(types.int64, 2)(
        loads, types.intp, types.intp, out_a, types.intp, out_b, types.intp
    )
    return signature, _emit_peaks


def _emit_peaks(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
    """Emit: for every block, vertical maxima over ranks of loads[a] + d and loads[b] - d, then their sums."""
    int32, int64 = ir.IntType(32), ir.IntType(64)
    vector = ir.VectorType(int32, LANES)
    loads, out_a, out_b = (make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 3, 5))
    blocks, ranks = (builder.extract_value(loads.shape, k) for k in (1, 2))
    stride = builder.mul(builder.mul(blocks, ranks), ir.Constant(int64, LANES))

    def row(array, index):  # type: ignore[no-untyped-def]
        return builder.gep(array.data, [builder.mul(index, stride)])

    def read(pointer, offset, kind):  # type: ignore[no-untyped-def]
        narrow = ir.VectorType(ir.IntType(kind.dtype.bitwidth), LANES)
        value = builder.load(builder.bitcast(builder.gep(pointer, [offset]), narrow.as_pointer()))
        value.align = kind.dtype.bitwidth // 8
        if kind.dtype.bitwidth == 32:
            return value
        return builder.sext(value, vector) if kind.dtype.signed else builder.zext(value, vector)

    def declare(name, result, *parameters):  # type: ignore[no-untyped-def]
        return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, parameters), name)

    larger = declare(f"llvm.smax.v{LANES}i32", vector, vector, vector)
    add_up = declare(f"llvm.vector.reduce.add.v{LANES}i32", int32, vector)
    in_a, in_b = row(loads, arguments[1]), row(loads, arguments[2])
    from_a, from_b = row(out_a, arguments[4]), row(out_b, arguments[6])
    lowest, zero = ir.Constant(vector, [_LOWEST] * LANES), ir.Constant(int64, 0)
    sums = [cgutils.alloca_once_value(builder, zero) for _ in range(2)]
    peaks = [cgutils.alloca_once(builder, vector) for _ in range(2)]
    offset = cgutils.alloca_once_value(builder, zero)
    with cgutils.for_range(builder, blocks):
        for peak in peaks:
            builder.store(lowest, peak)
        with cgutils.for_range(builder, ranks):
            at = builder.load(offset)
            change = builder.sub(read(from_b, at, signature.args[5]), read(from_a, at, signature.args[3]))
            after = builder.add(read(in_a, at, signature.args[0]), change)
            builder.store(builder.call(larger, [builder.load(peaks[0]), after]), peaks[0])
            after = builder.sub(read(in_b, at, signature.args[0]), change)
            builder.store(builder.call(larger, [builder.load(peaks[1]), after]), peaks[1])
            builder.store(builder.add(at, ir.Constant(int64, LANES)), offset)
        for total, peak in zip(sums, peaks, strict=True):
            block = builder.sext(builder.call(add_up, [builder.load(peak)]), int64)
            builder.store(builder.add(builder.load(total), block), total)
    return context.make_tuple(builder, signature.return_type, [builder.load(total) for total in sums])


@kernel
def _compiled_peaks(loads: Any, a: int, b: int, out_a: Any, i: int, out_b: Any, j: int) -> tuple[int, int]:
    return _vector_peaks(loads, a, b, out_a, i, out_b, j)  # type: ignore[call-arg]


exchanged_peaks = _compiled_peaks if isinstance(_compiled_peaks, Dispatcher) else exchanged_peaks_plain
