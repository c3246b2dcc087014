"""lightbinpack's grouped best fit decreasing: groups of D bins, as its documentation uses it for D slots.

The installed package, as it is: a last group with fewer than D bins stays so, and is a layout with cells
missing. Without the package, our own best fit decreasing stands in, dealt in groups of D bins without filling
up the last one.
"""

from importlib import metadata

from benchmarks.peers.seq_len_balance import best_fit


def origin():
    """Say what runs."""
    try:
        return f"real package lightbinpack {metadata.version('lightbinpack')}"
    except metadata.PackageNotFoundError:
        return "own implementation"


def pack(lengths, capacity, dp, rules=None):
    """Return cells[r][d] of sample ids; the last row may be short."""
    try:
        from lightbinpack import pack as packed
    except ImportError:
        order = sorted(range(len(lengths)), key=lambda i: (-int(lengths[i]), i))
        bins = best_fit(lengths, capacity, order)
        return [bins[start : start + dp] for start in range(0, len(bins), dp)]
    tokens = [int(t) for t in lengths]
    groups = packed(tokens, capacity, strategy="ogbfd", dp_size=dp)
    return [[list(cell) for cell in group] for group in groups]
