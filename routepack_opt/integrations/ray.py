"""Ray: the search spread over a cluster, the planner as an actor, and a map for evaluation runs.

Guarantees: for the same seed and budget the plan is the one of a single machine, whatever the number of
actors and whichever of them are lost; a lost or late actor costs a plan, never the step.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayError

from routepack_opt.placement import Placement
from routepack_opt.planner import Planner, PlannerConfig, SearchConfig
from routepack_opt.planner.fallback import fall_back
from routepack_opt.planner.request import OwnLayout
from routepack_opt.planner.workers import ThreadWorker
from routepack_opt.plans import Plan
from routepack_opt.solvers.annealing.members import Member, Step
from routepack_opt.window import Window

__all__ = ["RayExecutor", "RayPlanner", "RayWorker", "ray_map"]

_BETWEEN_LOOKS = 2**17  # proposals that an actor makes between two looks of a timed search at the clock


def ray_map(function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
    """Map a function over items on Ray's cores, one item each, and keep their order.

    Parameters
    ----------
    function : callable
        Can be pickled, and depends on its item alone; an item whose worker is lost runs again.
    items : iterable
        Can be pickled.

    Yields
    ------
    object
        Results, in the order of the items.

    Raises
    ------
    Exception
        What `function` raised.

    Notes
    -----
    Starts a local Ray, or joins the one that ``RAY_ADDRESS`` names, unless the process already has one.
    """
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    task = ray.remote(_call).options(num_cpus=1)
    order = ray.put(pickle.dumps(function))
    pending = [task.remote(order, pickle.dumps(item)) for item in items]
    try:
        for reference in pending:
            yield _answer(reference)
    finally:
        # Only what has not ended, and gently: a forced cancel that meets the end of its task takes this
        # process down with it (Ray 2.60: exit code 1, no word).
        if pending and ray.is_initialized():
            for reference in ray.wait(pending, num_returns=len(pending), timeout=0)[1]:
                ray.cancel(reference)


def _call(order: bytes, item: bytes) -> Any:
    return pickle.loads(order)(pickle.loads(item))


def _answer(reference: Any) -> Any:
    try:
        return ray.get(reference)
    except RayError as error:
        cause = getattr(error, "cause", None)
        if isinstance(cause, Exception):
            raise cause from error
        raise


class _Chains:
    """Actor that steps members; it keeps the instance between levels."""

    def load(self, instance: bytes) -> None:
        """Take the instance of a search."""
        self.instance = pickle.loads(instance)  # arrays from Ray's store would be read-only

    def run(self, step: bytes, member: bytes) -> bytes:
        """Step one member."""
        whole = replace(pickle.loads(step), instance=self.instance)
        return pickle.dumps(whole(pickle.loads(member)))


class RayExecutor:
    """Runs the members of a population on Ray actors.

    Parameters
    ----------
    workers : int
        Actors.
    **options
        Of every actor, such as ``num_cpus=1`` or a placement group.

    Notes
    -----
    A member whose actor is lost is stepped again in this process, from the same state, so nothing changes but
    the time. Until the actor in its place runs, which may never be when its node is lost, so are those after.
    """

    def __init__(self, workers: int, **options: Any) -> None:
        self.workers = workers
        self._kind = ray.remote(_Chains).options(**({"num_cpus": 1} | options))
        self._actors = [self._kind.remote() for _ in range(workers)]
        self._starting: dict[int, Any] = {}  # what a replaced actor answers first
        self._instance: Any = None
        self._payload: Any = None

    def map(self, step: Step, members: Sequence[Member]) -> list[Member]:
        """Return the stepped members in the order given."""
        self._load(step)
        if step.late is None:
            return self._run(step, members)
        made, rest, stepped = 0, step.proposals, list(members)
        counts = [0 * member.counts for member in members]
        while rest > 0 and not step.late():
            part = min(rest, _BETWEEN_LOOKS)
            stepped = self._run(replace(step, proposals=part, late=None), stepped)
            counts = [total + member.counts for total, member in zip(counts, stepped, strict=True)]
            made, rest = made + part, rest - part
        for member, total in zip(stepped, counts, strict=True):
            member.counts[:], member.proposals = total, made
        return stepped

    def _load(self, step: Step) -> None:
        if self._instance is step.instance:
            return
        self._instance, self._payload = step.instance, ray.put(pickle.dumps(step.instance))
        for actor in self._actors:
            actor.load.remote(self._payload)

    def _run(self, step: Step, members: Sequence[Member]) -> list[Member]:
        order = pickle.dumps(replace(step, instance=None))  # type: ignore[arg-type]
        idle = {index for index in list(self._starting) if not self._runs(index)}
        pending = [
            None
            if m % self.workers in idle
            else self._actors[m % self.workers].run.remote(order, pickle.dumps(member))
            for m, member in enumerate(members)
        ]
        return [self._collect(m, step, member, pending[m]) for m, member in enumerate(members)]

    def _runs(self, index: int) -> bool:
        """Say whether an actor that took the place of another has started."""
        done, _ = ray.wait([self._starting[index]], timeout=0)
        if done:
            del self._starting[index]
        return bool(done)

    def _collect(self, m: int, step: Step, member: Member, reference: Any) -> Member:
        if reference is None:
            return step(member)
        try:
            stepped: Member = pickle.loads(ray.get(reference))
        except RayError:
            self._replace(m % self.workers)
            return step(member)
        return stepped

    def _replace(self, index: int) -> None:
        """Put a new actor in the place of a lost one."""
        actor = self._kind.remote()
        self._starting[index] = actor.load.remote(self._payload)
        self._actors[index] = actor

    def close(self, wait: bool = True) -> None:
        """End the actors."""
        for actor in self._actors:
            with suppress(RayError):
                ray.kill(actor)
        self._actors = []


class RayWorker(ThreadWorker):
    """Runs jobs here and their search on Ray: ``Planner(config, start=RayWorker)``.

    Parameters
    ----------
    search : SearchConfig
        Its `threads` is the number of actors.
    """

    def __init__(self, search: SearchConfig) -> None:
        self.executor = RayExecutor(search.threads)


class RayPlanner:
    """A planner in an actor of its own.

    Parameters
    ----------
    config : PlannerConfig or mapping
        As for :class:`routepack_opt.Planner`.
    **options
        Of the actor, such as ``num_cpus`` (the search's threads when left out).
    """

    def __init__(self, config: PlannerConfig | dict[str, Any], **options: Any) -> None:
        self.config = config if isinstance(config, PlannerConfig) else PlannerConfig.from_dict(config)
        self._options = {"num_cpus": self.config.search.threads} | options
        self._placement: Placement | None = None
        self._start()

    def _start(self) -> None:
        kind = ray.remote(Planner).options(**self._options)
        self.actor = kind.remote(self.config, placement=self._placement)

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until the actor has its kernels."""
        ray.get(self.actor.__ray_ready__.remote(), timeout=timeout)

    def plan(self, window: Window, own: OwnLayout | None = None, **window_rules: Any) -> Plan:
        """Plan a window in the actor and wait for it.

        Parameters
        ----------
        window : Window
            The sealed step.
        own : Layout or nested sequence, optional
            The trainer's own layout.
        **window_rules
            ``same_cell`` and ``row_class`` of this window.

        Returns
        -------
        Plan
            The fallback when the actor, or its node, is lost or late; the next window gets a new actor.
        """
        reference = self.actor.plan.remote(window, own, **window_rules)
        try:
            found: Plan = ray.get(reference, timeout=self.config.search.deadline)
        except GetTimeoutError as error:
            return self._fall_back(window, own, window_rules, error)
        except RayError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, Exception):  # raised by the planner: a bad argument, or on_error="raise"
                raise cause from error
            found = self._fall_back(window, own, window_rules, error)
            self._start()
            return found
        self._placement = found.placement
        return found

    def _fall_back(
        self, window: Window, own: OwnLayout | None, rules: dict[str, Any], error: Exception
    ) -> Plan:
        if self.config.on_error == "raise":
            raise error
        problem = self.config.problem(window, **rules)
        now = self._placement or Placement.identity(
            window.num_layers, window.num_experts, self.config.topology.ep
        )
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'actor lost'}"
        return fall_back(reason, placement=now, problem=problem, own=own)

    def close(self) -> None:
        """End the actor."""
        with suppress(RayError):
            ray.kill(self.actor)
