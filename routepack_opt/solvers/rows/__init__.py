"""Row certification: the least number of execution rows, with a proof."""

from routepack_opt.solvers.rows.pipeline import certify_rows
from routepack_opt.solvers.rows.recheck import verify
from routepack_opt.solvers.rows.warm import warm_up_rows

__all__ = ["certify_rows", "verify", "warm_up_rows"]
