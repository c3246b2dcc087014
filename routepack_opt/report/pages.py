"""Fill the page's template.

Guarantees: text from files is escaped; the page is written whole or not at all.
"""

from __future__ import annotations

import os
from pathlib import Path

from routepack_opt.errors import InputError
from routepack_opt.plans import Plan
from routepack_opt.plotting import draw_parts
from routepack_opt.plotting.style import COLORS
from routepack_opt.report.facts import cautions, facts_of, layout_table, origin

_HERE = Path(__file__).parent


def plan_page(plan: Plan, title: str = "RoutePack plan") -> str:
    """Return a plan as an HTML page.

    Parameters
    ----------
    plan : Plan
        Any plan with a layout.
    title : str
        Heading of the page.

    Returns
    -------
    str
        A whole document: styles and figures are inside, nothing is fetched.

    Raises
    ------
    InputError
        When the plan has no layout, or an optional package is missing.
    """
    head, rows = layout_table(plan)
    return fill(
        "plan.html",
        title=title,
        facts=facts_of(plan),
        cautions=cautions(plan),
        head=head,
        rows=rows,
        drawings=draw_parts(plan),
        origin=origin(plan),
    )


def write_page(page: str, path: str | os.PathLike[str]) -> None:
    """Write a page to a file that ends in ``.html``.

    Raises
    ------
    InputError
        For another suffix.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError("a file name ending in .html", repr(str(path)), "output")
    partial = target.with_name(target.name + ".part")
    partial.write_text(page, encoding="utf8")
    partial.replace(target)


def fill(name: str, **values: object) -> str:
    """Fill a template of this package.

    Raises
    ------
    InputError
        When jinja2 is missing.
    """
    try:
        import jinja2
    except ModuleNotFoundError as error:
        remedy = "Install it with: pip install 'routepack_opt[report]'"
        raise InputError("the package jinja2", "none", "report", remedy) from error
    loader = jinja2.FileSystemLoader(_HERE / "templates")
    world = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return world.get_template(name).render(colors=COLORS, **values)
