"""A figure as SVG inside a page.

Guarantees: text stays text in the page's font and colour, colours are variables of the page, shapes with a
hint say it when pointed at, identifiers are unique over all figures of a page, and nothing is fetched.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING

from routepack_opt.plotting.style import COLORS, Hints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_SHAPES = {f"{_SVG}path", f"{_SVG}use"}


@dataclass(frozen=True)
class Drawing:
    """One figure of a page.

    Attributes
    ----------
    name : str
        Unique on the page; begins the identifiers of its elements.
    title, caption : str
        Heading, and what it shows in a sentence, for those who see it and those who do not.
    svg : str
        The element.
    """

    name: str
    title: str
    caption: str
    svg: str


def inline_svg(figure: Figure, name: str, label: str, hints: Hints) -> str:
    """Return a figure as an SVG element for a page.

    Parameters
    ----------
    figure : matplotlib.figure.Figure
        What to write; it is given a transparent background.
    name : str
        Beginning of all its identifiers: the element ``row-0`` becomes ``NAME-row-0``.
    label : str
        What the figure shows, for screen readers.
    hints : Hints
        Texts of elements.
    """
    root = ET.fromstring(_written(figure, name))
    for child in list(root):
        if child.tag == f"{_SVG}metadata" or child.find(f"{_SVG}style") is not None:
            root.remove(child)
    _hint(root, hints)
    used = set(re.findall(r"#([\w.-]+)", ET.tostring(root, encoding="unicode")))
    for element in root.iter():
        _adapt(element, name, used)
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {"role": "img", "aria-label": label, "fill": "currentColor"}
    ET.register_namespace("", _SVG[1:-1])
    text = ET.tostring(root, encoding="unicode")
    for key, color in COLORS.items():
        text = text.replace(color, f"var(--{key})")
    return re.sub(r"\s*\n\s*", " ", text.replace("#000000", "currentColor"))


def _written(figure: Figure, salt: str) -> str:
    import matplotlib

    target = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(target, format="svg", transparent=True, metadata={"Date": None})
    return target.getvalue()


def _hint(root: ET.Element, hints: Hints) -> None:
    """Give shapes their texts, as titles that browsers show."""
    for group in list(root.iter(f"{_SVG}g")):
        texts = hints.get(group.get("id", ""))
        if texts is None:
            continue
        shapes = [element for element in group.iter() if element.tag in _SHAPES]
        for shape, text in zip(shapes, texts, strict=True):
            title = ET.Element(f"{_SVG}title")
            title.text = text
            shape.insert(0, title)


def _adapt(element: ET.Element, name: str, used: set[str]) -> None:
    """Keep identifiers that mean something, put the figure's name before them, and free the font."""
    found = element.attrib.pop("id", None)
    if found is not None and (found in used or not re.fullmatch(r"[a-z0-9.]+_\d+|matplotlib.*", found)):
        element.set("id", f"{name}-{found}")
    link = element.attrib.pop(_LINK, None)
    if link is not None:
        element.set("href", f"#{name}-{link[1:]}")
    if "clip-path" in element.attrib:
        element.set("clip-path", element.attrib["clip-path"].replace("url(#", f"url(#{name}-"))
    if "style" in element.attrib:
        element.set("style", re.sub(r"font-family:[^;]*;?\s*", "", element.attrib["style"]))
