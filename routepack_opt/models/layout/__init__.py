"""The layout problem at fixed rows and placement (Eqs. 6-15), as one linear model in whole numbers.

Guarantees: the feasible points are exactly the layouts that obey the rules (one representative per symmetry
class when symmetry rows are on); the three objectives equal the score's components divided by `unit`.
"""

from routepack_opt.models.layout.formulation import COMPONENTS, LayoutModel, build_layout_model

__all__ = ["COMPONENTS", "LayoutModel", "build_layout_model"]
