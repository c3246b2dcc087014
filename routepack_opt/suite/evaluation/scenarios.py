"""Suites of an evaluation: which windows, on which topology, simulated on what.

Guarantees: a suite that is read is consistent; what is wrong in its file is an error that names the scenario
and the key. A scenario can be sent to other processes; its windows are made where they are needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from routepack_opt.errors import FormatError, InputError
from routepack_opt.model import MoEModel
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.stages import preset_stages
from routepack_opt.suite.evaluation.assumptions import assumptions_of
from routepack_opt.suite.evaluation.work import ModelWork, preset_work, shape_work
from routepack_opt.suite.generators import preset_window
from routepack_opt.window import Window

KIND, SCHEMA = "routepack-evaluation", 1


@dataclass(frozen=True)
class Scenario:
    """A sequence of windows under one set of rules.

    Parameters
    ----------
    name : str
        Name in the results.
    files : tuple of Path
        Window files, or
    preset, count, samples : str, int, int
        a public model whose windows are generated with seeds 0, 1, ...
    dp, ep, edp_shards, capacity : int
        As for :class:`~routepack_opt.Problem`.
    stages : tuple of str
        NAME:ALPHA:BETA; those of `preset` when left out.
    rules : mapping
        Fields of :class:`~routepack_opt.LayoutRules`.
    shape : mapping
        `hidden`, `expert_width`, `shared_width` of the simulated layers; those of `preset` when left out.
    devices : int
        Devices of a slot, tensor- times context-parallel.
    accelerator : str
        One of the table of assumptions.
    pipeline, chunks : int
        Pipeline stages of the simulated step, and chunks of layers per stage.
    """

    name: str
    dp: int
    ep: int
    capacity: int
    accelerator: str
    files: tuple[Path, ...] = ()
    preset: str | None = None
    count: int = 1
    samples: int = 512
    edp_shards: int = 1
    stages: tuple[str, ...] = ()
    rules: Mapping[str, Any] = field(default_factory=dict)
    shape: Mapping[str, int] = field(default_factory=dict)
    devices: int = 1
    pipeline: int = 1
    chunks: int = 1

    @property
    def windows(self) -> tuple[str, ...]:
        """Names of the windows, in order."""
        if self.preset is not None:
            return tuple(f"{self.preset} {seed}" for seed in range(self.count))
        return tuple(path.stem for path in self.files)

    @cached_property
    def assumptions(self) -> dict[str, Any]:
        """Coefficients of the simulation with their sources."""
        return {
            **assumptions_of(self.accelerator),
            "pipeline": self.pipeline,
            "chunks": self.chunks,
            "devices": self.devices,
            "shape": dict(self.shape) or self.preset,
        }

    def problem(self, window: int) -> Problem:
        """Return the problem of a window, by its position.

        Raises
        ------
        InputError
            When the window has no routing.
        """
        made = preset_window(self.preset, window, self.samples) if self.preset else self._read(window)
        if made.num_layers == 0:
            raise InputError("a window with routing", "lengths alone", self.windows[window])
        if self.stages:
            stages = tuple(AttentionStage.parse(text) for text in self.stages)
        else:
            stages = preset_stages(str(self.preset), capacity=self.capacity, tp=self.devices)
        topology = Topology(self.dp, self.ep, self.edp_shards)
        return Problem(made, topology, self.capacity, stages, rules=LayoutRules(**self.rules))

    def work(self, problem: Problem) -> ModelWork:
        """Return the work of the simulated layers."""
        if not self.shape:
            return preset_work(str(self.preset), self.devices)
        layers, experts = problem.window.num_layers, problem.window.num_experts
        model = problem.window.model or MoEModel(layers, experts, 1)
        return shape_work(model, len(problem.stages), devices=self.devices, **self.shape)

    def _read(self, window: int) -> Window:
        return Window.load(self.files[window])


@dataclass(frozen=True)
class EvaluationSuite:
    """Scenarios, and the record they were read from."""

    record: Mapping[str, Any]
    scenarios: tuple[Scenario, ...]


def read_suite(path: str | Path) -> EvaluationSuite:
    """Read a suite file; the docs page on evaluating lists its keys.

    Raises
    ------
    FormatError, InputError
        When the file is no suite, or a scenario has unknown keys, no windows or no stages.
    """
    where = Path(path)
    try:
        record = json.loads(where.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise FormatError("a suite file", "no such file", str(where)) from error
    except (ValueError, OSError) as error:
        raise FormatError("a suite file", f"a file that is no JSON ({error})", str(where)) from error
    if not isinstance(record, dict) or record.get("kind") != KIND or record.get("schema") != SCHEMA:
        raise FormatError(f"kind {KIND!r}, schema {SCHEMA}", "another file", str(where))
    entries = record.get("scenarios") or []
    scenarios = tuple(_scenario(entry, where) for entry in entries)
    names = [scenario.name for scenario in scenarios]
    if not names or len(set(names)) < len(names):
        raise FormatError("scenarios with names of their own", f"{names}", str(where))
    return EvaluationSuite(record, scenarios)


def _scenario(entry: Any, where: Path) -> Scenario:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise FormatError("an object with a name", f"{entry!r}", f"{where}, scenarios")
    here = f"{where}, scenario {entry['name']!r}"
    values = dict(entry)
    patterns = values.pop("files", [])
    files = [path for pattern in patterns for path in sorted(where.parent.glob(pattern))]
    if bool(files) == ("preset" in values):
        raise InputError("window files or a preset", f"files {patterns}, {len(files)} found", here)
    values["stages"] = tuple(values.get("stages", ()))
    try:
        scenario = Scenario(files=tuple(files), **values)
    except TypeError as error:
        raise FormatError("the keys of a scenario", str(error), here) from error
    if scenario.preset is None and not (scenario.stages and scenario.shape):
        raise InputError("stages and shape, where there is no preset", f"{sorted(entry)}", here)
    if scenario.stages and not scenario.shape:
        raise InputError("shape beside stages", f"{sorted(entry)}", here)
    assumptions_of(scenario.accelerator)
    return scenario
