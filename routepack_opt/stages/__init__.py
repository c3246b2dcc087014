"""Attention stages and where their coefficients come from: typed, fitted to a profile, or public shapes.

Guarantees: every stage has finite coefficients of at least 0; all three sources use the same unit, the time
of one routed assignment through one expert on one EP rank (derived in the docs page on costs).
"""

from routepack_opt.stages.fit import StageFit, fit_stages
from routepack_opt.stages.presets import preset_stages
from routepack_opt.stages.stage import AttentionStage

__all__ = ["AttentionStage", "StageFit", "fit_stages", "preset_stages"]
