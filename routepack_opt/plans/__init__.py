"""The plan: placement, layout, row certificate, score and provenance, with views and a file form.

Guarantees: a plan file alone is enough to show, plot and report; its hash covers every decision and nothing
that depends on the clock.
"""

from routepack_opt.plans.dashboard import metrics
from routepack_opt.plans.plan import RUNGS, Plan
from routepack_opt.plans.realised import Realised, compare
from routepack_opt.plans.snapshot import Snapshot
from routepack_opt.plans.views import SlotView

__all__ = ["RUNGS", "Plan", "Realised", "SlotView", "Snapshot", "compare", "metrics"]
