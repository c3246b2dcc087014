"""Options that several commands share, spelled and explained once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from routepack_opt.errors import FormatError, InputError
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.window import Window

#: Exit code after Ctrl-C, as shells have it.
INTERRUPTED = 130

WindowFile = Annotated[
    Path, typer.Argument(help="Window file, as `routepack import` writes it.", metavar="WINDOW")
]
Dp = Annotated[int, typer.Option("--dp", help="Data-parallel slots D.", rich_help_panel="Topology")]
Ep = Annotated[int, typer.Option("--ep", help="Expert-parallel ranks P.", rich_help_panel="Topology")]
Shards = Annotated[
    int,
    typer.Option(
        "--edp-shards", help="Blocks of slots whose expert traffic is joined, G.", rich_help_panel="Topology"
    ),
]
RanksPerNode = Annotated[
    int | None,
    typer.Option(
        "--ranks-per-node",
        help="EP ranks of one node; seats cells so that the fewest assignments leave their node.",
        rich_help_panel="Topology",
    ),
]
Capacity = Annotated[
    int | None,
    typer.Option(
        "--capacity", help="Tokens per cell, C (per cell, not per GPU).", rich_help_panel="Topology"
    ),
]
Stages = Annotated[
    list[str] | None,
    typer.Option(
        "--stage", metavar="NAME:ALPHA:BETA", help="Attention stage; repeatable.", rich_help_panel="Attention"
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="PRESET", help="Stages of a public model instead.", rich_help_panel="Attention"
    ),
]
Tp = Annotated[
    int, typer.Option("--tp", help="Tensor-parallel size, for --model.", rich_help_panel="Attention")
]
Cp = Annotated[
    int, typer.Option("--cp", help="Context-parallel size, for --model.", rich_help_panel="Attention")
]

_RULES: dict[str, Any] = {"rich_help_panel": "Layout rules"}
LengthMultiple = Annotated[int, typer.Option(help="Round every length up to it.", **_RULES)]
CellMultiple = Annotated[int, typer.Option(help="Lower the cap to a multiple of it.", **_RULES)]
PadRouting = Annotated[str, typer.Option(help="Who routes alignment pads: none or uniform.", **_RULES)]
MinRows = Annotated[int, typer.Option(help="Fewest rows.", **_RULES)]
RowMultiple = Annotated[int, typer.Option(help="Rows are a multiple of it.", **_RULES)]
EqualSamples = Annotated[
    bool,
    typer.Option("--equal-samples-per-slot", help="The same number of samples for every slot.", **_RULES),
]
MaxSamples = Annotated[
    int | None, typer.Option("--max-samples-per-cell", help="Most samples in a cell.", **_RULES)
]
SameCell = Annotated[
    list[str] | None,
    typer.Option("--same-cell", metavar="I,J,...", help="Samples that share a cell; repeatable.", **_RULES),
]
RowClass = Annotated[
    Path | None,
    typer.Option("--row-class", help="JSON list: a class per sample; rows hold one class.", **_RULES),
]
Oversize = Annotated[str, typer.Option(help="A sample over the cap: reject or alone.", **_RULES)]
RowOrder = Annotated[str, typer.Option(help="Order of rows: none or largest_first.", **_RULES)]

Seed = Annotated[int, typer.Option("--seed", help="Seed of all random streams.", rich_help_panel="Search")]
Threads = Annotated[
    int,
    typer.Option("--threads", help="Threads; the plan does not depend on them.", rich_help_panel="Search"),
]
Output = Annotated[Path | None, typer.Option("-o", "--output", help="File to write.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]


def stages_of(
    texts: list[str] | None, preset: str | None, capacity: int, tp: int, cp: int
) -> tuple[AttentionStage, ...]:
    """Build the attention stages from ``--stage`` or ``--model``.

    Raises
    ------
    InputError
        When both are given.
    """
    if texts and preset:
        raise InputError("--stage or --model", "both", "attention stages")
    if preset is not None:
        from routepack_opt.stages import preset_stages

        return preset_stages(preset, capacity=capacity, tp=tp, cp=cp)
    return tuple(AttentionStage.parse(text) for text in texts or ())


def rules_of(given: Mapping[str, Any]) -> LayoutRules:
    """Build the layout rules from a command's own options, which have the rules' names.

    Raises
    ------
    InputError
        Naming the rule.
    """
    values = {rule.name: given[rule.name] for rule in fields(LayoutRules) if rule.name in given}
    values["same_cell"] = _tuples(values.get("same_cell"))
    values["row_class"] = _classes(values.get("row_class"))
    return LayoutRules(**values)


def _tuples(texts: list[str] | None) -> tuple[tuple[int, ...], ...]:
    try:
        return tuple(tuple(int(part) for part in text.split(",")) for text in texts or ())
    except ValueError as error:
        raise InputError("sample numbers like 0,1", str(error), "--same-cell") from error


def _classes(path: Path | None) -> tuple[int, ...] | None:
    return None if path is None else tuple(read_json_list(path, "a class per sample"))


def read_json_list(path: Path, what: str) -> list[Any]:
    """Read a file that holds one JSON list.

    Raises
    ------
    FormatError
        Saying `what` the list should have held.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(f"a JSON list: {what}", str(error), str(path)) from error
    if not isinstance(found, list):
        raise FormatError(f"a JSON list: {what}", type(found).__name__, str(path))
    return found


def problem_of(
    window: Window,
    topology: Topology,
    capacity: int | None,
    stages: tuple[AttentionStage, ...],
    rules: LayoutRules,
) -> Problem:
    """Build the problem of a command, with a message for the option that is missing."""
    return Problem(window, topology, needed(capacity, "--capacity"), stages, rules)


def needed(value: int | None, option: str) -> int:
    """Return an option's value, or say that the option is missing.

    Raises
    ------
    InputError
        When it was not given.
    """
    if value is None:
        raise InputError("a value", "none", option, f"Add {option}")
    return value


def one_of(value: str, allowed: tuple[str, ...], option: str) -> Any:
    """Return `value` when it is allowed.

    Raises
    ------
    InputError
        Naming the option and what it takes.
    """
    if value not in allowed:
        raise InputError(" or ".join(allowed), repr(value), option)
    return value


MethodName = Literal["annealing", "paper", "seed"]
