"""Expert placement: Algorithm 1, its refinement, bounded movement and the row-aware refinement.

Guarantees: see the modules; the same loads give the same placement on every machine.
"""

from routepack_opt.solvers.placing.methods import place, place_loads
from routepack_opt.solvers.placing.result import PlacementResult
from routepack_opt.solvers.placing.rowaware import RowRefinement, forecast_rows, refine_for_rows

__all__ = ["PlacementResult", "RowRefinement", "forecast_rows", "place", "place_loads", "refine_for_rows"]
