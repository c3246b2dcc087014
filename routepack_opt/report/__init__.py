"""Reports: one self-contained HTML page from a plan or an evaluation (extra ``report``).

Guarantees: a page fetches nothing, says what its file says and no more, and reads on a phone, in the dark
and to a screen reader.
"""

from routepack_opt.report.pages import plan_page, write_page
from routepack_opt.report.results import results_page

__all__ = ["plan_page", "results_page", "write_page"]
