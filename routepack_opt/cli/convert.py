"""`routepack convert`: expert maps between systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from routepack_opt.cli.output import out
from routepack_opt.placement import read_map, write_map


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("convert")(convert)


def convert(
    source: Annotated[Path, typer.Argument(help="Expert map to read.")],
    target: Annotated[Path, typer.Argument(help="Expert map to write.")],
    kind: Annotated[str, typer.Option("--from", help="Its format: eplb, sglang, ascend, trtllm, megatron.")],
    to: Annotated[str, typer.Option("--to", help="Format to write.")],
    ep: Annotated[
        int | None, typer.Option("--ep", help="Expert-parallel ranks, where the map does not say.")
    ] = None,
) -> None:
    """Convert an expert map to another system's format.

    Example: routepack convert map.json map.yaml --from sglang --to trtllm --ep 8
    """
    write_map(read_map(source, kind, ep), target, to)
    out.print(f"written to {target}")
