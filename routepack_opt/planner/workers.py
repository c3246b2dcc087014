"""Where jobs run: threads of this process, or a process of its own that can be ended.

Guarantees: a worker runs one job at a time and keeps its threads between jobs; after its `end` nothing of it
is left, but for a thread that is stuck in foreign code.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, Protocol

from routepack_opt.errors import RoutePackError
from routepack_opt.planner.config import SearchConfig
from routepack_opt.planner.jobs import Done, Job, JobClock, Report, run_job
from routepack_opt.solvers.annealing.population import Executor, SerialExecutor
from routepack_opt.solvers.annealing.threads import ThreadExecutor


class WorkerDiedError(RoutePackError):
    """The worker process ended before it had a plan."""


class Worker(Protocol):
    """Runs jobs."""

    def run(self, job: Job, clock: JobClock, report: Report) -> Done:
        """Run a job to its end."""

    def hurry(self, seconds: float) -> None:
        """Tell the running job that it has only so long."""

    def cancel(self) -> None:
        """Tell the running job that nobody waits for it."""

    def end(self, wait: bool) -> None:
        """Give everything back: when idle, wait for it; else at once."""


class ThreadWorker:
    """Runs jobs in the calling thread and their search on a persistent pool.

    Parameters
    ----------
    threads : int
        Threads of the pool; 1 needs none.
    """

    def __init__(self, threads: int) -> None:
        self.executor: Executor = SerialExecutor() if threads == 1 else ThreadExecutor(threads)

    def run(self, job: Job, clock: JobClock, report: Report) -> Done:
        """Run a job to its end."""
        return run_job(job, clock, self.executor, report)

    def hurry(self, seconds: float) -> None:
        """Do nothing: the job shares the caller's clock."""

    def cancel(self) -> None:
        """Do nothing: the job shares the caller's clock."""

    def end(self, wait: bool) -> None:
        """Stop the pool; its threads end with their present step."""
        close = getattr(self.executor, "close", None)
        if close is not None:
            close(wait)


class ProcessWorker:
    """Runs jobs in a process of its own, which can be ended however its code hangs.

    The process starts from this interpreter without running the trainer's main module again, and ends by
    itself when this process does.

    Parameters
    ----------
    search : SearchConfig
        Threads of the process.
    """

    def __init__(self, search: SearchConfig) -> None:
        command = [sys.executable, "-m", "routepack_opt.planner.child", str(search.threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._sending = threading.Lock()
        self._ready = False

    def wait_ready(self) -> None:
        """Wait until the process has its kernels."""
        if not self._ready:
            self._receive()
            self._ready = True

    def run(self, job: Job, clock: JobClock, report: Report) -> Done:
        """Send a job and pass on what comes back.

        Raises
        ------
        WorkerDiedError
            When the process ends first.
        """
        self.wait_ready()
        self._send(("job", job, clock.left))
        while True:
            kind, value = self._receive()
            if kind == "placement":
                report(value)
            elif kind == "error":
                raise value
            else:
                assert isinstance(value, Done)
                return value

    def hurry(self, seconds: float) -> None:
        """Tell the running job that it has only so long."""
        self._send(("hurry", seconds))

    def cancel(self) -> None:
        """Tell the running job that nobody waits for it."""
        self._send(("cancel",))

    def end(self, wait: bool) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(OSError):  # what was still to be written is lost with the process
                    stream.close()

    def let_go(self) -> None:
        """Drop a forked child's ends of the pipes, so that the process still ends with its real parent."""
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                os.dup2(null, stream.fileno())
        os.close(null)

    def _send(self, message: tuple[Any, ...]) -> None:
        assert self.process.stdin is not None
        with self._sending:
            try:
                pickle.dump(message, self.process.stdin, pickle.HIGHEST_PROTOCOL)
                self.process.stdin.flush()
            except (OSError, ValueError) as error:
                raise self._died() from error

    def _receive(self) -> tuple[str, Any]:
        assert self.process.stdout is not None
        try:
            message: tuple[str, Any] = pickle.load(self.process.stdout)
        except (EOFError, OSError, ValueError, pickle.UnpicklingError) as error:
            raise self._died() from error
        return message

    def _died(self) -> WorkerDiedError:
        return WorkerDiedError(f"the planning process ended (exit code {self.process.poll()})")


def start_worker(search: SearchConfig) -> Worker:
    """Start the worker that a configuration asks for."""
    return ProcessWorker(search) if search.worker == "process" else ThreadWorker(search.threads)
