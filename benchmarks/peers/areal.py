"""AReaL's two stages: samples shared equally over the slots by tokens, then each slot packs by itself.

Own implementation of the published algorithm: the longest sample goes to the lightest slot that still has
room for a sample; inside a slot the first groups are opened by the longest samples, and every further sample
joins the feasible group with the fewest members. Slots repeat with the largest group count until they agree.
"""


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids; None when the slots cannot share or fill alike."""
    n = len(lengths)
    if n % dp:
        return None
    slots = _share(lengths, dp, n // dp)
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


def _share(lengths, dp, share):
    slots, loads = [[] for _ in range(dp)], [0] * dp
    for i in sorted(range(len(lengths)), key=lambda i: (-int(lengths[i]), i)):
        d = min((d for d in range(dp) if len(slots[d]) < share), key=lambda d: (loads[d], d))
        slots[d].append(i)
        loads[d] += int(lengths[i])
    return slots


def _allocate(slot, lengths, capacity, least, multiple):
    while True:
        least = -(-least // multiple) * multiple
        if len(slot) < least:
            return None
        groups, loads = [], []
        for i in slot:  # by falling length already
            t = int(lengths[i])
            fitting = [g for g in range(len(groups)) if loads[g] + t <= capacity]
            if len(groups) < least or not fitting:
                groups.append([i])
                loads.append(t)
                continue
            g = min(fitting, key=lambda g: (len(groups[g]), g))
            groups[g].append(i)
            loads[g] += t
        if len(groups) % multiple == 0:
            return groups
        least = len(groups)
