"""What a complete search reads and what it writes on, as named tuples of arrays."""

from typing import Any, NamedTuple

import numpy as np

from routepack_opt.solvers.annealing._kernels.compile import inlined


class Tables(NamedTuple):
    """Read-only numbers of a window; items stand in the order in which they are assigned."""

    demand: Any  # int64 [M, L, P]
    least: Any  # int64 [M + 1, L, P, P]: what items k.. add at least to ranks p and p' of the two blocks
    tokens: Any  # int64 [M], and likewise the next four
    squares: Any
    samples: Any
    room: Any  # tokens that count against the cap: all of a cell for an item that stays alone
    row_class: Any  # 0 everywhere when the two blocks share a row
    linear: Any  # int64 [S]
    quadratic: Any
    grain: Any  # int64 [S]: what the work of every item is a multiple of
    widths: Any  # int64 [2]: cells of each block, 0 when there is one block
    unit: int
    cap: int
    max_samples: int
    same_shard: bool  # whether the two blocks are rows of one shard: their work then adds up
    alike: bool  # whether the two blocks may change places
    attention: int  # least attention of all items together
    each_slot: int  # samples that every slot of two cells must have over both rows; 0 when none are asked for


class Work(NamedTuple):
    """What the search changes."""

    side: Any  # int64 [M]: block of every item, -1 where open
    loads: Any  # int64 [2, L, P]
    peaks: Any  # int64 [2]
    sums: Any  # int64 [2, 4]: tokens, squares, samples, room
    count: Any  # int64 [2]: items of each block
    kind: Any  # int64 [2]: row class of each block that has items
    inside: Any  # int64 [M]: cell of every item of one block
    inner: Any  # int64 [2, 4]: sums of the cells of one block
    held: Any  # int64 [M]: items of one block
    cell: Any  # int64 [M]: cell within its block, of the layout at hand
    best_side: Any  # int64 [M]
    best_cell: Any  # int64 [M]
    best: Any  # int64 [3]: score to beat, then the score found
    nodes: Any  # int64 [2]: made, allowed


TOKENS, SQUARES, SAMPLES, ROOM = range(4)


@inlined
def shift(tables: Tables, sums: Any, item: int, sign: int) -> None:
    """Add an item to the four sums of a block or cell, or take it away."""
    sums[TOKENS] += sign * tables.tokens[item]
    sums[SQUARES] += sign * tables.squares[item]
    sums[SAMPLES] += sign * tables.samples[item]
    sums[ROOM] += sign * tables.room[item]


@inlined
def even(tables: Tables, sums: Any, width: int) -> Any:
    """Attention of a block split as evenly as the grain of its work allows: a lower bound."""
    total = np.int64(0)
    for s in range(tables.linear.size):
        work = tables.linear[s] * sums[TOKENS] + tables.quadratic[s] * sums[SQUARES]
        part = width * tables.grain[s]
        total += (work + part - 1) // part * tables.grain[s]
    return total
