"""Expert placements: per-layer bijections between logical experts and physical slots.

Guarantees: a :class:`Placement` is always a bijection in every layer, in both directions; a map read from
another system's format is refused with the position of the first missing, repeated or unknown expert.
"""

from routepack_opt.placement.files import KINDS, read_map, write_map
from routepack_opt.placement.maps import Placement
from routepack_opt.placement.recorded import loads_from_sglang

__all__ = ["KINDS", "Placement", "loads_from_sglang", "read_map", "write_map"]
