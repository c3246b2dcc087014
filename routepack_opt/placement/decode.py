"""JSON and YAML of other systems' maps, from a mapping, a text or a file.

Guarantees: parsed as data only; a file that is not what it should be raises :class:`FormatError` with the
place where parsing stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from routepack_opt.errors import FormatError, InputError


def decoded_json(source: Any) -> Any:
    """Return the object in `source`: a mapping as it is, a text that starts with ``{``, or a path."""
    if isinstance(source, Mapping):
        return source
    text, where = _text(source, starts_with="{")
    try:
        return json.loads(text)
    except ValueError as error:
        raise FormatError("JSON", str(error), where) from error


def decoded_yaml(source: Any) -> Any:
    """Return the object in `source`: a mapping as it is, a text of several lines, or a path."""
    if isinstance(source, Mapping):
        return source
    text, where = _text(source, starts_with=None)
    try:
        import yaml
    except ImportError as error:
        raise InputError(
            "PyYAML to read YAML", "it is not installed", where, "Install the extra 'yaml'"
        ) from error
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise FormatError("YAML", " ".join(str(error).split()), where) from error


def _text(source: Any, starts_with: str | None) -> tuple[str, str]:
    if isinstance(source, str):
        inline = "\n" in source if starts_with is None else source.lstrip().startswith(starts_with)
        if inline:
            return source, "text"
    if not isinstance(source, (str, Path)):
        raise InputError("a mapping, a text or a path", type(source).__name__, "source")
    try:
        return Path(source).read_text(encoding="utf-8"), str(source)
    except UnicodeDecodeError as error:
        raise FormatError("a text file", str(error), str(source)) from error
