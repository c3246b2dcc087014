"""What commands print: JSON on standard output, tables for people, progress on standard error."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

# Output that goes to a file or a pipe is laid out wide enough for the tables.
out = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 120)
err = Console(stderr=True, highlight=False)


def print_json(record: Mapping[str, Any]) -> None:
    """Write one JSON object and a line end to standard output."""
    sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")


def print_table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is text and whose others are numbers."""
    table = Table(title=title, title_justify="left", title_style="bold", header_style="dim", box=None)
    for k, name in enumerate(head):
        table.add_column(name, justify="left" if k == 0 else "right", overflow="fold", no_wrap=k == 0)
    for row in rows:
        table.add_row(*row)
    out.print(table)


def forecast(routing: str | None) -> str:
    """Return a note for people where the routing is a forecast, else nothing."""
    return " (predicted routing: loads and costs are a forecast)" if routing == "predicted" else ""


def number(value: float | None, digits: int = 2) -> str:
    """Write a number for reading; a dash for what is unknown."""
    return "-" if value is None else f"{value:,.{digits}f}"


def percent(value: float | None, digits: int = 3) -> str:
    """Write a ratio as a percentage; a dash for what is unknown."""
    return "-" if value is None else f"{100 * value:.{digits}f}%"
