"""HiGHS objects that print nothing.

Guarantees: file descriptor 1 is redirected once per process, for the construction of the first object (which
prints a banner before any option can be set), and restored before anything else happens.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

_lock = threading.Lock()
_constructed = False


def quiet_highs() -> Any:
    """Give a ``highspy.Highs`` with its output off."""
    global _constructed
    import highspy

    create: Any = highspy.Highs
    with _lock:
        if _constructed:
            solver = create()
        else:
            solver = _first(create)
            _constructed = True
    solver.setOptionValue("output_flag", False)
    return solver


def _first(create: Any) -> Any:
    sys.stdout.flush()
    kept = os.dup(1)
    sink = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(sink, 1)
        return create()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(sink)
