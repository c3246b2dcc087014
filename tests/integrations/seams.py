"""Planners for the adapters' tests, and what every adapter must keep."""

from types import SimpleNamespace

import numpy as np

from routepack_opt import LayoutRules, Planner, PlannerConfig, Topology
from routepack_opt.integrations.seam import Seam
from routepack_opt.planner import SearchConfig
from routepack_opt.stages import AttentionStage


def config(dp, capacity, rules=None, on_error="fallback", ep=1):
    return PlannerConfig(
        Topology(dp, ep=ep),
        capacity,
        (AttentionStage("full", 1.0, 2.0),),
        rules or LayoutRules(),
        SearchConfig(deadline=None, proposals=500, baselines=False, enough=None),
        on_error,
    )


def seam(dp, capacity, rules=None, model=None, ep=1, **replay):
    """A seam whose plans are the same in every run."""
    return Seam(Planner(config(dp, capacity, rules, ep=ep), warm_up=False), model=model, **replay)


class Broken:
    """A planner that always fails, the way no planner should."""

    def __init__(self, dp, capacity, on_error="fallback"):
        self.config = config(dp, capacity, on_error=on_error)

    def plan(self, *args, **kwargs):
        raise RuntimeError("the solver died")


def broken(dp, capacity, on_error="fallback"):
    return Seam(Broken(dp, capacity, on_error))


def lengths(count, capacity, seed=0):
    """Like responses: many short, few long."""
    draw = np.random.default_rng(seed).lognormal(np.log(capacity / 6), 0.7, count)
    return np.clip(draw, 1, capacity).astype(int).tolist()


def counts(sizes, layers=2, experts=4, seed=0):
    """Skewed routing of one expert per token."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet(np.full(experts, 0.5), size=(len(sizes), layers))
    return np.stack(
        [[rng.multinomial(n, p) for p in one] for n, one in zip(sizes, share, strict=True)]
    ).astype(np.int32)


def check_grid(cells, sizes, capacity, dp, multiple=1, alone=()):
    """Every sample once, no cell empty, none over the cap, the same rows for every slot."""
    assert sorted(i for row in cells for cell in row for i in cell) == list(range(len(sizes)))
    assert all(len(row) == dp for row in cells) and len(cells) % multiple == 0
    for row in cells:
        for cell in row:
            assert cell
            assert sum(sizes[i] for i in cell) <= capacity or (len(cell) == 1 and cell[0] in alone)


def namespace(**values):
    return SimpleNamespace(**values)


def owns_of(here):
    """Own layouts that a seam hands its planner from now on."""
    seen, plan = [], here.planner.plan

    def spy(window, own=None, **more):
        seen.append(None if own is None else [[list(cell) for cell in row] for row in own.cells])
        return plan(window, own=own, **more)

    here.planner.plan = spy
    return seen
