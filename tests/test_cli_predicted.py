"""Forecast routing is named in whatever the command line prints about a window or a plan."""

import json

import numpy as np
import pytest

import routepack_opt as rp
from routepack_opt.cli.app import run

PLAN = ["--dp", "2", "--ep", "2", "--capacity", "12", "--proposals", "50"]


@pytest.fixture(params=["exact", "predicted"])
def folder(request, tmp_path, monkeypatch):
    """A window, its plan, and the routing of both."""
    lengths = [5, 4, 4, 3, 2]
    rng = np.random.default_rng(0)
    counts = np.array([[rng.multinomial(n, np.full(4, 1 / 4))] for n in lengths])
    window = rp.Window.from_counts(lengths, counts, routing=request.param)
    window.save(tmp_path / "window.npz")
    rp.plan(rp.Problem(window, rp.Topology(2, ep=2), 12), budget=rp.Budget(50)).save(tmp_path / "plan.npz")
    monkeypatch.chdir(tmp_path)
    return request.param


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "window.npz", *PLAN],
        ["show", "plan.npz"],
        ["show", "window.npz"],
        ["place", "window.npz", "--ep", "2"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_every_output_says_so(folder, command, capsys):
    assert run(command) == 0
    assert ("predicted" in capsys.readouterr().out) == (folder == "predicted")
    assert run([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["routing"] == folder
