"""`routepack certify` and `routepack export`: the row count, its proof, and its model for other solvers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from routepack_opt.certificates import RowCertificate
from routepack_opt.cli import options as o
from routepack_opt.cli.output import err, number, out, print_json
from routepack_opt.errors import InputError
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.window import Window

_SOLVED = ("certified", "best_known")


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command("certify")(certify)
    app.command("export")(export)


def certify(
    file: Annotated[
        Path, typer.Argument(help="Window file, or a bin-packing instance.", metavar="WINDOW|FILE.bpp")
    ],
    dp: Annotated[int | None, typer.Option("--dp", help="Data-parallel slots D (1 for an instance).")] = None,
    capacity: o.Capacity = None,
    length_multiple: o.LengthMultiple = 1,
    cell_multiple: o.CellMultiple = 1,
    min_rows: o.MinRows = 1,
    row_multiple: o.RowMultiple = 1,
    equal_samples_per_slot: o.EqualSamples = False,
    max_samples_per_cell: o.MaxSamples = None,
    same_cell: o.SameCell = None,
    row_class: o.RowClass = None,
    oversize: o.Oversize = "reject",
    time_limit: Annotated[float, typer.Option("--time-limit", help="Seconds.")] = 10.0,
    check: Annotated[Path | None, typer.Option("--check", help="Check this certificate instead.")] = None,
    rerun: Annotated[bool, typer.Option("--rerun", help="With --check: repeat solver evidence.")] = False,
    output: o.Output = None,
    json: o.Json = False,
) -> None:
    """Find the smallest number of rows and prove it, or check a certificate.

    Ctrl-C ends the search; the certificate holds the best bound and packing by then.

    Example: routepack certify window.npz --dp 8 --capacity 2048 -o cert.json
    """
    rules = o.rules_of(locals())
    problem = _problem(file, dp, capacity, rules)
    if check is not None:
        _check(RowCertificate.load(check), problem, rerun, json)
        return
    from routepack_opt.solvers.rows import certify_rows, warm_up_rows

    warm_up_rows()  # the time limit counts the proof, not the loading of kernels

    def tell(facts: dict[str, Any]) -> None:
        if err.is_terminal:
            bounds = f"at least {facts['lower']}, at most {facts['upper']}"
            err.print(f"{facts['seconds']:7.2f} s  {facts['stage']:<14} {bounds}")

    certificate = certify_rows(problem, time_limit=time_limit, progress=tell)
    if output is not None:
        certificate.save(output)
    _print(certificate, json)
    if certificate.stop == "interrupted":
        raise typer.Exit(o.INTERRUPTED)
    if certificate.status not in _SOLVED:
        raise typer.Exit(3)


def export(
    file: Annotated[
        Path, typer.Argument(help="Window file, or a bin-packing instance.", metavar="WINDOW|FILE.bpp")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write.")],
    to: Annotated[str, typer.Option("--to", help="mps, lp, cpsat or bpplib.")],
    rows: Annotated[int, typer.Option("--rows", help="Rows whose feasibility is asked.")] = 1,
    dp: Annotated[int | None, typer.Option("--dp", help="Data-parallel slots D (1 for an instance).")] = None,
    capacity: o.Capacity = None,
    length_multiple: o.LengthMultiple = 1,
) -> None:
    """Write the question whether a window fits so many rows, for another solver.

    Example: routepack export window.npz --dp 8 --capacity 2048 --rows 6 --to mps -o rows.mps
    """
    from routepack_opt.models.rows.export import export_rows

    problem = _problem(file, dp, capacity, LayoutRules(length_multiple=length_multiple))
    export_rows(problem, rows, to, output)
    out.print(f"written to {output}")


def _problem(file: Path, dp: int | None, capacity: int | None, rules: LayoutRules) -> Problem:
    if file.suffix != ".npz":
        from routepack_opt.suite.binpacking import read_bin_packing

        instance = read_bin_packing(file)
        window = Window.from_lengths(instance.sizes)
        return Problem(window, Topology(dp or 1), capacity or instance.capacity, rules=rules)
    if dp is None:
        raise InputError("a value", "none", "--dp", "Add --dp")
    return Problem(Window.load(file), Topology(dp), o.needed(capacity, "--capacity"), rules=rules)


def _check(certificate: RowCertificate, problem: Problem, rerun: bool, json: bool) -> None:
    from routepack_opt.solvers.rows import verify

    report = verify(certificate, problem, rerun=rerun)
    trusted = list(getattr(report, "trusted", ()))
    if json:
        print_json({"status": report.status, "rows": certificate.rows, "trusted": trusted})
        return
    out.print(f"holds: {certificate.rows} rows, {report.status}")
    for word in trusted:
        out.print(f"taken on trust: {word}")


def _print(certificate: RowCertificate, json: bool) -> None:
    record = {
        "rows": certificate.rows,
        "rows_lower_bound": certificate.lower_bound,
        "rows_status": certificate.status,
        "stop": certificate.stop,
        "rule": certificate.rule,
        "message": certificate.message,
        "evidence": certificate.evidence,
        "seconds": certificate.seconds,
    }
    if json:
        print_json(record)
        return
    out.print(f"{certificate.status}: rows {certificate.rows}, at least {certificate.lower_bound}")
    if certificate.message:
        out.print(f"{certificate.rule}: {certificate.message}")
    for proof in certificate.evidence["lower"]:
        out.print(f"proof: {proof['kind']} from {proof['source']}")
    out.print(f"{certificate.stop} after {number(certificate.seconds, 3)} s")
