"""Two committed plans: the same on every host, with the compiler on and off.

Guarantees: the first is asked for with explicit search parameters, so tuning the defaults does not change it;
the second ends with a complete search.
After a change that is meant to change plans, run ``python tests/test_plan_hash.py --update``.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import routepack_opt as rp

ROOT = Path(__file__).parents[1]
COMMITTED = ROOT / "tests" / "fixtures" / "plan_hash.txt"


def first_plan():
    """Plan the first 64 samples of a shipped window."""
    whole = rp.Window.load(ROOT / "instances" / "gsm8k-moe" / "window-00.npz")
    window = rp.Window.from_counts(whole.lengths[:64], whole.counts[:64], model=whole.model)
    problem = rp.Problem(
        window,
        rp.Topology(dp=4, ep=8, edp_shards=2),
        capacity=1024,
        stages=(rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0)),
    )
    shape = rp.AnnealingParameters(
        population=3,
        levels=5,
        hottest=1e-4,
        coldest=1e-6,
        mix=rp.Mix(near=300, any=300, move=200, pair=100, reach=8, guided=400),
    )
    return rp.plan(problem, seed=1, budget=rp.Budget(10_000), parameters=shape, refine_placement=True)


def smallest_plan():
    """Plan twelve samples, whose layouts are all looked at."""
    whole = rp.Window.load(ROOT / "instances" / "gsm8k-moe" / "window-00.npz")
    window = rp.Window.from_counts(whole.lengths[:12], whole.counts[:12, :2])
    stages = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))
    problem = rp.Problem(window, rp.Topology(dp=2, ep=4), 1024, stages)
    return rp.plan(problem, seed=1, rows=2, budget=rp.Budget(100))


def hashes():
    """Hash of both plans, as committed."""
    return f"{first_plan().hash}\n{smallest_plan().hash}\n"


def test_the_committed_plans_are_reproduced():
    assert hashes() == COMMITTED.read_text()


def test_every_layout_of_the_smallest_plan_was_looked_at():
    last = smallest_plan().trace[-1]
    assert last["phase"] == "complete"
    assert 0 < last["proposals"] < 5_000


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="the compiler is off already")
def test_the_committed_plans_are_reproduced_without_the_compiler():
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, __file__], env=environment, capture_output=True, text=True, check=False, timeout=250
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == COMMITTED.read_text()


if __name__ == "__main__":
    found = hashes()
    if "--update" in sys.argv:
        COMMITTED.write_text(found)
    print(found, end="")
