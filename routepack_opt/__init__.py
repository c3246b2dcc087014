"""RoutePack: expert placement and certified data packing for mixture-of-experts reinforcement learning.

Guarantees: importing the package prints nothing and loads nothing heavy. A public name is imported from its
module at first use, and stays what it is whichever submodules are imported, and in whatever order.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from .certificates import RowCertificate as RowCertificate
    from .errors import CheckError as CheckError
    from .errors import FormatError as FormatError
    from .errors import InfeasibleError as InfeasibleError
    from .errors import InputError as InputError
    from .errors import NoLayoutError as NoLayoutError
    from .errors import RoutePackError as RoutePackError
    from .layout import Layout as Layout
    from .model import MoEModel as MoEModel
    from .placement import Placement as Placement
    from .planner import AnnealingParameters as AnnealingParameters
    from .planner import Budget as Budget
    from .planner import Mix as Mix
    from .planner import Planner as Planner
    from .planner import PlannerConfig as PlannerConfig
    from .planner import plan as plan
    from .planner import warm_up as warm_up
    from .plans import Plan as Plan
    from .plans import compare as compare
    from .plans import metrics as metrics
    from .problem import LayoutRules as LayoutRules
    from .problem import Problem as Problem
    from .problem import Topology as Topology
    from .scoring import Score as Score
    from .scoring import score as score
    from .solvers.exact import solve_exact as solve_exact
    from .solvers.placing import place as place
    from .solvers.placing import place_loads as place_loads
    from .solvers.rows import certify_rows as certify_rows
    from .solvers.rows import verify as verify
    from .stages import AttentionStage as AttentionStage
    from .stages import fit_stages as fit_stages
    from .stages import preset_stages as preset_stages
    from .window import Window as Window
    from .window import read_replay as read_replay

# Public name -> its module. A new name takes a line here and one above; a test compares the two.
_PUBLIC = {
    "RowCertificate": "certificates",
    "CheckError": "errors",
    "FormatError": "errors",
    "InfeasibleError": "errors",
    "InputError": "errors",
    "NoLayoutError": "errors",
    "RoutePackError": "errors",
    "Layout": "layout",
    "MoEModel": "model",
    "Placement": "placement",
    "AnnealingParameters": "planner",
    "Budget": "planner",
    "Mix": "planner",
    "Planner": "planner",
    "PlannerConfig": "planner",
    "plan": "planner",
    "warm_up": "planner",
    "Plan": "plans",
    "compare": "plans",
    "metrics": "plans",
    "LayoutRules": "problem",
    "Problem": "problem",
    "Topology": "problem",
    "Score": "scoring",
    "score": "scoring",
    "solve_exact": "solvers.exact",
    "place": "solvers.placing",
    "place_loads": "solvers.placing",
    "certify_rows": "solvers.rows",
    "verify": "solvers.rows",
    "AttentionStage": "stages",
    "fit_stages": "stages",
    "preset_stages": "stages",
    "Window": "window",
    "read_replay": "window",
}

__all__ = [*_PUBLIC]


if not TYPE_CHECKING:  # a type checker that saw this would take any name for a public one

    def __getattr__(name: str) -> Any:
        """Import a public name from its module and keep it, so that this runs once for each name."""
        if name not in _PUBLIC:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    """List the public names, imported already or not."""
    return sorted({*globals(), *_PUBLIC})
