"""`routepack place`: expert placement alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from routepack_opt.cli import options as o
from routepack_opt.cli.output import forecast, number, out, print_json, print_table
from routepack_opt.placement import read_map, write_map
from routepack_opt.solvers.placing import PlacementResult, place_loads
from routepack_opt.window import Window


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("place")(place_window)


def place_window(
    window: o.WindowFile,
    ep: Annotated[int, typer.Option("--ep", help="Expert-parallel ranks P.")],
    method: Annotated[str, typer.Option(help="refined, or lpt for the paper's Algorithm 1.")] = "refined",
    previous: Annotated[Path | None, typer.Option(help="Expert map to move away from.")] = None,
    max_moves: Annotated[int | None, typer.Option(help="Most experts that may change rank.")] = None,
    kind: Annotated[str, typer.Option("--map", help="Format of expert maps.")] = "sglang",
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Place the experts of a window on EP ranks, layer by layer.

    Example: routepack place window.npz --ep 8 -o map.json
    """
    loaded = Window.load(window)
    start = None if previous is None else read_map(previous, kind, ep, loaded.model)
    chosen = o.one_of(method, ("refined", "lpt"), "--method")
    result = place_loads(loaded.loads, ep, method=chosen, previous=start, max_moves=max_moves)
    if output is not None:
        write_map(result.placement, output, kind, loaded.model)
    if json:
        print_json(_record(result) | {"routing": loaded.routing})
        return
    head = ("layer", "busiest rank", "bound", "above", "proven best")
    rows = [
        [str(k), f"{peak:,}", f"{bound:,}", number(100 * (peak / bound - 1) if bound else 0.0, 3) + "%", met]
        for k, (peak, bound, met) in enumerate(_layers(result))
    ]
    print_table(f"Busiest rank per layer ({result.method}){forecast(loaded.routing)}", head, rows)
    out.print(f"{result.moves} experts change rank")


def _layers(result: PlacementResult) -> list[tuple[int, int, str]]:
    met = ["yes" if flag else "-" for flag in result.bound_met]
    return list(zip(map(int, result.peak), map(int, result.bound), met, strict=True))


def _record(result: PlacementResult) -> dict[str, Any]:
    return {
        "method": result.method,
        "moves": result.moves,
        "peak": [int(x) for x in result.peak],
        "bound": [int(x) for x in result.bound],
        "slot_of_expert": result.placement.slot_of_expert.tolist(),
        "digest": result.placement.digest,
    }
