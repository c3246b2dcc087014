"""The application: commands, and how errors become exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import typer

from routepack_opt.cli import convert, evaluating, exact, placing, planning, reading, rows, showing
from routepack_opt.cli.options import INTERRUPTED
from routepack_opt.errors import CheckError, InfeasibleError, NoLayoutError, RoutePackError

# Newer releases of typer carry a click of their own, so its exceptions are reached through typer's names.
_UsageError: type[Exception] = typer.BadParameter.__mro__[1]

BAD_INPUT, INFEASIBLE, CHECK_FAILED = 2, 3, 4

app = typer.Typer(
    help="Place experts and pack samples of a mixture-of-experts training step.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for module in (reading, planning, placing, rows, exact, evaluating, showing, convert):
    module.register(app)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code.

    Parameters
    ----------
    arguments : sequence of str, optional
        The process's own when left out.
    """
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        given = list(arguments) if arguments is not None else None
        code = app(args=given, prog_name="routepack", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Exit as done:
        return int(done.exit_code)
    except _UsageError as error:
        return _complain_of_usage(error)
    except (typer.Abort, KeyboardInterrupt):
        return _complain("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output went away: nothing is wrong
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (InfeasibleError, NoLayoutError) as error:
        return _complain(str(error), INFEASIBLE)
    except CheckError as error:
        return _complain(str(error), CHECK_FAILED)
    except (RoutePackError, OSError) as error:
        return _complain(str(error), BAD_INPUT)


def _complain_of_usage(error: Any) -> int:
    message = error.format_message()
    if "\n" in message:  # a command without arguments asks for its help
        print(message, file=sys.stderr)  # noqa: T201
        return BAD_INPUT
    command = error.ctx.command_path if error.ctx is not None else "routepack"
    return _complain(f"{message.rstrip('.')}. See {command} --help", BAD_INPUT)


def _complain(message: str, code: int) -> int:
    print(f"routepack: {message}", file=sys.stderr)  # noqa: T201
    return code
