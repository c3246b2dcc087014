"""Instances at production size, stored as recipes: recorded windows by reference, drawn ones by their seed.

Guarantees: a recipe determines the window, the problem and (through the refined placement) the question; a
suite compares the digest of what it makes with the manifest's, so a change in any of them is noticed.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from routepack_opt.problem import AttentionStage, Problem, Topology
from routepack_opt.suite import generators
from routepack_opt.suite.instances import Instance
from routepack_opt.window import Window

_RECORDED = 7
_SEEDS = 2
_PRESETS = ("ling", "deepseek", "qwen")
_LICENCE = "window: made for this project; text from openai/grade-school-math (MIT)"


@dataclass(frozen=True)
class WindowRecipe:
    """What an instance at production size is made of.

    Parameters
    ----------
    window : str
        Path of a window file relative to the folder that holds the suites, or ``ling``, ``deepseek`` or
        ``qwen`` for the generator of that name.
    seed : int or None
        Seed of the generator.
    rows : int
        R, the certified least number of rows; 0 while it is not known.
    shards : int
        G of the D = 8 slots.
    capacity : int
        C.
    dp, ep : int
        D and P.
    stages : tuple of str
        NAME:ALPHA:BETA.
    """

    window: str
    seed: int | None
    rows: int
    shards: int
    capacity: int
    dp: int = 8
    ep: int = 8
    stages: tuple[str, ...] = ("kda:6:0", "mla:2:2")

    @property
    def name(self) -> str:
        """Id of the instance."""
        stem = Path(self.window).stem.replace("window", "gsm8k")
        return f"{stem}-g{self.shards}" if self.seed is None else f"{stem}-{self.seed}-g{self.shards}"


def window_recipes() -> list[WindowRecipe]:
    """Return the recipes of the suite ``windows``, without their rows."""
    recorded: list[tuple[str, int | None, int]] = [
        (f"gsm8k-moe/window-{k:02d}.npz", None, 2048) for k in range(_RECORDED)
    ]
    drawn: list[tuple[str, int | None, int]] = [(p, seed, 8192) for p in _PRESETS for seed in range(_SEEDS)]
    return [WindowRecipe(w, seed, 0, g, cap) for w, seed, cap in recorded + drawn for g in (1, 2)]


def make_problem(recipe: WindowRecipe, suites: Path) -> Problem:
    """Make the problem of a recipe.

    Parameters
    ----------
    recipe : WindowRecipe
        What to make.
    suites : Path
        Folder that holds the suites and the recorded windows.
    """
    if recipe.seed is None:
        window = Window.load(suites / recipe.window)
    else:
        window = getattr(generators, f"{recipe.window}_window")(recipe.seed)
    stages = tuple(AttentionStage.parse(text) for text in recipe.stages)
    return Problem(window, Topology(recipe.dp, recipe.ep, recipe.shards), recipe.capacity, stages)


def make_instance(recipe: WindowRecipe, suites: Path) -> Instance:
    """Make the instance of a recipe, under the refined placement of its window; arguments as above."""
    from routepack_opt.solvers.placing import place

    problem = make_problem(recipe, suites)
    licence = _LICENCE if recipe.seed is None else "generated"
    provenance = {"made_from": asdict(recipe), "licence": licence}
    return Instance(recipe.name, problem, place(problem).placement, recipe.rows, provenance)


def remake(provenance: dict[str, Any], suites: Path) -> Instance:
    """Make the instance of a manifest entry again, from its ``made_from``."""
    fields = provenance["made_from"]
    return make_instance(WindowRecipe(**{**fields, "stages": tuple(fields["stages"])}), suites)
