"""Split the slot permutation of a layer into sets of moves that keep the placement a bijection.

Guarantees: made in order, the groups lead from the old placement to the new one; each group permutes the
slots it touches; without a cut every expert moves once.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from routepack_opt.runtime.pieces import Int

Cycle = list[int]
"""Slots s0, s1, ...: the expert in each goes to the next, that of the last to the first."""


def cycles_of(before: Int, after: Int) -> list[Cycle]:
    """Return the cycles between two rows of slots, each from its lowest slot; fixed slots are left out."""
    target_of = np.empty_like(before)
    target_of[before] = after
    seen = np.zeros(len(before), dtype=bool)
    cycles = []
    for start in range(len(before)):
        cycle, slot = [], start
        while not seen[slot]:
            seen[slot] = True
            cycle.append(slot)
            slot = int(target_of[slot])
        if len(cycle) > 1:
            cycles.append(cycle)
    return cycles


def moves_of(cycles: list[Cycle]) -> Int:
    """Return source and target slot of every member, int64 [moves, 2], ascending."""
    pairs = [pair for cycle in cycles for pair in zip(cycle, cycle[1:] + cycle[:1], strict=True)]
    return np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)


def group_cycles(cycles: list[Cycle], fits: Callable[[list[Cycle]], bool]) -> list[list[Cycle]] | None:
    """Group cycles so that every group fits; a cycle too long by itself is cut.

    Parameters
    ----------
    cycles : list of Cycle
        Disjoint cycles.
    fits : callable
        Whether a set of disjoint cycles can move together; must stay true when cycles get shorter.

    Returns
    -------
    list of groups, or None
        None when not even two experts can change places.
    """
    if not cycles or fits(cycles):
        return [cycles] if cycles else []
    groups: list[list[Cycle]] = []
    open_group: list[Cycle] = []
    for cycle in cycles:
        if fits([*open_group, cycle]):
            open_group.append(cycle)
            continue
        groups += [open_group] if open_group else []
        open_group = [cycle] if fits([cycle]) else []
        if not open_group:
            parts = _cut(cycle, fits)
            if parts is None:
                return None
            groups += [[part] for part in parts]
    return groups + ([open_group] if open_group else [])


def _cut(cycle: Cycle, fits: Callable[[list[Cycle]], bool]) -> list[Cycle] | None:
    """Write a cycle as shorter ones, made one after the other; each cut costs one further expert move."""
    parts, rest = [], cycle
    while len(rest) > 1:
        low, high = 1, len(rest)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (middle, high) if fits([rest[:middle]]) else (low, middle - 1)
        if low < 2:
            return None
        parts.append(rest[:low])
        # The expert that closed the shorter cycle waits in the first slot and goes on from there.
        rest = [rest[0], *rest[low:]]
    return parts
