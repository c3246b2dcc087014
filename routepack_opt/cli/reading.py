"""`routepack import`: routing replay to a window file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from routepack_opt.cli.options import Json, needed
from routepack_opt.cli.output import out, print_json
from routepack_opt.errors import FormatError, InputError
from routepack_opt.model import MoEModel
from routepack_opt.window import Window, read_replay


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("import")(import_replay)


def import_replay(
    replay: Annotated[Path, typer.Argument(help="Replay file of any known form.", metavar="REPLAY")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Window file to write.")],
    layers: Annotated[int | None, typer.Option(help="Decoder layers of the model.")] = None,
    experts: Annotated[int | None, typer.Option(help="Routed experts per MoE layer.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Experts per token.")] = None,
    dense_layers: Annotated[str, typer.Option(help="Decoder layers without experts: 0,1,2.")] = "",
    model: Annotated[str | None, typer.Option(metavar="PRESET", help="A public model instead.")] = None,
    form: Annotated[str | None, typer.Option(help="Form, where the file does not say it.")] = None,
    policy: Annotated[str, typer.Option(help="For rows without a route: error, count or rescale.")] = "error",
    layer_axis: Annotated[str | None, typer.Option(help="all or moe, where both readings fit.")] = None,
    side: Annotated[str | None, typer.Option(help="left or right padding, where no mask says it.")] = None,
    lengths: Annotated[Path | None, typer.Option(help=".npy with the tokens of every sample.")] = None,
    repeat_limit: Annotated[
        int, typer.Option(help="Identical rows in succession that are refused; 0 accepts any number.")
    ] = 64,
    all_rows_real: Annotated[
        bool, typer.Option("--all-rows-real", help="Vouch for every row; needed for top-1 models.")
    ] = False,
    predicted: Annotated[
        bool, typer.Option("--predicted", help="The routing is forecast, not recorded.")
    ] = False,
    policy_version: Annotated[str | None, typer.Option(help="Version of the weights.")] = None,
    json: Json = False,
) -> None:
    """Count the experts of every sample of a replay and write a window.

    Example: routepack import replay.npz --layers 8 --experts 32 --top-k 4 -o window.npz
    """
    shape = _model(model, layers, experts, top_k, dense_layers)
    window = read_replay(
        replay,
        shape,
        form=form,
        policy=policy,
        layer_axis=layer_axis,
        side=side,
        lengths=None if lengths is None else _lengths(lengths),
        mask=True if all_rows_real else None,
        repeat_limit=repeat_limit or None,
        routing="predicted" if predicted else "exact",
        policy_version=policy_version,
    )
    window.save(output)
    record = describe(window) | {"output": str(output)}
    if json:
        print_json(record)
        return
    out.print(
        f"{output}: {record['samples']} samples, {record['tokens']:,} tokens, "
        f"{record['layers']} MoE layers of {record['experts']} experts"
    )
    for key, value in window.source.items():
        if isinstance(value, (int, str, float)):
            out.print(f"  {key}: {value}")


def _lengths(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (OSError, EOFError, ValueError) as error:
        raise FormatError("a .npy file of lengths", str(error).split(". ")[0], str(path)) from error


def describe(window: Window) -> dict[str, int | str | float | None]:
    """Return what a window holds, as plain values."""
    return {
        "samples": window.size,
        "tokens": int(window.lengths.sum()),
        "longest": int(window.lengths.max()),
        "layers": window.num_layers,
        "experts": window.num_experts,
        "assignments": int(window.loads.sum()),
        "routing": window.routing,
        "policy_version": window.policy_version,
        "digest": window.digest,
    }


def _model(
    preset: str | None, layers: int | None, experts: int | None, top_k: int | None, dense_layers: str
) -> MoEModel:
    if preset is not None:
        return MoEModel.preset(preset)
    try:
        dense = tuple(int(part) for part in dense_layers.split(",") if part.strip())
    except ValueError as error:
        raise InputError("layer numbers like 0,1,2", repr(dense_layers), "--dense-layers") from error
    sizes = (needed(layers, "--layers"), needed(experts, "--experts"), needed(top_k, "--top-k"))
    return MoEModel(*sizes, dense_layers=dense)
