"""HiGHS and Pyomo as backends, each in a process of its own that is ended when it overruns.

Guarantees: a solve returns within its time limit plus a short grace, or on Ctrl-C, with the best solution and
bound that the process has reported by then; the process is gone after :meth:`ProcessBackend.close`.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Literal

from routepack_opt.models.layout import LayoutModel
from routepack_opt.solvers.exact.result import Outcome, Report

_GRACE = 1.0  # seconds beyond the limit in which a solver may still hand over its own answer


class ProcessBackend:
    """Solve with HiGHS, directly or through Pyomo.

    Parameters
    ----------
    engine : {"highs", "pyomo"}
        How HiGHS is called.
    seed, workers : int
        Random seed and threads.
    """

    def __init__(self, engine: Literal["highs", "pyomo"], seed: int = 0, workers: int = 1) -> None:
        self.name: str = engine
        self.seed, self.workers = seed, workers
        self._process: subprocess.Popen[str] | None = None
        self._lines: queue.Queue[str | None] = queue.Queue()

    def minimise(
        self,
        model: LayoutModel,
        component: str | None,
        locks: Sequence[tuple[int, int]],
        hint: Sequence[int] | None,
        seconds: float | None,
        report: Report,
    ) -> Outcome:
        """Minimise a component; see :class:`~routepack_opt.solvers.exact.result.Backend`."""
        objective = model.objective[component] if component else None
        self._start(model)
        job = {"objective": objective, "locks": [list(lock) for lock in locks], "hint": hint}
        deadline = None if seconds is None else time.monotonic() + seconds
        self._send({**job, "seconds": seconds})
        best: list[float] | None = None
        bound: float | None = None
        status: Literal["feasible", "unknown", "interrupted"]
        try:
            while (message := self._next(deadline)) is not None:
                if "done" in message:
                    return self._outcome(message["done"], best, report, objective is not None)
                if "bound" in message:
                    bound = message["bound"]
                    report("bound", message["bound"])
                    continue
                best = message["values"]
                if objective is not None:
                    report("incumbent", round(message["values"][objective]))
            status = "feasible" if best is not None else "unknown"
        except KeyboardInterrupt:
            status = "interrupted"
        self.close()
        return Outcome(status, best, bound, "stopped from outside")

    def _outcome(
        self, done: dict[str, Any], best: list[float] | None, report: Report, bounded: bool
    ) -> Outcome:
        bound = done.get("bound") if bounded else None
        if bound is not None:
            report("bound", bound)
        values = done.get("values") or best
        return Outcome(done["status"], values, bound, done.get("message", ""))

    def _start(self, model: LayoutModel) -> None:
        if self._process is not None:
            return
        self._lines = queue.Queue()
        command = [sys.executable, "-m", "routepack_opt.solvers.exact.child"]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command,
            stdin=pipe,
            stdout=pipe,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is for this process, which ends the other
        )
        threading.Thread(target=_read, args=(self._process, self._lines), daemon=True).start()
        head = {"engine": self.name, "seed": self.seed, "workers": self.workers}
        self._send({**head, "model": model.linear.as_json()})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def _next(self, deadline: float | None) -> dict[str, Any] | None:
        """Return the next message, or None when time is up; a dead process counts as an error."""
        wait = None if deadline is None else max(deadline + _GRACE - time.monotonic(), 0.0)
        try:
            line = self._lines.get(timeout=wait)
        except queue.Empty:
            return None
        if line is None:
            self.close()
            return {"done": {"status": "error", "message": "the solver process ended early"}}
        message: dict[str, Any] = json.loads(line)
        return message

    def close(self) -> None:
        """End the process."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        self._process = None


def _read(process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
    """Move the process's output into a queue; None marks its end."""
    assert process.stdout is not None
    try:
        for line in process.stdout:
            lines.put(line)
    except ValueError:  # closed while reading
        pass
    lines.put(None)
