"""Work on a stream of items on threads, in order.

Guarantees: results come in the order of the items and do not depend on the number of threads; only a few
items are held at a time; of several failing items the first one's error is raised.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")


def in_order(work: Callable[[In], Out], items: Iterable[In], threads: int | None) -> Iterator[Out]:
    """Yield ``work(item)`` in the order of `items`, a few at a time on threads."""
    workers = threads or min(os.cpu_count() or 1, 8)
    if workers == 1:
        yield from map(work, items)
        return
    pending: deque[Future[Out]] = deque()
    with ThreadPoolExecutor(workers) as pool:
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) > 2 * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
