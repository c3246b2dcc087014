"""Threads that run members: the kernels release the GIL, so threads are enough on one machine."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from routepack_opt.solvers.annealing.members import Member, Step


class ThreadExecutor:
    """A persistent thread pool.

    Parameters
    ----------
    workers : int
        Threads.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="routepack")

    def map(self, step: Step, members: Sequence[Member]) -> list[Member]:
        """Return the stepped members in the order given."""
        return list(self._pool.map(step, members))

    def close(self, wait: bool = True) -> None:
        """Stop the threads after their present step, and wait for that unless told not to."""
        self._pool.shutdown(wait=wait, cancel_futures=True)
