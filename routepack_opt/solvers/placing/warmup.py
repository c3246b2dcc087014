"""Get the kernels of placement ready before a deadline counts."""

from __future__ import annotations

import numpy as np

from routepack_opt.solvers.placing.budget import falling_order
from routepack_opt.solvers.placing.methods import place_loads
from routepack_opt.solvers.placing.refine import search_layer
from routepack_opt.solvers.placing.rowaware import refine_for_rows


def warm_up() -> None:
    """Load or compile every kernel of placement: descents, exhaustive split, re-splits, row-aware search."""
    loads = np.random.Generator(np.random.PCG64(0)).integers(1, 1000, (2, 8))
    for method in ("lpt", "refined"):
        found = place_loads(loads, 2, method=method).placement
    place_loads(loads[::-1], 2, previous=found, max_moves=2)
    start = np.array(found.slot_of_expert[0])
    search_layer(loads[0], falling_order(loads)[0], start, 2, 0)  # bound 0: no stage is skipped
    refine_for_rows(np.stack([loads, loads[::-1]]), found, moves=10)
