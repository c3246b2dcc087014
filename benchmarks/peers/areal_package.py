"""AReaL's two stages by an installed areal: its sharing and its FFD and KK allocators, agreement emulated."""

import numpy as np

from benchmarks.peers.installed import functions

_NAMES = (
    "_ffd_allocate", "ffd_allocate", "_KKSet", "_KKState", "_kk_partition", "kk_allocate", "flat2d",
    "balanced_greedy_partition",
)  # fmt: skip


def load():
    """Return the namespace and version of the installed package, or None."""
    return functions("areal", "areal/utils/seqpack.py", _NAMES)


def pack(allocator, lengths, capacity, dp, rules=None):
    """Return cells[r][d] with the allocator ``ffd_allocate`` or ``kk_allocate``; None when it gives up."""
    found = load()
    if found is None:
        raise LookupError("areal is not installed")
    tokens = [int(t) for t in lengths]
    if len(tokens) % dp:
        return None
    slots = found[0]["balanced_greedy_partition"](tokens, dp)
    least = 1 if rules is None else max(rules.min_rows, 1)
    multiple = 1 if rules is None else rules.row_multiple
    while True:
        try:
            groups = [
                found[0][allocator](np.array([tokens[i] for i in slot]), capacity, least, multiple)
                for slot in slots
            ]
        except RuntimeError:
            return None
        most = max(len(g) for g in groups)
        if all(len(g) == most for g in groups):
            columns = [[[slot[k] for k in cell] for cell in g] for slot, g in zip(slots, groups, strict=True)]
            return [[columns[d][r] for d in range(dp)] for r in range(most)]
        least = most
