"""One block between its cells: every division that the bound does not exclude.

Guarantees: the least attention of any division that obeys the rules, when it is below the limit given.
"""

from typing import Any

import numpy as np

from routepack_opt.solvers.annealing._kernels.compile import inlined, kernel
from routepack_opt.solvers.annealing.complete._kernels.tables import (
    ROOM,
    SAMPLES,
    SQUARES,
    TOKENS,
    Tables,
    Work,
    even,
    shift,
)


@kernel
def split_block(tables: Tables, work: Work, block: int, first: int, limit: int) -> Any:
    """Find the division of a block between its cells with the least attention below `limit`.

    Parameters
    ----------
    tables, work : Tables, Work
        `work.side` says which items the block holds; `work.cell` of these items is set.
    block : int
        0 or 1.
    first : int
        Samples that its first cell must have; -1 for any number.
    limit : int
        What the attention must stay below.

    Returns
    -------
    int
        The attention, or -1 when there is no such division.
    """
    size = np.int64(0)
    for item in range(work.side.size):
        if work.side[item] == block:
            work.held[size] = item
            work.cell[item] = 0
            size += 1
    width, sums = tables.widths[block], work.sums[block]
    if width < 2:
        whole = even(tables, sums, 1)
        fits = sums[ROOM] <= tables.cap and sums[SAMPLES] <= tables.max_samples
        return whole if fits and whole < limit else -1
    least, found = even(tables, sums, width), np.int64(-1)
    if least >= limit or size < 2:
        return -1
    work.inner[:] = 0
    k = np.int64(0)
    work.inside[0] = -1
    while k >= 0 and work.nodes[0] < work.nodes[1]:
        item, at = work.held[k], work.inside[k]
        if at >= 0:
            shift(tables, work.inner[at], item, -1)
        at += 1
        if at == 2 or (k == 0 and at == 1 and first < 0):  # the two cells are alike
            k -= 1
            continue
        work.inside[k] = at
        shift(tables, work.inner[at], item, 1)
        work.nodes[0] += 1
        if not within(tables, work, block, at, first):
            continue
        value = attention_of(tables, work, sums)
        if value >= limit:
            continue
        if k < size - 1:
            k += 1
            work.inside[k] = -1
        elif work.inner[0, SAMPLES] > 0 and work.inner[1, SAMPLES] > 0:
            limit = found = value
            for j in range(size):
                work.cell[work.held[j]] = work.inside[j]
            if value == least:
                break
    return found


@inlined
def within(tables: Tables, work: Work, block: int, at: int, first: int) -> bool:
    """Say whether a cell that was given an item still keeps the rules."""
    sums = work.inner[at]
    if sums[ROOM] > tables.cap or sums[SAMPLES] > tables.max_samples:
        return False
    if first < 0:
        return True
    return sums[SAMPLES] <= (first if at == 0 else work.sums[block, SAMPLES] - first)


@inlined
def attention_of(tables: Tables, work: Work, sums: Any) -> Any:
    """Bound the attention of a division from below; exact when every item has its cell."""
    total = np.int64(0)
    for s in range(tables.linear.size):
        linear, quadratic = tables.linear[s], tables.quadratic[s]
        part = 2 * tables.grain[s]
        worst = (linear * sums[TOKENS] + quadratic * sums[SQUARES] + part - 1) // part * tables.grain[s]
        for at in range(2):
            worst = max(worst, linear * work.inner[at, TOKENS] + quadratic * work.inner[at, SQUARES])
        total += worst
    return total
