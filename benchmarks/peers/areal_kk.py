"""AReaL's two stages with its Karmarkar-Karp allocator inside each slot.

Own implementation of the published algorithm, or an installed areal. A slot whose parts break the cap falls
back to first fit; slots repeat with the largest group count until they agree.
"""

from benchmarks.peers import areal, areal_package
from benchmarks.peers.kk import differencing


def origin():
    """Say what runs."""
    found = areal_package.load()
    return "own implementation" if found is None else f"real package areal {found[1]}"


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids; None when the slots cannot share or fill alike."""
    if areal_package.load() is not None:
        return areal_package.pack("kk_allocate", lengths, capacity, dp, rules)
    n = len(lengths)
    if n % dp:
        return None
    slots = areal._share(lengths, dp, n // dp)
    least = 1 if rules is None else max(rules.min_rows, 1)
    multiple = 1 if rules is None else rules.row_multiple
    while True:
        groups = [_allocate(slot, lengths, capacity, least, multiple) for slot in slots]
        if any(g is None for g in groups):
            return None
        most = max(len(g) for g in groups)
        if all(len(g) == most for g in groups):
            return [[groups[d][r] for d in range(dp)] for r in range(most)]
        least = most


def _allocate(slot, lengths, capacity, least, multiple):
    total = sum(int(lengths[i]) for i in slot)
    parts = max(least, -(-total // capacity))
    parts = min(-(-parts // multiple) * multiple, len(slot))
    if parts < least:
        return None
    groups = differencing({i: int(lengths[i]) for i in slot}, slot, parts)
    if all(sum(int(lengths[i]) for i in group) <= capacity for group in groups):
        return groups
    return areal._allocate(slot, lengths, capacity, least, multiple)
