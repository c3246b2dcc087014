"""Expert placement: Algorithm 1, its refinement, bounded movement and the row-aware refinement.

Guarantees: see the modules; the same loads give the same placement on every machine.
"""

from routepack_opt.solvers.placing.place import place, place_loads
from routepack_opt.solvers.placing.result import PlacementResult

__all__ = ["PlacementResult", "place", "place_loads"]
