"""The process in which a :class:`~routepack_opt.planner.workers.ProcessWorker` plans.

Guarantees: ends when its parent does or closes the pipe; what libraries print goes to standard error, so that
standard output carries only this module's protocol.
"""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
import time
from typing import Any

from routepack_opt.planner.jobs import CancelledError, Job, JobClock, run_job
from routepack_opt.planner.warmup import warm_up
from routepack_opt.planner.workers import ThreadWorker


class _Desk:
    """Receives messages in a thread of its own, so that a running job can be hurried or cancelled."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[tuple[Job, JobClock]] = queue.SimpleQueue()
        self._clock: JobClock | None = None

    def receive(self, stream: Any) -> None:
        """Serve messages until the parent is gone, then end the process whatever it is doing."""
        try:
            while True:
                kind, *values = pickle.load(stream)
                if kind == "job":
                    self._clock = JobClock(time.perf_counter, values[1])
                    self.jobs.put((values[0], self._clock))
                elif self._clock is not None and kind == "hurry":
                    self._clock.hurry(values[0])
                elif self._clock is not None and kind == "cancel":
                    self._clock.cancel()
        except (EOFError, OSError, pickle.UnpicklingError):
            os._exit(0)


def main() -> None:
    """Serve jobs, one at a time."""
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    desk = _Desk()
    threading.Thread(target=desk.receive, args=(sys.stdin.buffer,), daemon=True).start()

    def say(kind: str, value: Any) -> None:
        pickle.dump((kind, value), out, pickle.HIGHEST_PROTOCOL)
        out.flush()

    worker = ThreadWorker(int(sys.argv[1]))
    say("ready", warm_up())
    while True:
        job, clock = desk.jobs.get()
        try:
            say("done", run_job(job, clock, worker.executor, lambda placement: say("placement", placement)))
        except CancelledError as error:
            say("error", error)
        except Exception as error:  # the parent must get an answer whatever is thrown
            say("error", _portable(error))


def _portable(error: Exception) -> Exception:
    """Return the error, or its text when it cannot be pickled."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


if __name__ == "__main__":
    main()
