"""Attention stages and where their coefficients come from: typed, fitted to a profile, or public shapes.

Guarantees: every stage has finite coefficients of at least 0; all three sources use the same unit, the time
of one routed assignment through one expert on one EP rank (design notes in the docs page on costs).
"""

from routepack_opt.stages.stage import AttentionStage

__all__ = ["AttentionStage"]
