"""Recipes of the exact suites: which instances there are, and how each is made.

Guarantees: a recipe and its seed determine the instance; windows are generated, or cut from recorded ones.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import cycle, product
from pathlib import Path
from typing import Any

import numpy as np

from routepack_opt.model import MoEModel
from routepack_opt.problem import AttentionStage, LayoutRules, Problem, Topology
from routepack_opt.suite.generators import draw_window
from routepack_opt.suite.instances import Instance
from routepack_opt.suite.lengths import FAMILIES, draw_lengths
from routepack_opt.window import Window

_LONGEST = 64  # tokens of a generated sample: keeps every model coefficient below 10^5
_STAGES = (
    (AttentionStage("kda", 6.0), AttentionStage("mla", 2.0, 2.0)),
    (AttentionStage("full", 1.0, 3.0),),
    (AttentionStage("linear", 4.0),),
    (),
)

#: Rules that the small suite contains, each with some instances.
RULES = (
    "none",
    "same_cell",
    "max_samples_per_cell",
    "row_class",
    "equal_samples_per_slot",
    "oversize",
    "length_multiple",
    "cell_multiple",
    "row_multiple",
    "pad_routing",
)


@dataclass(frozen=True)
class Recipe:
    """What an instance is made of.

    Parameters
    ----------
    samples, rows, dp, shards, layers, ranks : int
        N, R, D, G, L, P.
    lengths : str
        Length family, or ``window-03`` for a cut from that recorded window.
    stages : int
        Which attention stages, 0 to 3.
    rule : str
        One of :data:`RULES`.
    seed : int
        Source of all randomness, or where a recorded window is cut.
    fill : float
        Tokens over the room in all cells.
    """

    samples: int
    rows: int
    dp: int
    shards: int
    layers: int
    ranks: int
    lengths: str
    stages: int = 0
    rule: str = "none"
    seed: int = 0
    fill: float = 0.85

    @property
    def name(self) -> str:
        """Id of the instance."""
        shape = f"n{self.samples:02d}-r{self.rows}-d{self.dp}-g{self.shards}-l{self.layers}-p{self.ranks}"
        return f"{shape}-{self.lengths}-{self.rule}-{self.seed}".replace("_", "")


def make(recipe: Recipe, recorded: Path) -> Instance:
    """Make the instance of a recipe.

    Parameters
    ----------
    recipe : Recipe
        What to make.
    recorded : Path
        Folder of the recorded windows.
    """
    from routepack_opt.solvers.placing import place

    window, source = _window(recipe, recorded)
    rules = _rules(recipe, window)
    multiple = int(rules.get("length_multiple", 1))
    aligned = -(-window.lengths // multiple) * multiple
    capacity = _capacity(recipe, aligned, multiple * int(rules.get("cell_multiple", 1)))
    topology = Topology(recipe.dp, recipe.ranks, recipe.shards)
    problem = Problem(window, topology, capacity, _STAGES[recipe.stages], LayoutRules(**rules))
    provenance = {"recipe": asdict(recipe), **source}
    return Instance(recipe.name, problem, place(problem).placement, recipe.rows, provenance)


def _window(recipe: Recipe, recorded: Path) -> tuple[Window, dict[str, str]]:
    if recipe.lengths.startswith("window-"):
        whole = Window.load(recorded / f"{recipe.lengths}.npz")
        start = recipe.seed * 4 % (whole.size - recipe.samples)
        cut = slice(start, start + recipe.samples)
        licence = "window: made for this project; text from openai/grade-school-math (MIT)"
        counts = whole.counts[cut, : recipe.layers]
        return Window(whole.lengths[cut], counts.copy(), model=_model(recipe, 32, 4)), {"licence": licence}
    of_lengths, of_routing = np.random.SeedSequence([recipe.seed, recipe.samples]).spawn(2)
    lengths = draw_lengths(recipe.lengths, recipe.samples, _LONGEST, of_lengths)
    model = _model(recipe, 2 * recipe.ranks * (1 + recipe.seed % 2), 2)
    drawn = draw_window(lengths, model, of_routing)
    return Window(lengths, drawn.counts, model=model), {"licence": "generated"}


def _model(recipe: Recipe, experts: int, top_k: int) -> MoEModel:
    return MoEModel(recipe.layers, experts, top_k)


def _rules(recipe: Recipe, window: Window) -> dict[str, Any]:
    """Rules of the recipe; recorded lengths are always aligned, to keep the coefficients small."""
    base: dict[str, Any] = {"length_multiple": 8} if recipe.lengths.startswith("window-") else {}
    size = window.size
    by_length = [int(i) for i in np.argsort(window.lengths, kind="stable")]
    every = {"row_multiple": recipe.rows, "min_rows": recipe.rows, "row_order": "largest_first"}
    special: dict[str, dict[str, Any]] = {
        "none": {},
        "same_cell": {"same_cell": (tuple(by_length[:2]), tuple(by_length[2:4]))},
        "max_samples_per_cell": {"max_samples_per_cell": -(-size // (recipe.rows * recipe.dp)) + 1},
        "row_class": {"row_class": tuple(int(k < size // 2) for k in range(size))},
        "equal_samples_per_slot": {"equal_samples_per_slot": True},
        "oversize": {"oversize": "alone"},
        "length_multiple": {"length_multiple": 8},
        "cell_multiple": {"cell_multiple": 4},
        "row_multiple": every,
        "pad_routing": {"length_multiple": 8, "pad_routing": "uniform"},
    }
    return base | special[recipe.rule]


def _capacity(recipe: Recipe, aligned: np.typing.NDArray[np.int64], multiple: int) -> int:
    cells = recipe.rows * recipe.dp
    if recipe.rule == "oversize":  # the longest sample is over the cap and leaves the other cells to the rest
        rest = np.sort(aligned)[:-1]
        room = max(int(rest.max()), int(np.ceil(rest.sum() / ((cells - 1) * recipe.fill))))
    else:
        room = max(int(aligned.max()), int(np.ceil(aligned.sum() / (cells * recipe.fill))))
    return -(-room // multiple) * multiple


def small_recipes() -> list[Recipe]:
    """Return the recipes of ``exact-small``: small enough to be proven by both kinds of solver."""
    shapes = [(6, 1, 2, 1), (7, 2, 1, 1), (8, 2, 2, 1), (8, 2, 2, 2), (9, 3, 1, 1), (9, 1, 3, 1)]
    shapes += [(10, 2, 2, 1), (10, 2, 2, 2), (10, 1, 4, 2), (12, 2, 2, 1), (12, 1, 4, 1), (12, 3, 2, 2)]
    shapes += [(12, 2, 3, 1), (12, 4, 1, 1), (14, 2, 2, 1), (14, 1, 2, 1), (16, 2, 2, 1), (16, 1, 4, 2)]
    shapes += [(18, 2, 1, 1), (20, 2, 2, 1), (20, 1, 2, 1), (24, 2, 1, 1), (24, 2, 2, 1), (30, 1, 2, 1)]
    kinds = cycle([(4, 4), (1, 2), (6, 4), (2, 3), (3, 4), (5, 2)])
    families = cycle([*FAMILIES[:5], "window-00", *FAMILIES[5:], "window-03", "window-06"])
    rules, stages = cycle(RULES), cycle([0, 0, 1, 0, 2, 3, 0])
    result = []
    for seed in range(8):
        for samples, rows, dp, shards in shapes:
            layers, ranks = next(kinds)
            lengths = next(families)
            recipe = Recipe(
                samples,
                rows,
                dp,
                shards,
                layers,
                _ranks(lengths, ranks),
                lengths,
                next(stages),
                next(rules),
                seed,
            )
            if _sensible(recipe):
                result.append(recipe)
    return sorted(result, key=lambda r: (r.samples * r.rows * r.dp, r.name))


def medium_recipes() -> list[Recipe]:
    """Return the recipes of ``exact-medium``: too large to be closed in a minute."""
    shapes = [(16, 4, 2, 2), (20, 4, 2, 2), (24, 3, 2, 1), (24, 2, 4, 2), (32, 4, 2, 1), (32, 2, 4, 2)]
    shapes += [(40, 2, 2, 1), (48, 4, 4, 2), (64, 4, 4, 2), (96, 6, 4, 1)]
    kinds = cycle([(8, 4), (24, 8), (8, 8)])
    families = cycle([*FAMILIES, "window-01", "window-04"])
    result = []
    more = [(28, 4, 2, 2), (40, 4, 2, 1), (48, 3, 4, 2)]
    for seed, (samples, rows, dp, shards) in [*product(range(5), shapes), *product(range(5), more)]:
        layers, ranks = next(kinds)
        lengths = next(families)
        layers = min(layers, 8) if lengths.startswith("window-") else layers
        result.append(Recipe(samples, rows, dp, shards, layers, ranks, lengths, seed=seed))
    return result


def _ranks(lengths: str, ranks: int) -> int:
    return 4 if lengths.startswith("window-") else ranks  # recorded windows have 32 experts


def _sensible(recipe: Recipe) -> bool:
    cells = recipe.rows * recipe.dp
    return not (
        (recipe.rule == "equal_samples_per_slot" and (recipe.dp == 1 or recipe.samples % recipe.dp))
        or (recipe.rule == "row_class" and recipe.rows == 1)
        or (recipe.rule == "oversize" and cells < 3)
    )
