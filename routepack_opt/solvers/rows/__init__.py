"""Row certification: the least number of execution rows, with a proof."""

from routepack_opt.solvers.rows.pipeline import certify_rows
from routepack_opt.solvers.rows.recheck import verify

__all__ = ["certify_rows", "verify"]
