"""Initial population at a fixed number of rows: Algorithm 2 and the wider pool of the planner.

What is built, in the paper's words: FixedRowFFD, EDPAwarePair, WindowShuffle, RandomizedBestFit,
Canonicalize, CanonicalMap and QualityDiversitySelect; :func:`build_seeds` puts them together.
"""

from routepack_opt.solvers.seeding.candidates import CanonicalMap, Seed, canonicalize, score_seed
from routepack_opt.solvers.seeding.diversity import quality_diversity_select
from routepack_opt.solvers.seeding.packing import (
    fixed_row_ffd,
    least_loaded,
    randomized_best_fit,
    window_shuffle,
)
from routepack_opt.solvers.seeding.pairing import edp_aware_pair
from routepack_opt.solvers.seeding.population import build_seeds
from routepack_opt.solvers.seeding.rectangle import is_valid
from routepack_opt.solvers.seeding.warmup import warm_up

__all__ = [
    "CanonicalMap",
    "Seed",
    "build_seeds",
    "canonicalize",
    "edp_aware_pair",
    "fixed_row_ffd",
    "is_valid",
    "least_loaded",
    "quality_diversity_select",
    "randomized_best_fit",
    "score_seed",
    "warm_up",
    "window_shuffle",
]
