"""Complete search of the smallest windows: at most two row-shards of at most two cells each.

Guarantees: the result is the layout given or a strictly better one; when the search ends within its nodes,
no layout of the window has a lower score, all three components considered.
"""

from routepack_opt.solvers.annealing.complete.phase import finish_completely, nodes_of
from routepack_opt.solvers.annealing.complete.search import covers

__all__ = ["covers", "finish_completely", "nodes_of"]
