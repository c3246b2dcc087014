"""How fast routes are counted, beside a plain copy of the same bytes.

Usage: ``python benchmarks/counting.py``

Prints, for each shape and dtype: millions of checked ids per second of one core (counting a sample as
``read`` does, with all checks), its time over that of a copy, and the rate of ``read`` as a whole on one
thread. Times are processor times of the thread, so a busy machine disturbs them little.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from routepack_opt.model import MoEModel
from routepack_opt.replay import read
from routepack_opt.replay.counting import Counting, count_sample
from routepack_opt.replay.routes import Routes

SHAPES = (
    ("small model, 8 layers, 32 experts, top-4", 16384, MoEModel(8, 32, 4)),
    ("48 layers, 128 experts, top-8", 4096, MoEModel.preset("Qwen3-30B-A3B")),
    ("61 layers with 3 dense, 256 experts, top-8", 4096, MoEModel.preset("DeepSeek-V3")),
)
REPEATS = 25


def routes(rows: int, model: MoEModel, seed: int = 0) -> np.ndarray:
    """Random distinct experts [rows, layers, K]; dense layers hold zeros."""
    rng = np.random.default_rng(seed)
    block = np.argsort(rng.random((64, model.layers, model.experts)), axis=2)[:, :, : model.top_k]
    ids = block[rng.integers(0, 64, rows)]
    # Rows drawn twice in succession are allowed, layers of a row are shuffled on their own.
    ids = ids[:, rng.permutation(model.layers)]
    ids[:, list(model.dense_layers)] = 0
    return ids


def best(work: Callable[[], object]) -> float:
    """Shortest of several runs in seconds of processor time."""
    times = []
    for _ in range(REPEATS):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


def main() -> None:
    """Print the table."""
    print(f"{'shape':46} {'dtype':7} {'kernel':>12} {'per copy':>9} {'read':>12}")
    for name, rows, model in SHAPES:
        ids = routes(rows, model)
        for dtype in ("uint8", "int16", "int32"):
            if model.experts > np.iinfo(dtype).max + 1:
                continue
            array = np.ascontiguousarray(ids, dtype)
            checked = rows * model.num_moe_layers * model.top_k
            sample, how = Routes(array, rows + 1), Counting(model, repeat_limit=None)
            kernel = best(lambda sample=sample, how=how: count_sample(sample, how))
            target = np.empty_like(array)
            copy = best(lambda array=array, target=target: np.copyto(target, array))
            whole = best(
                lambda array=array, model=model, n=rows + 1: read(
                    [array] * 4, model, lengths=[n] * 4, threads=1, repeat_limit=None
                )
            )
            rates = checked / kernel / 1e6, 4 * checked / whole / 1e6
            print(f"{name:46} {dtype:7} {rates[0]:8.0f} M/s {kernel / copy:8.1f}x {rates[1]:8.0f} M/s")


if __name__ == "__main__":
    main()
