"""First fit decreasing, cells dealt row-major (own implementation of the textbook method)."""


def first_fit(lengths, capacity, order):
    """Return bins of sample ids, each sample in the first bin with room."""
    bins, room = [], []
    for i in order:
        t = int(lengths[i])
        b = next((b for b, left in enumerate(room) if left >= t), len(bins))
        if b == len(bins):
            bins.append([])
            room.append(capacity)
        bins[b].append(i)
        room[b] -= t
    return bins


def deal(bins, dp):
    """Return cells[r][d] from a multiple of D bins, row-major."""
    return [bins[r : r + dp] for r in range(0, len(bins), dp)]


def fill_up(bins, multiple):
    """Move single samples out of the bins with most until the bins are a multiple; False when stuck."""
    while len(bins) % multiple:
        source = max(bins, key=len)
        if len(source) < 2:
            return False
        bins.append([source.pop()])
    return True


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids, or None when too few samples are there."""
    order = sorted(range(len(lengths)), key=lambda i: (-int(lengths[i]), i))
    bins = first_fit(lengths, capacity, order)
    return deal(bins, dp) if fill_up(bins, dp) else None
