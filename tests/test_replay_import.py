"""``routepack import`` turns a file of every form into a window with one command."""

import sys
from pathlib import Path

import numpy as np
import pytest

from routepack_opt.window import Window

sys.path.insert(0, str(Path(__file__).parent / "fixtures"))
import make_replay_forms as forms

app = pytest.importorskip("routepack_opt.cli.app")
MODEL = ["--layers", "8", "--experts", "32", "--top-k", "4"]


@pytest.mark.parametrize("name", forms.MAKERS)
def test_one_command_imports_every_form(name, tmp_path):
    samples = forms.load(4)
    made = forms.make(name, tmp_path, samples)
    options = []
    if made.options:
        np.save(tmp_path / "lengths.npy", made.options["lengths"])
        options = ["--lengths", str(tmp_path / "lengths.npy"), "--side", made.options["side"]]
    target = tmp_path / "window.npz"
    assert app.run(["import", str(made.path), *MODEL, *options, "-o", str(target)]) == 0
    window = Window.load(target)
    assert window.lengths.tolist() == [s.length for s in samples]
    assert window.loads.sum() == 32 * sum(len(s.ids) for s in samples)
    assert window.source["form"] == made.form


def test_a_policy_is_chosen_and_reported(tmp_path, capsys):
    sample = forms.load(1)[0]
    path = tmp_path / "short.npz"
    np.savez(path, routed_experts=sample.ids[:-3], offsets=[0, len(sample.ids) - 3], lengths=[sample.length])
    command = ["import", str(path), *MODEL, "-o", str(tmp_path / "window.npz")]
    assert app.run(command) == 2
    assert "3 missing" in capsys.readouterr().err.replace("\n", " ")
    assert app.run([*command, "--policy", "count"]) == 0
    assert Window.load(tmp_path / "window.npz").source["rows"]["missing"] == 3
