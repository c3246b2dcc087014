"""Reports: one self-contained HTML page from a plan (jinja2 and matplotlib, extra ``report``).

Guarantees: the page fetches nothing, says what its plan says and no more, and reads on a phone, in the dark
and to a screen reader.
"""

from routepack_opt.report.pages import plan_page, write_page

__all__ = ["plan_page", "write_page"]
