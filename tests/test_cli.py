"""The command line: results, the JSON contract, exit codes, and messages of one line."""

# ruff: noqa: E501  (a table: one case, one line)

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import routepack_opt as rp
from routepack_opt.cli.app import run

ROOT = Path(__file__).parents[1]
REPLAY = ROOT / "tests" / "fixtures" / "replay-00.npz"
LENGTHS = [9, 8, 7, 7, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1]
PLAN = ["--dp", "2", "--ep", "4", "--edp-shards", "2", "--capacity", "12", "--proposals", "400"]
STAGES = ["--stage", "kda:6:0", "--stage", "mla:2:2"]
LAYOUT_METRICS = {"joint", "attention", "ep_peak_sum", "ep_tail_peak", "ep_balance_efficiency", "cv_global"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A window, a plan of it, and a bin-packing instance."""
    path = tmp_path_factory.mktemp("cli")
    rng = np.random.default_rng(2)
    counts = np.array([[rng.multinomial(n, np.full(8, 1 / 8)) for _ in range(2)] for n in LENGTHS])
    rp.Window.from_counts(LENGTHS, counts).save(path / "window.npz")
    rp.Window.from_lengths([5, 5, 5]).save(path / "three.npz")
    (path / "small.bpp").write_text("4\n10\n6\n5\n5\n4\n")
    (path / "broken.bpp").write_text("4\n10\n6\nsix\n5\n4\n")
    (path / "text.json").write_text("not json")
    (path / "flat.json").write_text("[1, 2]")
    return path


@pytest.fixture
def call(capsys, folder, monkeypatch):
    """Run a command in the folder; returns its exit code, standard output and standard error."""
    monkeypatch.chdir(folder)

    def called(*arguments):
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        return code, *capsys.readouterr()

    return called


def one_object(out):
    """Parse standard output, which must be one line with one JSON object."""
    assert out.count("\n") == 1
    assert out.endswith("}\n")
    found = json.loads(out, parse_constant=lambda word: pytest.fail(f"{word} in JSON"))
    assert isinstance(found, dict)
    return found


# Results.


def test_plan_prints_the_comparison_and_writes_the_plan(call, folder):
    code, out, err = call("plan", "window.npz", *PLAN, *STAGES, "-o", "plan.npz")
    assert (code, err) == (0, "")
    for word in (
        "Baseline",
        "Reorder",
        "RoutePack",
        "least-loaded",
        "3 rows x 2 slots (certified",
        "reproducible",
    ):
        assert word in out
    assert "written to plan.npz" in out
    assert rp.Plan.load(folder / "plan.npz").rows.rows == 3


def test_plan_json_keeps_its_contract(call, folder):
    code, out, err = call("plan", "window.npz", *PLAN, *STAGES, "--json", "-o", "plan.npz")
    assert (code, err) == (0, "")
    found, plan = one_object(out), rp.Plan.load(folder / "plan.npz")
    assert (found["rows"], found["rows_lower_bound"], found["rows_status"]) == (3, 3, "certified")
    assert {"primary", "total", "row_peak", "primary_float", "total_float", "row_peak_float"} <= set(
        found["score"]
    )
    assert [found["score"][k] for k in ("primary", "total", "row_peak")] == [
        str(x) for x in plan.score.components
    ]
    assert [found["score"][f"{k}_float"] for k in ("primary", "total", "row_peak")] == list(
        plan.score.as_float()
    )
    assert found["gap"] == (found["score"]["primary_float"] - found["bound_float"]) / found[
        "bound_float"
    ] or (found["gap"] == pytest.approx(plan.gap))
    assert found["gap_any"] == plan.gap_any >= 0
    assert found["bound_any_float"] == plan.bound_any / plan.score.denominator
    assert found["rung"] == "annealed"
    assert found["hash"] == plan.hash
    assert 0 < found["seconds"] < 300
    assert found["warmup_seconds"] > 0
    for name in ("baseline", "reorder", "routepack"):
        assert set(found["metrics"][name]) == LAYOUT_METRICS
    assert found["metrics"]["routepack"]["joint"] == found["score"]["primary_float"]
    assert found["metrics"]["routepack"]["joint"] <= found["metrics"]["reorder"]["joint"]


def test_crossings_are_told_when_nodes_are_given(call, folder):
    assert "crossings" not in one_object(call("plan", "window.npz", *PLAN, "--json")[1])
    options = [*PLAN, "--ranks-per-node", "1", "-o", "plan.npz"]
    code, out, _ = call("plan", "window.npz", *options, "--json")
    found, plan = one_object(out)["crossings"], rp.Plan.load(folder / "plan.npz").crossings
    assert (code, found["before"], found["after"]) == (0, str(plan.before), str(plan.after))
    assert found["share"] == plan.share
    assert "assignments leave their node (nodes of 1 ranks)" in call("show", "plan.npz")[1]


def test_show_gives_the_saved_plan_in_the_same_form(call):
    _, first, _ = call("plan", "window.npz", *PLAN, *STAGES, "--json", "-o", "plan.npz")
    code, again, _ = call("show", "plan.npz", "--json")
    planned = one_object(first)
    del planned["warmup_seconds"]
    assert (code, one_object(again)) == (0, planned)
    code, out, err = call("show", "plan.npz")
    assert (code, err) == (0, "")
    assert "RoutePack" in out
    assert planned["hash"][:16] in out


def test_rules_and_search_options_reach_the_planner(call, folder):
    rules = [
        "--equal-samples-per-slot",
        "--max-samples-per-cell",
        "4",
        "--row-multiple",
        "2",
        "--length-multiple",
        "2",
    ]
    more = ["--min-rows", "3", "--cell-multiple", "3", "--row-order", "largest_first", "--oversize", "alone"]
    options = ["--capacity", "14", "--seed", "3", "--threads", "2", "--method", "paper", "--refine-placement"]
    code, out, _ = call(
        "plan", "window.npz", *PLAN, *STAGES, *rules, *more, *options, "--json", "-o", "ruled.npz"
    )
    assert (code, one_object(out)["rows"]) == (0, 4)
    plan = rp.Plan.load(folder / "ruled.npz")
    problem = rp.Problem(
        rp.Window.load(folder / "window.npz"),
        rp.Topology(2, 4, 2),
        14,
        [rp.AttentionStage("kda", 6), rp.AttentionStage("mla", 2, 2)],
        rp.LayoutRules(
            equal_samples_per_slot=True, max_samples_per_cell=4, row_multiple=2, length_multiple=2,
            min_rows=3, cell_multiple=3, row_order="largest_first", oversize="alone",
        ),
    )  # fmt: skip
    plan.validate(problem)
    assert (plan.provenance["seed"], plan.provenance["method"]) == (3, "paper")


def test_plan_takes_an_own_layout_and_a_previous_plan(call, folder):
    call("plan", "window.npz", *PLAN, "-o", "plan.npz")
    cells = rp.Plan.load(folder / "plan.npz").cells
    (folder / "own.json").write_text(json.dumps(cells))
    code, out, _ = call("plan", "window.npz", *PLAN, "--own", "own.json", "--previous", "plan.npz", "--json")
    found = one_object(out)
    assert (code, found["moves"]) == (0, 0)
    assert set(found["metrics"]["own"]) == LAYOUT_METRICS


def test_a_deadline_is_marked_as_not_reproducible(call):
    code, out, _ = call("plan", "window.npz", *PLAN[:-2], *STAGES, "--deadline", "0.3")
    assert code == 0
    assert "not reproducible" in out


def test_a_checkpoint_is_written_and_gone_on_from(call, folder):
    asked = ("plan", "window.npz", *PLAN, *STAGES, "--checkpoint", "run.npz", "--json")
    code, first, err = call(*asked)
    assert (code, "going on" in err) == (0, False)
    code, second, err = call(*asked)
    assert code == 0
    assert "going on from run.npz" in err
    assert one_object(first)["hash"] == one_object(second)["hash"]
    (folder / "run.npz").write_bytes(b"torn")
    code, out, err = call(*asked)
    assert (code, out) == (2, "")
    assert "run.npz" in err


def test_a_preset_gives_the_stages(call, folder):
    options = ["--model", "qwen3-30b-a3b", "--tp", "1", "--cp", "1", "-o", "preset.npz"]
    code, out, err = call("plan", "window.npz", *PLAN, *options)
    assert code == 0, out + err
    assert rp.Plan.load(folder / "preset.npz").snapshot.stages


def test_import_reads_a_replay(call, folder):
    shape = ["--layers", "8", "--experts", "32", "--top-k", "4"]
    code, out, err = call("import", REPLAY, *shape, "-o", "imported.npz")
    assert (code, err) == (0, "")
    window = rp.Window.load(folder / "imported.npz")
    assert f"{window.size} samples" in out
    code, out, _ = call("import", REPLAY, *shape, "-o", "imported.npz", "--json")
    found = one_object(out)
    assert (found["samples"], found["layers"], found["experts"]) == (window.size, 8, 32)
    assert found["digest"] == window.digest
    code, out, _ = call("show", "imported.npz", "--json")
    assert one_object(out)["digest"] == window.digest


def test_place_writes_a_map_that_convert_reads(call, folder):
    code, out, _ = call("place", "window.npz", "--ep", "4", "-o", "map.json", "--json")
    found = one_object(out)
    assert code == 0
    assert {"method", "moves", "peak", "bound", "slot_of_expert"} <= set(found)
    assert all(peak >= bound for peak, bound in zip(found["peak"], found["bound"], strict=True))
    assert call("convert", "map.json", "map.npy", "--from", "sglang", "--to", "eplb", "--ep", "4")[0] in (
        0,
        2,
    )
    code, out, _ = call("place", "window.npz", "--ep", "4", "--previous", "map.json")
    assert code == 0
    assert "0 experts change rank" in out


def test_certify_proves_writes_and_checks(call, folder):
    options = ["--dp", "2", "--capacity", "12"]
    code, out, err = call("certify", "window.npz", *options, "--json", "-o", "cert.json")
    found = one_object(out)
    assert (code, err) == (0, "")
    assert (found["rows"], found["rows_lower_bound"], found["rows_status"]) == (3, 3, "certified")
    assert found["seconds"] >= 0
    code, out, _ = call("certify", "window.npz", *options, "--check", "cert.json")
    assert code == 0
    assert "holds: 3 rows, certified" in out
    code, out, _ = call("certify", "window.npz", *options, "--check", "cert.json", "--json")
    assert one_object(out)["status"] == "certified"


def test_certify_takes_a_bin_packing_instance(call):
    code, out, _ = call("certify", "small.bpp", "--json")
    assert (code, one_object(out)["rows"]) == (0, 2)
    assert call("certify", "small.bpp")[1].startswith("certified: rows 2")


def test_versions_and_help(call):
    code, out, _ = call("versions", "--json")
    assert code == 0
    assert one_object(out)["routepack_opt"] == rp.__version__
    assert rp.__version__ in call("versions")[1]
    code, out, _ = call("--help")
    assert code == 0
    for command in ("plan", "import", "place", "certify", "convert", "show", "versions"):
        assert command in out
        assert call(command, "-h")[0] == 0
    assert call()[0] == 2


# Exit codes and messages.

SHAPE = ["--layers", "8", "--experts", "32", "--top-k", "4"]
BAD_INPUT = {
    "no such window": (["plan", "none.npz", *PLAN], "no such file"),
    "a missing option": (["plan", "window.npz", "--dp", "2"], "--capacity"),
    "a missing required option": (["plan", "window.npz", "--capacity", "12"], "--dp"),
    "an unknown option": (["plan", "window.npz", *PLAN, "--dpp", "2"], "--dpp"),
    "an option that is no number": (["plan", "window.npz", *PLAN, "--seed", "x"], "--seed"),
    "an unknown command": (["plane"], "plane"),
    "a bad stage": (["plan", "window.npz", *PLAN, "--stage", "mla:x"], "mla"),
    "stages twice": (["plan", "window.npz", *PLAN, *STAGES, "--model", "qwen3-30b-a3b"], "--stage or --model"),
    "an unknown preset": (["plan", "window.npz", *PLAN, "--model", "nothing"], "nothing"),
    "both limits": (["plan", "window.npz", *PLAN, "--deadline", "1"], "at most one"),
    "a bad deadline": (["plan", "window.npz", *PLAN[:-2], "--deadline", "0"], "deadline"),
    "a bad method": (["plan", "window.npz", *PLAN, "--method", "tabu"], "method"),
    "a bad rule": (["plan", "window.npz", *PLAN, "--oversize", "drop"], "oversize"),
    "a sample over the cap": (["plan", "window.npz", *PLAN, "--capacity", "8"], "sample 0"),
    "uneven experts": (["plan", "window.npz", *PLAN, "--ep", "3"], "3 ranks"),
    "uneven shards": (["plan", "window.npz", *PLAN, "--edp-shards", "3"], "shards"),
    "an own layout that is no JSON": (["plan", "window.npz", *PLAN, "--own", "text.json"], "text.json"),
    "an own layout of another shape": (["plan", "window.npz", *PLAN, "--own", "flat.json"], "cells"),
    "no own layout": (["plan", "window.npz", *PLAN, "--own", "none.json"], "none.json"),
    "a previous plan that is none": (["plan", "window.npz", *PLAN, "--previous", "window.npz"], "a window file"),
    "an output folder that is none": (["plan", "window.npz", *PLAN, "-o", "no/plan.npz"], "no/"),
    "showing text": (["show", "text.json"], "text.json"),
    "a bad placing method": (["place", "window.npz", "--ep", "4", "--method", "best"], "--method"),
    "a bad instance": (["certify", "broken.bpp"], "six"),
    "certify without slots": (["certify", "window.npz", "--capacity", "12"], "--dp"),
    "a bad time limit": (["certify", "small.bpp", "--time-limit", "0"], "time_limit"),
    "a certificate that is none": (["certify", "small.bpp", "--check", "text.json"], "text.json"),
    "a replay that is none": (["import", "text.json", *SHAPE, "-o", "x.npz"], "text.json"),
    "a replay without a model": (["import", REPLAY, "-o", "x.npz"], "--layers"),
    "bad dense layers": (["import", REPLAY, *SHAPE, "--dense-layers", "a", "-o", "x.npz"], "--dense-layers"),
    "lengths that are none": (["import", REPLAY, *SHAPE, "--lengths", "text.json", "-o", "x.npz"], "text.json"),
    "a bad policy": (["import", REPLAY, *SHAPE, "--policy", "x", "-o", "x.npz"], "policy"),
    "a map that is none": (["convert", "text.json", "map.json", "--from", "sglang", "--to", "eplb", "--ep", "4"], "text.json"),
    "a map of no format": (["convert", "text.json", "map.json", "--from", "x", "--to", "eplb"], "'x'"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_one_line_and_exit_code_2(call, case):
    arguments, named = BAD_INPUT[case]
    code, out, err = call(*arguments)
    assert (code, out) == (2, ""), err
    assert err.startswith("routepack: ")
    assert err.count("\n") == 1, err
    assert named in err


def test_an_infeasible_window_is_exit_code_3_with_the_rule(call):
    code, out, err = call("plan", "three.npz", "--dp", "4", "--capacity", "10")
    assert (code, out) == (3, "")
    assert err.startswith("routepack: infeasible (samples)")
    assert err.count("\n") == 1
    code, out, err = call("plan", "three.npz", "--dp", "4", "--capacity", "10", "--json")
    found = one_object(out)
    assert (code, found["rows"], found["rows_status"], found["rule"]) == (3, None, "infeasible", "samples")
    assert "dummy" in found["message"]
    code, out, _ = call("certify", "three.npz", "--dp", "4", "--capacity", "10", "--json")
    found = one_object(out)
    assert (code, found["rows_status"], found["rule"]) == (3, "infeasible", "samples")


def test_a_certificate_that_does_not_hold_is_exit_code_4(call, folder):
    call("certify", "small.bpp", "-o", "cert.json")
    record = json.loads((folder / "cert.json").read_text())
    record["packing"][0] = 1 - record["packing"][0]
    (folder / "false.json").write_text(json.dumps(record))
    code, out, err = call("certify", "small.bpp", "--check", "false.json")
    assert (code, out) == (4, "")
    assert err.startswith("routepack: row certificate: ")
    assert err.count("\n") == 1


# The console entry, as users start it.


def entry(folder, *arguments):
    script = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["routepack"]
    module, name = script.split(":")
    code = f"import sys; from {module} import {name}; sys.exit({name}())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_console_entry_keeps_output_and_progress_apart(folder):
    done = entry(folder, "plan", "window.npz", *PLAN, *STAGES, "--json")
    assert done.returncode == 0, done.stderr
    assert one_object(done.stdout)["rung"] == "annealed"
    assert done.stderr == ""
    done = entry(folder, "plan", "none.npz", *PLAN)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
