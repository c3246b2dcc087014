"""Instances: a problem with its placement and row count, as a file; and suites of them with a manifest.

Guarantees: what is loaded has the digest that the manifest promises; a best known score enters a manifest
only with a layout that has been rescored, and a bound never rises above it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from routepack_opt import files
from routepack_opt.arrays import digest
from routepack_opt.errors import CheckError, FormatError, InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.scoring import Score, loads_of, score_of
from routepack_opt.window import Window

KIND, SCHEMA = "instance", 1
MANIFEST = "manifest.json"


@dataclass(frozen=True, eq=False)
class Instance:
    """One question: the best layout of `problem` with `rows` rows under `placement`.

    Parameters
    ----------
    name : str
        Its id in the suite and the stem of its file.
    problem : Problem
        Window, topology, stages and rules.
    placement : Placement
        Fixed placement.
    rows : int
        R.
    provenance : dict
        Where the window comes from.
    """

    name: str
    problem: Problem
    placement: Placement
    rows: int
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """SHA-256 of the question: problem, placement and rows."""
        return digest(["instance", self.problem.digest, self.placement.digest, str(self.rows)])

    @property
    def shape(self) -> dict[str, int]:
        """Dimensions: items M, samples N, R, D, G, L, P, E."""
        window, topology = self.problem.window, self.problem.topology
        return {
            "N": window.size,
            "M": self.problem.items.size,
            "R": self.rows,
            "D": topology.dp,
            "G": topology.num_shards,
            "L": window.num_layers,
            "P": topology.ep,
            "E": window.num_experts,
        }

    def score(self, layout: Layout) -> Score:
        """Score a layout after checking every rule and the number of rows."""
        if layout.rows != self.rows:
            raise InputError(f"{self.rows} rows", f"{layout.rows}", f"layout of {self.name}")
        layout.validate(self.problem)
        demand = self.placement.demand(self.problem.item_counts)
        return score_of(self.problem, loads_of(self.problem, demand, layout))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the instance (`.npz`, fields in the docs page on suites)."""
        problem, window = self.problem, self.problem.window
        meta = {
            "name": self.name,
            "rows": self.rows,
            "capacity": problem.capacity,
            "shards": [list(part) for part in problem.topology.shards],
            "ep": problem.topology.ep,
            "stages": [str(stage) for stage in problem.stages],
            "rules": asdict(problem.rules),
            "model": asdict(window.model) if window.model else None,
            "provenance": self.provenance,
        }
        arrays: dict[str, npt.NDArray[Any]] = {
            "lengths": window.lengths,
            "counts": window.counts,
            "slot_of_expert": self.placement.slot_of_expert,
        }
        files.save_npz(path, KIND, SCHEMA, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Instance:
        """Read an instance.

        Raises
        ------
        FormatError
            When the file is no instance, truncated or newer.
        """
        meta, arrays = files.load_npz(path, KIND, SCHEMA)
        lengths, counts = (files.field(arrays, name, path) for name in ("lengths", "counts"))
        window = Window(lengths, counts, model=_model(meta["model"]))
        shards = tuple(tuple(part) for part in meta["shards"])
        topology = Topology(sum(map(len, shards)), meta["ep"], shards)
        rules = LayoutRules(**meta["rules"])
        stages = [AttentionStage.parse(text) for text in meta["stages"]]
        problem = Problem(window, topology, meta["capacity"], tuple(stages), rules)
        placement = Placement(files.field(arrays, "slot_of_expert", path), topology.ep)
        return cls(meta["name"], problem, placement, meta["rows"], meta["provenance"])


def _model(data: dict[str, Any] | None) -> Any:
    from routepack_opt.model import MoEModel

    return MoEModel(**{**data, "dense_layers": tuple(data["dense_layers"])}) if data else None


@dataclass
class Record:
    """Manifest entry of one instance.

    Parameters
    ----------
    digest : str
        Digest of the instance.
    shape : dict
        Dimensions.
    provenance : dict
        Where it comes from, with its licence.
    best : list of int or None
        Best known score, scaled: primary, total, row_peak.
    bound : list of int or None
        Lower bound on every component of the optimum, scaled.
    bound_any : list of int or None
        Lower bound on every component over all placements; recorded at production size.
    layout : list of int or None
        ``cell_of_sample`` of a layout that has the best known score.
    proved_by : dict
        Per backend ("cpsat", "highs", "pyomo", "oracle", "patterns") what it proved: ``by`` (package and
        version), ``components`` (how many leading ones), ``seconds``, ``runs`` and ``date``.
    """

    digest: str
    shape: dict[str, int]
    provenance: dict[str, Any]
    best: list[int] | None = None
    bound: list[int] | None = None
    bound_any: list[int] | None = None
    layout: list[int] | None = None
    proved_by: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def proven(self) -> int:
        """How many leading components of `best` are proven."""
        if self.best is None or self.bound is None:
            return 0
        equal = [low >= value for low, value in zip(self.bound, self.best, strict=True)]
        return next((k for k, same in enumerate(equal) if not same), 3)

    @property
    def gap(self) -> float | None:
        """First component of the best known score relative to its bound, or None without either."""
        return _gap(self.best, self.bound)

    @property
    def gap_any(self) -> float | None:
        """The same to the bound over all placements."""
        return _gap(self.best, self.bound_any)


def _gap(best: list[int] | None, bound: list[int] | None) -> float | None:
    return (best[0] - bound[0]) / bound[0] if best and bound and bound[0] else None


class Suite:
    """A folder of instances with their manifest.

    Parameters
    ----------
    folder : path-like
        Holds ``manifest.json`` and, for every record, ``NAME.npz`` or (at production size) nothing: such an
        instance is made again from the recipe in its record.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.records: dict[str, Record] = {}
        path = self.folder / MANIFEST
        if path.exists():
            try:
                content = json.loads(path.read_text())
                self.records = {name: Record(**entry) for name, entry in content["instances"].items()}
            except (ValueError, KeyError, TypeError) as error:
                raise FormatError(
                    "a suite manifest", f"one that cannot be read ({error})", str(path)
                ) from error

    def __iter__(self) -> Iterator[tuple[Instance, Record]]:
        for name in sorted(self.records):
            yield self.load(name), self.records[name]

    def load(self, name: str) -> Instance:
        """Load an instance and check it against the manifest.

        Raises
        ------
        CheckError
            When the file is not the one that the manifest describes.
        """
        record = self.records[name]
        if "made_from" in record.provenance:
            from routepack_opt.suite.production import remake

            instance = remake(record.provenance, self.folder.resolve().parent)
        else:
            instance = Instance.load(self.folder / f"{name}.npz")
        if instance.digest != record.digest:
            raise CheckError(f"{name}: the instance's digest is not the manifest's")
        return instance

    def add(self, instance: Instance) -> Record:
        """Start the record of an instance, and write its file unless it has a recipe; a known one is kept."""
        known = self.records.get(instance.name)
        if known is None or known.digest != instance.digest:
            known = Record(instance.digest, instance.shape, instance.provenance)
            self.folder.mkdir(parents=True, exist_ok=True)
            if "made_from" not in instance.provenance:
                instance.save(self.folder / f"{instance.name}.npz")
            self.records[instance.name] = known
        return known

    def improve(self, instance: Instance, layout: Layout) -> bool:
        """Take a layout into the record if its own rescoring is better; return whether it was."""
        score, record = instance.score(layout), self.records[instance.name]
        if record.best is not None and list(score.components) >= record.best:
            return False
        if record.bound is not None and list(score.components) < record.bound:
            raise CheckError(f"{instance.name}: a layout with {score.components}, below the recorded bound")
        record.best, record.layout = list(score.components), layout.cell_of_sample.tolist()
        return True

    def raise_bound(self, name: str, bound: Sequence[int | None]) -> bool:
        """Take exact lower bounds on the optimum's components where they are higher; return whether any was.

        Raises
        ------
        CheckError
            When a bound would lie above the best known score.
        """
        record = self.records[name]
        known = record.bound or [0, 0, 0]
        raised = [max(low, new or 0) for low, new in zip(known, bound, strict=True)]
        if record.best is not None and raised > record.best:
            raise CheckError(f"{name}: a bound of {raised} above the best known score {record.best}")
        record.bound = raised
        return raised != known

    def layout(self, name: str) -> Layout | None:
        """Return the layout of the best known score, or None when there is none."""
        record = self.records[name]
        if record.layout is None:
            return None
        return Layout(record.layout, record.shape["R"], record.shape["D"])  # type: ignore[arg-type]

    def save(self) -> None:
        """Write the manifest, sorted by name, one instance per line."""
        lines = [
            f"{json.dumps(name)}: {json.dumps(asdict(self.records[name]), sort_keys=True)}"
            for name in sorted(self.records)
        ]
        text = '{"kind": "routepack-suite", "schema": 1, "instances": {\n' + ",\n".join(lines) + "\n}}\n"
        temporary = self.folder / f".{MANIFEST}.tmp"
        temporary.write_text(text)
        os.replace(temporary, self.folder / MANIFEST)

    def verify(self) -> list[str]:
        """Recheck every digest, stored layout and bound; return what is wrong, by instance."""
        wrong = []
        for name, record in sorted(self.records.items()):
            try:
                instance = self.load(name)
                _verify(instance, record)
            except (CheckError, InputError) as error:
                wrong.append(f"{name}: {error}")
        return wrong


def _verify(instance: Instance, record: Record) -> None:
    from routepack_opt.bounds.score import any_placement_bound, placement_bound

    if record.shape != instance.shape:
        raise CheckError(f"shape {record.shape} in the manifest, {instance.shape} in the file")
    if record.layout is None or record.best is None:
        return
    layout = Layout(record.layout, instance.rows, instance.problem.topology.dp)  # type: ignore[arg-type]
    score = instance.score(layout)
    if list(score.components) != record.best:
        raise CheckError(f"the stored layout scores {score.components}, the manifest says {record.best}")
    demand = instance.placement.demand(instance.problem.item_counts)
    counted = placement_bound(instance.problem, instance.rows, demand).components
    if any(low > value for low, value in zip(counted, record.best, strict=True)):
        raise CheckError(f"the best known score is below the counting bound {counted}")
    if record.bound is not None and record.bound > record.best:
        raise CheckError("the recorded bound is above the best known score")
    if record.bound_any is not None:
        anywhere = list(any_placement_bound(instance.problem, instance.rows).components)
        if record.bound_any != anywhere:
            raise CheckError(f"the bound over all placements is {anywhere}, not {record.bound_any}")
