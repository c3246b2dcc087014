"""Which form a source has, by explicit markers.

Guarantees: a form is taken only for a marker of its own (field names, magic bytes, prefixes); where none or
several fit, the caller must name the form and the error lists what fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from routepack_opt.errors import InputError
from routepack_opt.replay.npzfiles import Npz
from routepack_opt.replay.options import Options
from routepack_opt.replay.packed import FIELDS, read_arrays, read_packed, read_packed_file
from routepack_opt.replay.routes import Routes

FORMS = ("packed", "arrays")


def find_form(source: Any, form: str | None, options: Options) -> tuple[str, Iterator[Routes]]:
    """Return the name of the form of `source`, and its samples."""
    if form is not None and form not in FORMS:
        raise InputError(f"one of {', '.join(FORMS)}", f"{form!r}", "form")
    if isinstance(source, str | Path):
        path = Path(source)
        with Npz(path) as file:
            names = file.names
        if names >= FIELDS:
            return "packed", read_packed_file(path, options)
        raise InputError(f"the fields {', '.join(sorted(FIELDS))}", f"{', '.join(sorted(names))}", str(path))
    if isinstance(source, Mapping):
        if set(source) >= FIELDS:
            return "packed", read_packed(source, options)
        raise InputError(f"the fields {', '.join(sorted(FIELDS))}", f"{', '.join(sorted(source))}", "replay")
    if isinstance(source, Iterable):
        return "arrays", read_arrays(source, options)
    raise InputError("a path, mapping or iterable of arrays", type(source).__name__, "replay")
