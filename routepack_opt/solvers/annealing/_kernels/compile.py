"""How kernels are compiled."""

from typing import Any

from numba import njit

# Reference counting is off: these kernels allocate nothing, and counting the arrays of a named tuple at every
# access made a step ten times slower (and shared counters make threads wait for each other).
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}

kernel = njit(**_OPTIONS)

# For what a step calls: a call passes every array of a state by value, which costs more than the work.
inlined = njit(**_OPTIONS, forceinline=True)
