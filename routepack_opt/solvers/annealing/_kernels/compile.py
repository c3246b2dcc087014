"""How kernels are compiled."""

from numba import njit

# Reference counting is off: these kernels allocate nothing, and counting the arrays of a named tuple at every
# access made a step ten times slower (and shared counters make threads wait for each other).
kernel = njit(cache=True, nogil=True, _nrt=False)  # type: ignore[call-overload]
