"""Metrics handed to what trainers log with, without importing any of it.

Guarantees: a number that is unknown is left out, never sent as 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Values = Mapping[str, float | None]


def known(values: Values) -> dict[str, float]:
    """Return the numbers that are known, as floats: what a wandb-style ``log(dict)`` takes."""
    return {key: float(value) for key, value in values.items() if value is not None}


def to_log(log: Callable[..., Any], values: Values, step: int | None = None) -> None:
    """Send metrics to a wandb-style function.

    Parameters
    ----------
    log : callable
        Called as ``log(dict)``, or ``log(dict, step=step)``.
    values : mapping
        From :func:`routepack_opt.metrics`, a timeline or a comparison.
    step : int, optional
        Optimizer step.
    """
    if step is None:
        log(known(values))
    else:
        log(known(values), step=step)


def to_writer(writer: Any, values: Values, step: int) -> None:
    """Send metrics to a TensorBoard-style writer, as ``writer.add_scalar(name, value, step)``."""
    for key, value in known(values).items():
        writer.add_scalar(key, value, step)


def to_prometheus(values: Values, labels: Mapping[str, str] | None = None) -> str:
    """Return metrics in the Prometheus text format, as gauges.

    Parameters
    ----------
    values : mapping
        As for :func:`to_log`.
    labels : mapping of str to str, optional
        Added to every line.

    Returns
    -------
    str
        Names have ``_`` where the keys have ``/``.
    """
    inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in (labels or {}).items())
    suffix = f"{{{inside}}}" if inside else ""
    lines = []
    for key, value in known(values).items():
        name = key.replace("/", "_")
        lines += [f"# TYPE {name} gauge", f"{name}{suffix} {value!r}"]
    return "\n".join(lines) + "\n" if lines else ""


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
