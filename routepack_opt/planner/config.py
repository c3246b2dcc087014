"""What a trainer sets once for the planner, as frozen, checked, nested values.

Guarantees: a configuration that was built is complete and legal; an unknown key is refused with the nearest
known one; a configuration can be pickled and sent to a worker.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from routepack_opt.arrays import whole_number
from routepack_opt.errors import FormatError, InputError
from routepack_opt.planner.request import Method
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.solvers.annealing.parameters import Budget
from routepack_opt.stages import AttentionStage
from routepack_opt.window import Window

#: Rules that belong to one window, not to the trainer: they are given with the window.
WINDOW_RULES = ("same_cell", "row_class")


@dataclass(frozen=True)
class SearchConfig:
    """How a window is planned, and for how long.

    Parameters
    ----------
    deadline : float or None, default 1.0
        Seconds from the submission of a window to its plan. None waits as long as it takes.
    proposals : int, optional
        Reproducible amount of search. The deadline then only says when the fallback is returned instead.
    margin : float, default 0.1
        Part of the deadline kept free for handing the plan over: a full garbage collection of the interpreter
        alone can take 0.07 s.
    threads : int, default 1
        Threads of the search; no others are started.
    worker : {"thread", "process"}
        Where planning runs. A process of its own can be ended when it hangs, a thread only abandoned.
    seed : int, default 0
        Of every random stream.
    method : {"annealing", "paper", "seed"}
        As in :func:`routepack_opt.plan`.
    refine_placement : bool, default False
        Refine the placement for the rows found. It is then known only together with the plan.
    max_moves : int, optional
        Most experts that change rank from one window to the next.
    enough : float or None, default 0.001
        Return the best seed at once when it is within this fraction of its lower bound; None always searches.
    baselines : bool, default True
        Measure the layouts that a plan is compared with.
    """

    deadline: float | None = 1.0
    proposals: int | None = None
    margin: float = 0.1
    threads: int = 1
    worker: Literal["thread", "process"] = "thread"
    seed: int = 0
    method: Method = "annealing"
    refine_placement: bool = False
    max_moves: int | None = None
    enough: float | None = 0.001
    baselines: bool = True

    def __post_init__(self) -> None:
        if self.deadline is not None:
            _number(self.deadline, "search.deadline", above=0.0)
        _number(self.margin, "search.margin", high=0.9)
        if self.enough is not None:
            _number(self.enough, "search.enough")
        whole_number(self.threads, "search.threads", low=1, high=4096)
        whole_number(self.seed, "search.seed")
        for name in ("proposals", "max_moves"):
            if getattr(self, name) is not None:
                whole_number(getattr(self, name), f"search.{name}")
        _choice(self.worker, ("thread", "process"), "search.worker")
        _choice(self.method, ("annealing", "paper", "seed"), "search.method")
        for name in ("refine_placement", "baselines"):
            _choice(getattr(self, name), (True, False), f"search.{name}")
        if self.refine_placement and self.max_moves is not None:
            remedy = "Refinement for rows does not count moves"
            raise InputError(
                "at most one of max_moves and refine_placement", "both", "search.max_moves", remedy
            )

    @property
    def budget(self) -> Budget | None:
        """The reproducible budget, when there is one."""
        return None if self.proposals is None else Budget(self.proposals)


@dataclass(frozen=True)
class PlannerConfig:
    """Everything :class:`routepack_opt.Planner` is told once.

    Parameters
    ----------
    topology : Topology
        DP slots, EP ranks and EDP shards.
    capacity : int
        C, tokens per cell.
    stages : sequence of AttentionStage
        Attention types with their work.
    rules : LayoutRules
        What the trainer requires of every layout.
    search : SearchConfig
        How and for how long to search.
    on_error : {"fallback", "raise"}
        What a fault does: the trainer's own layout (or none, with the reason), or an exception.
    expert_bytes : int, optional
        Bytes of one expert's state at one layer.

    Raises
    ------
    InputError
        Naming the field and its value.
    """

    topology: Topology
    capacity: int
    stages: tuple[AttentionStage, ...] = ()
    rules: LayoutRules = field(default_factory=LayoutRules)
    search: SearchConfig = field(default_factory=SearchConfig)
    on_error: Literal["fallback", "raise"] = "fallback"
    expert_bytes: int | None = None

    def __post_init__(self) -> None:
        for name, kind in (("topology", Topology), ("rules", LayoutRules), ("search", SearchConfig)):
            if not isinstance(getattr(self, name), kind):
                found = repr(getattr(self, name))
                raise InputError(f"a {kind.__name__}", found, name, "PlannerConfig.from_dict takes mappings")
        object.__setattr__(self, "capacity", whole_number(self.capacity, "capacity", low=1, high=2**31 - 1))
        object.__setattr__(self, "stages", tuple(self.stages))
        _choice(self.on_error, ("fallback", "raise"), "on_error")
        for name in WINDOW_RULES:
            if getattr(self.rules, name):
                found = f"{name} in the configuration"
                remedy = f"Give it with the window: planner.plan(window, {name}=...)"
                raise InputError("rules that hold for every window", found, f"rules.{name}", remedy)

    def problem(self, window: Window, **window_rules: Any) -> Problem:
        """State the problem of one window.

        Parameters
        ----------
        window : Window
            Lengths and counts of the step.
        **window_rules
            ``same_cell`` and ``row_class`` of this window.
        """
        given = {name: value for name, value in window_rules.items() if value is not None}
        rules = replace(self.rules, **given) if given else self.rules
        return Problem(window, self.topology, self.capacity, self.stages, rules, self.expert_bytes)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PlannerConfig:
        """Build a configuration from nested mappings, as TOML and YAML readers return them.

        Parameters
        ----------
        values : mapping
            Fields by name; ``topology``, ``rules`` and ``search`` are mappings, ``stages`` is a list of
            mappings with ``name``, ``alpha`` and ``beta``. Built objects are taken as they are.

        Raises
        ------
        InputError
            For an unknown key (with the nearest known one), a missing key or an illegal value.
        """
        known = dict(_mapping(values, "configuration"))
        for name, kind in (("topology", Topology), ("rules", LayoutRules), ("search", SearchConfig)):
            if name in known and not isinstance(known[name], kind):
                known[name] = _build(kind, known[name], name)
        stages = known.get("stages", ())
        if isinstance(stages, (str, Mapping)) or not isinstance(stages, Sequence):
            raise InputError("a list of stages, each with name, alpha and beta", repr(stages), "stages")
        known["stages"] = tuple(
            stage if isinstance(stage, AttentionStage) else _build(AttentionStage, stage, f"stages[{k}]")
            for k, stage in enumerate(stages)
        )
        config: PlannerConfig = _build(cls, known, "configuration")
        return config

    @classmethod
    def from_toml(cls, path: str | os.PathLike[str], table: str | None = None) -> PlannerConfig:
        """Read a TOML file, or one table of it (dotted name, such as ``"trainer.routepack"``).

        Raises
        ------
        FormatError
            When the file is not TOML, or does not have the table.
        """
        try:
            with open(path, "rb") as file:
                values: Any = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise FormatError("a TOML file", str(error), os.fspath(path)) from error
        for part in table.split(".") if table else ():
            if not isinstance(values, Mapping) or part not in values:
                raise FormatError(f"a table [{table}]", f"none named {part!r}", os.fspath(path))
            values = values[part]
        return cls.from_dict(values)


def _build(kind: Any, values: Any, where: str) -> Any:
    """Construct a dataclass from a mapping, refusing keys that it does not have."""
    values = _mapping(values, where)
    names = [f.name for f in fields(kind)]
    for key in values:
        if key not in names:
            near = difflib.get_close_matches(str(key), names, n=1, cutoff=0.0)[0]
            raise InputError(f"one of {', '.join(names)}", repr(key), where, f"Did you mean {near!r}?")
    try:
        return kind(**values)
    except TypeError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the fields of {kind.__name__}", str(error), where) from error


def _mapping(values: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(values, Mapping):
        raise InputError("a mapping of names to values", repr(values), where)
    return values


def _choice(value: object, allowed: tuple[object, ...], where: str) -> None:
    if value not in allowed:
        raise InputError(" or ".join(map(repr, allowed)), repr(value), where)


def _number(value: Any, where: str, *, above: float = -1.0, high: float = math.inf) -> None:
    """Check a finite number of at least 0, above `above` and at most `high`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    if not number or value < 0 or value <= above or value > high:
        limits = "above 0" if above == 0 else "of at least 0"
        raise InputError(
            f"a finite number {limits}" + (f", at most {high:g}" if high < math.inf else ""),
            repr(value),
            where,
        )
