"""Systematic resampling of terminal states (Algorithm 3).

Guarantees: member j is copied floor or ceil of P_pop w_j times; the same copies on every host.
"""

from __future__ import annotations

from collections.abc import Sequence


def copies(energies: Sequence[float], temperature: float, colder: float, start: float) -> list[int]:
    """Choose whose state every member of the next level takes.

    Parameters
    ----------
    energies : sequence of float
        E(z_j) of the terminal states.
    temperature, colder : float
        T_n and T_{n+1}.
    start : float
        Uniform in [0, 1); u0 is ``start / P_pop``.

    Returns
    -------
    list of int
        Index j for every member m, ascending.
    """
    least = min(energies)
    scale = max(abs(least), 1.0)
    rise = 1.0 / colder - 1.0 / temperature
    weights = [exp_minus(rise * ((energy - least) / scale)) for energy in energies]
    total = 0.0
    for weight in weights:
        total += weight
    size, chosen, j = len(weights), [], 0
    reached = weights[0] / total
    for m in range(size):
        position = (start + m) / size
        while reached < position and j < size - 1:
            j += 1
            reached = reached + weights[j] / total if j < size - 1 else 1.0
        chosen.append(j)
    return chosen


def exp_minus(x: float) -> float:
    """Return exp(-x) for x >= 0 from IEEE + - * / alone: libraries differ in the last bit between hosts.

    Halving x until the series converges at once, then squaring back.
    """
    if x > 700.0:
        return 0.0
    halvings = 0
    while x > 0.0625:
        x *= 0.5
        halvings += 1
    term, total = 1.0, 1.0
    for k in range(1, 10):
        term *= -x / k
        total += term
    for _ in range(halvings):
        total *= total
    return total
