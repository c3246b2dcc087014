"""Slow and obvious reading of routes, written without any of the product's code."""

from __future__ import annotations

from collections import Counter


def layer_state(ids, experts):
    """Return what one layer of one row is, by its definition."""
    ids = [int(i) for i in ids]
    if any(i >= experts for i in ids):
        return "foreign"
    if all(i == -1 for i in ids):
        return "missing"
    if any(i < 0 for i in ids):
        return "corrupt"
    return "valid" if len(set(ids)) == len(ids) else "filler"


def counts_upwards(row, columns, experts):
    """Tell whether a row of [layers, K] ids is 0..K-1 everywhere, or one ascending run over all columns."""
    flat = {(layer, k): int(i) for layer, ids in zip(columns, row, strict=True) for k, i in enumerate(ids)}
    top_k = len(row[0])
    if len(flat) < 16:
        return False
    begin = flat[columns[0], 0]
    restarts = all(i == k for (_, k), i in flat.items())
    runs = all(i == (begin + (layer - columns[0]) * top_k + k) % experts for (layer, k), i in flat.items())
    return restarts or runs


ORDER = ("valid", "missing", "filler", "corrupt", "foreign")


def row_state(row, columns, experts):
    """Return the worst state of a row's layers."""
    worst = max((layer_state(ids, experts) for ids in row), key=ORDER.index)
    return "filler" if worst == "valid" and counts_upwards(row, columns, experts) else worst


def count(rows, columns, experts):
    """Return the states of the rows [rows, layers, K], and the counts [layers][experts] of the valid ones."""
    states = [row_state(row, columns, experts) for row in rows]
    counts = []
    for position in range(len(columns)):
        tally = Counter(
            int(i) for row, state in zip(rows, states, strict=True) if state == "valid" for i in row[position]
        )
        counts.append([tally[e] for e in range(experts)])
    return states, counts
