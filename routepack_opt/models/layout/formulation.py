"""Variables, rules, costs and hints of the layout model.

Guarantees: auxiliaries take the value of what they stand for in every hint; all integers are divided by the
greatest common divisor `unit` of the items' scaled works, so that they are as small as they can be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.bounds.score import ScoreBound, placement_bound
from routepack_opt.errors import InfeasibleError
from routepack_opt.layout import Layout
from routepack_opt.models.layout.rules import add_rules
from routepack_opt.models.layout.symmetry import add_symmetry, canonical_cells
from routepack_opt.models.linear import LinearModel
from routepack_opt.problem import Problem
from routepack_opt.scoring import loads_of

#: The score's components in the order of the comparison.
COMPONENTS = ("primary", "total", "row_peak")


@dataclass(frozen=True)
class LayoutModel:
    """The linear model with what is needed to go from layouts to values and back.

    Attributes
    ----------
    problem, demand, rows
        What was modelled: the problem, q int (M, L, P), and R.
    linear : LinearModel
        Variables and rows.
    in_cell : list of list of int
        Variable of item m in flat cell k: ``in_cell[m][k]``.
    in_block : list of list of int
        Variable of item m in row-shard b = r * G + g.
    straggler, peak : dict
        Auxiliaries: (stage, block) and (block, layer) to variable.
    objective : dict of str to int
        Variable of every component.
    unit : int
        What a component in the model is multiplied by to be the score's.
    stage_unit : tuple of int
        Scaled cost of one unit of every stage's straggler.
    bound : ScoreBound
        Combinatorial bounds, already stated as rows.
    symmetry : bool
        Whether symmetry rows are on, so that hints must be canonical.
    """

    problem: Problem
    demand: npt.NDArray[Any]
    rows: int
    bound: ScoreBound
    unit: int
    stage_unit: tuple[int, ...]
    symmetry: bool
    linear: LinearModel = field(default_factory=LinearModel)
    in_cell: list[list[int]] = field(default_factory=list)
    in_block: list[list[int]] = field(default_factory=list)
    straggler: dict[tuple[int, int], int] = field(default_factory=dict)
    peak: dict[tuple[int, int], int] = field(default_factory=dict)
    objective: dict[str, int] = field(default_factory=dict)

    @property
    def blocks(self) -> int:
        """Row-shards R * G."""
        return self.rows * self.problem.topology.num_shards

    def cells_of(self, block: int) -> list[int]:
        """Flat cells of a row-shard."""
        row, shard = divmod(block, self.problem.topology.num_shards)
        return [row * self.problem.topology.dp + d for d in self.problem.topology.shards[shard]]

    def hint(self, layout: Layout) -> list[int]:
        """Values of every variable, auxiliaries included, for a valid layout (canonical if need be)."""
        cells = layout.cell_of_item(self.problem)
        if self.symmetry:
            cells = canonical_cells(self, cells)
        layout = Layout.from_items(self.problem, cells, self.rows)
        loads = loads_of(self.problem, self.demand, layout)
        shards = self.problem.topology.num_shards
        values = [0] * len(self.linear.names)
        block_of_cell = {k: b for b in range(self.blocks) for k in self.cells_of(b)}
        for m, k in enumerate(cells.tolist()):
            values[self.in_cell[m][k]] = 1
            values[self.in_block[m][block_of_cell[k]]] = 1
        for (s, b), index in self.straggler.items():
            values[index] = int(loads.attention[s][divmod(b, shards)]) // self.stage_unit[s]
        for (b, layer), index in self.peak.items():
            values[index] = int(loads.routed[divmod(b, shards)][layer].max())
        joint = loads.joint
        parts = (int(joint.sum(axis=0).max()), int(joint.sum()), int(joint.max()))
        for name, value in zip(COMPONENTS, parts, strict=True):
            values[self.objective[name]] = value // self.unit
        if self.problem.rules.row_class is not None:
            self._hint_classes(cells, values)
        return values

    def _hint_classes(self, cells: npt.NDArray[np.int64], values: list[int]) -> None:
        classes = self.problem.items.row_class
        names = {name: k for k, name in enumerate(self.linear.names) if name.startswith("class[")}
        for m, k in enumerate(cells.tolist()):
            values[names[f"class[{k // self.problem.topology.dp},{int(classes[m])}]"]] = 1

    def at_least(self, component: str, value: int) -> None:
        """Raise the lower end of a component to a proven scaled bound; every solver sees it as a range."""
        index = self.objective[component]
        low, high = self.linear.bounds[index]
        self.linear.bounds[index] = (max(low, -(-value // self.unit)), high)

    def layout(self, values: Sequence[float] | Mapping[int, float]) -> Layout:
        """Return the layout that a solution means; only the cell variables are read, rounded."""
        cells = [max(range(len(row)), key=lambda k: (values[row[k]], -k)) for row in self.in_cell]
        return Layout.from_items(self.problem, np.array(cells, np.int64), self.rows)


def build_layout_model(
    problem: Problem, demand: npt.NDArray[Any], rows: int, *, symmetry: bool = True, cuts: bool = True
) -> LayoutModel:
    """Build the model.

    Parameters
    ----------
    problem : Problem
        Items, stages, topology and rules.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.
    rows : int
        R.
    symmetry : bool, default True
        Remove layouts that differ by an exchange of rows, of cells in a shard, of equal shards or of
        identical items.
    cuts : bool, default True
        Add rows that are implied: links between the components, and the combinatorial bounds.

    Returns
    -------
    LayoutModel

    Raises
    ------
    InfeasibleError
        When the number of rows alone breaks a rule.
    InputError
        When a sum could leave 62 bits.
    """
    check_rows(problem, rows)
    model = start_model(problem, demand, rows, placement_bound(problem, rows, demand), symmetry=symmetry)
    for b in range(model.blocks):
        _add_peaks(model, b)
    peaks = int(demand.max(axis=2).sum(dtype=np.int64)) if demand.size else 0
    add_components(model, peaks)
    if cuts:
        _add_cuts(model)
    if symmetry:
        add_symmetry(model)
    model.linear.check()
    return model


def start_model(
    problem: Problem, demand: npt.NDArray[Any], rows: int, bound: ScoreBound, *, symmetry: bool
) -> LayoutModel:
    """Return a model with assignment, rules and attention, but without rank peaks and components."""
    steps = np.gcd.reduce(_stage_work(problem), axis=1).tolist()  # 0 for a stage without work
    unit = math.gcd(*steps, problem.expert_unit if problem.window.num_layers else 0) or 1
    model = LayoutModel(problem, demand, rows, bound, unit, tuple(g or unit for g in steps), symmetry)
    _add_assignment(model)
    add_rules(model)
    for b in range(model.blocks):
        _add_stragglers(model, b)
    return model


def check_rows(problem: Problem, rows: int) -> None:
    """Raise when the number of rows alone breaks a rule."""
    rules, cells = problem.rules, rows * problem.topology.dp
    if rows < rules.min_rows:
        raise InfeasibleError("min_rows", f"{rows} rows where min_rows={rules.min_rows}")
    if rows % rules.row_multiple:
        raise InfeasibleError("row_multiple", f"{rows} rows where row_multiple={rules.row_multiple}")
    if cells > problem.items.size:
        raise InfeasibleError("non-empty cells", f"{problem.items.size} items for {cells} cells")


def _add_assignment(model: LayoutModel) -> None:
    """Eqs. 6-7: every item in one cell, no cell empty."""
    linear, items, dp = model.linear, model.problem.items.size, model.problem.topology.dp
    for m in range(items):
        model.in_cell.append([linear.binary(f"x[{m},{k}]") for k in range(model.rows * dp)])
        linear.row("assignment", [(v, 1) for v in model.in_cell[m]], 1, 1)
    for m in range(items):
        of_block = []
        for b in range(model.blocks):
            cells = model.cells_of(b)
            if len(cells) == 1:
                of_block.append(model.in_cell[m][cells[0]])
                continue
            of_block.append(linear.binary(f"y[{m},{b}]"))
            terms = [(model.in_cell[m][k], 1) for k in cells]
            linear.row("assignment", [*terms, (of_block[-1], -1)], 0, 0)
        model.in_block.append(of_block)
    for k in range(model.rows * dp):
        linear.row("non-empty cells", [(row[k], 1) for row in model.in_cell], 1)


def add_components(model: LayoutModel, peaks: int) -> None:
    """Add the three components (Eqs. 12-15); `peaks` is what all items' rank peaks add up to at most."""
    linear, shards = model.linear, model.problem.topology.num_shards
    whole = (int(_stage_work(model.problem).sum()) + peaks * model.problem.expert_unit) // model.unit
    for name in COMPONENTS:
        model.objective[name] = linear.variable(name, 0, whole)
    cost = [_block_cost(model, b) for b in range(model.blocks)]
    for g in range(shards):
        terms = [term for b in range(g, model.blocks, shards) for term in cost[b]]
        linear.row("cost", [(model.objective["primary"], 1), *((v, -c) for v, c in terms)], 0)
    everything = [(v, -c) for part in cost for v, c in part]
    linear.row("cost", [(model.objective["total"], 1), *everything], 0, 0)
    for part in cost:
        linear.row("cost", [(model.objective["row_peak"], 1), *((v, -c) for v, c in part)], 0)


def _add_stragglers(model: LayoutModel, block: int) -> None:
    linear = model.linear
    for s, of_item in enumerate(_stage_work(model.problem)):
        work = (of_item // model.stage_unit[s]).tolist()
        v = model.straggler[s, block] = linear.variable(f"straggler[{s},{block}]", 0, sum(work))
        for k in model.cells_of(block):
            terms = [(model.in_cell[m][k], -w) for m, w in enumerate(work)]
            linear.row("cost", [(v, 1), *terms], 0)


def _stage_work(problem: Problem) -> npt.NDArray[np.int64]:
    """Scaled attention work of every item in every stage, int64 (stages, M)."""
    items = problem.items
    work = problem.linear[:, None] * items.tokens + problem.quadratic[:, None] * items.squares
    return np.asarray(work, np.int64)


def _add_peaks(model: LayoutModel, block: int) -> None:
    for layer in range(model.demand.shape[1]):
        loads = model.demand[:, layer].astype(np.int64)
        limit = int(loads.max(axis=1).sum())
        v = model.peak[block, layer] = model.linear.variable(f"peak[{block},{layer}]", 0, limit)
        for p in range(loads.shape[1]):
            terms = [(model.in_block[m][block], -int(q)) for m, q in enumerate(loads[:, p])]
            model.linear.row("cost", [(v, 1), *terms], 0)


def _block_cost(model: LayoutModel, block: int) -> list[tuple[int, int]]:
    """J[r,g] in model units, as terms."""
    stages = [(model.straggler[s, block], u // model.unit) for s, u in enumerate(model.stage_unit)]
    step = model.problem.expert_unit // model.unit
    return [*stages, *((model.peak[block, layer], step) for layer in range(model.demand.shape[1]))]


def _add_cuts(model: LayoutModel) -> None:
    """State what the components imply of each other, and the combinatorial bounds; all of it is implied."""
    linear, bound = model.linear, model.bound
    shards = model.problem.topology.num_shards
    linear.row("links", [(model.objective["primary"], shards), (model.objective["total"], -1)], 0)
    linear.row("links", [(model.objective["row_peak"], model.rows), (model.objective["primary"], -1)], 0)
    for name, value in zip(COMPONENTS, bound.components, strict=True):
        linear.row("bounds", [(model.objective[name], 1)], -(-value // model.unit))
    for layer, loads in enumerate(model.demand.sum(axis=0, dtype=np.int64)):
        linear.row("bounds", [(model.peak[b, layer], 1) for b in range(model.blocks)], int(loads.max()))
    work = _stage_work(model.problem)
    for s, unit in enumerate(model.stage_unit):
        volume = int(work[s].sum())
        terms = [(model.straggler[s, b], len(model.cells_of(b))) for b in range(model.blocks)]
        linear.row("bounds", terms, volume // unit)
