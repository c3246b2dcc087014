"""`routepack show`, `plot`, `report` and `versions`."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path
from typing import Annotated

import typer

from routepack_opt import files
from routepack_opt._version import __version__
from routepack_opt.cli import options as o
from routepack_opt.cli.output import out, print_json
from routepack_opt.cli.reading import describe
from routepack_opt.cli.summary import plan_record, print_plan
from routepack_opt.errors import FormatError
from routepack_opt.plans import Plan
from routepack_opt.window import Window

_PACKAGES = (
    "numpy",
    "numba",
    "scipy",
    "ortools",
    "highspy",
    "pyomo",
    "torch",
    "megatron-core",
    "transformers",
    "ray",
)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("show")(show)
    app.command("plot")(plot)
    app.command("report")(report)
    app.command("versions")(versions)


def show(
    file: Annotated[Path, typer.Argument(help="Window or plan file.", metavar="FILE")], json: o.Json = False
) -> None:
    """Show what a window or a plan holds."""
    kind = files.kind_of(file)
    if kind == "window":
        record = describe(Window.load(file))
        if json:
            print_json(record)
            return
        for key, value in record.items():
            out.print(f"{key:>15}  {value:,}" if isinstance(value, int) else f"{key:>15}  {value}")
    elif kind == "plan":
        plan = Plan.load(file)
        if json:
            print_json(plan_record(plan))
        else:
            print_plan(plan)
    else:
        raise FormatError("a window or plan file", f"a {kind} file", str(file))


def plot(
    file: Annotated[Path, typer.Argument(help="Plan file, or results of `routepack evaluate` (.jsonl).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="PNG, SVG or PDF file to write.")],
    which: Annotated[str, typer.Option(help="plan (all), rows, ranks, loads, fill or search.")] = "plan",
) -> None:
    """Draw a plan: rows by cost, rank loads before and after, token fill, and the search.

    Of the results of an evaluation: simulated throughput with every assumption halved and doubled.

    Example: routepack plot plan.npz -o plan.png
    """
    from routepack_opt.plotting import save_plot, save_sensitivity
    from routepack_opt.suite.evaluation import read_results

    if file.suffix == ".jsonl":
        save_sensitivity(read_results(file), output)
    else:
        save_plot(Plan.load(file), output, which)
    out.print(f"written to {output}")


def report(
    file: Annotated[Path, typer.Argument(help="Plan file, or results of `routepack evaluate` (.jsonl).")],
    output: Annotated[Path, typer.Option("-o", "--output", help="HTML file to write.")],
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
) -> None:
    """Write a plan or an evaluation as one page for a browser.

    The page is self-contained: send it, or open it on a phone.

    Example: routepack report plan.npz -o plan.html
    """
    from routepack_opt.report import plan_page, results_page, write_page
    from routepack_opt.suite.evaluation import read_results

    if file.suffix == ".jsonl":
        page = results_page(read_results(file), title or "RoutePack evaluation")
    else:
        page = plan_page(Plan.load(file), title or "RoutePack plan")
    write_page(page, output)
    out.print(f"written to {output}")


def versions(json: o.Json = False) -> None:
    """Print the versions of the package and of what it uses."""
    found: dict[str, str | None] = {"routepack_opt": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    if json:
        print_json(found)
        return
    for name, version in found.items():
        out.print(f"{name:>15}  {version or 'not installed'}")
