"""The problem: one frozen object that every solver takes.

A :class:`Problem` is a window with a :class:`Topology`, attention stages, layout rules and a capacity. It
owns the aligned lengths, the items, and the exact integer units of the score.
"""

from routepack_opt.problem.core import Problem
from routepack_opt.problem.items import Items
from routepack_opt.problem.rules import LayoutRules
from routepack_opt.problem.topology import Topology
from routepack_opt.stages import AttentionStage

__all__ = ["AttentionStage", "Items", "LayoutRules", "Problem", "Topology"]
