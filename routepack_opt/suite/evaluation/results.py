"""The results table of an evaluation: a header and flat rows, as JSON lines and as CSV.

Guarantees: equal rows give equal bytes; a file of another run is refused rather than mixed in; a last line
without its end, where a run was stopped, is ignored.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from routepack_opt.errors import FormatError, InputError

KIND, SCHEMA = "routepack-results", 1
LAYOUTS = ("baseline", "reorder", "routepack")
Row = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """A results file.

    Parameters
    ----------
    header : mapping
        Suite, budget, version and assumptions.
    rows : sequence of dict
        One per scenario, window, seed and layout; the docs page on file formats lists the columns.
    """

    header: Mapping[str, Any]
    rows: Sequence[Row]


def read_results(path: str | Path) -> Results:
    """Read a results file.

    Raises
    ------
    FormatError
        When the file is none, is newer, or has a line that is no row.
    """
    where = Path(path)
    try:
        lines = where.read_text(encoding="utf-8").split("\n")[:-1]
        records = [json.loads(line) for line in lines]
    except FileNotFoundError as error:
        raise FormatError("a results file", "no such file", str(where)) from error
    except ValueError as error:
        raise FormatError("JSON lines", str(error), str(where)) from error
    header = records[0] if records and isinstance(records[0], dict) else {}
    if header.get("kind") != KIND or header.get("schema") != SCHEMA:
        raise FormatError(f"kind {KIND!r}, schema {SCHEMA}", f"{header.get('kind')!r}", str(where))
    for number, row in enumerate(records[1:], 2):
        if not isinstance(row, dict) or not {"scenario", "window", "seed", "layout"} <= set(row):
            raise FormatError("a row of results", f"line {number}", str(where))
    return Results(header, records[1:])


def open_results(path: Path, header: Mapping[str, Any]) -> list[Row]:
    """Return the rows that a stopped run left, and make the file ready for more.

    Raises
    ------
    InputError
        When the file holds the results of another run.
    """
    if not path.exists() or "\n" not in path.read_text(encoding="utf-8"):
        write_results(path, header, [])
        return []
    kept = read_results(path)
    if dict(kept.header) != json.loads(json.dumps(header)):
        remedy = "Name another file, or remove this one"
        raise InputError("results of the same suite, budget and version", "another run", str(path), remedy)
    plans = Counter((row["scenario"], row["window"], row["seed"]) for row in kept.rows)
    whole = [row for row in kept.rows if plans[row["scenario"], row["window"], row["seed"]] == len(LAYOUTS)]
    write_results(path, header, whole)  # without a line that was cut, and what belongs to it
    return whole


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a results file."""
    with path.open("a", encoding="utf-8") as file:
        file.write("".join(_line(row) for row in rows))


def write_results(path: Path, header: Mapping[str, Any], rows: Iterable[Row]) -> None:
    """Write a whole results file in one step."""
    _replace(path, _line(header) + "".join(_line(row) for row in rows))


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write the rows as CSV; empty fields stand for null."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    _replace(path, text.getvalue())


def _line(record: Mapping[str, Any]) -> str:
    return json.dumps(record, allow_nan=False) + "\n"


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
