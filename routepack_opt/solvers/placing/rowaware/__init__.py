"""Row-aware refinement: lower what the rows of a packing pay for a placement.

Guarantees: see :mod:`routepack_opt.solvers.placing.rowaware.refine`.
"""

from routepack_opt.solvers.placing.rowaware.forecast import forecast_rows
from routepack_opt.solvers.placing.rowaware.refine import RowRefinement, refine_for_rows

__all__ = ["RowRefinement", "forecast_rows", "refine_for_rows"]
