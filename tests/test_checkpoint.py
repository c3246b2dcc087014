"""Checkpoints: a search stopped anywhere ends as one that was not; what cannot be used is refused."""

import os
from dataclasses import replace

import numpy as np
import pytest

from routepack_opt import files
from routepack_opt.errors import FormatError, InputError
from routepack_opt.files import save_npz
from routepack_opt.planner import Budget, plan
from routepack_opt.problem import AttentionStage, Problem, Topology
from routepack_opt.solvers.annealing.parameters import AnnealingParameters
from routepack_opt.window import Window

SHAPE = AnnealingParameters(population=3, levels=3, hottest=1e-2, coldest=1e-4)
CALL = {"seed": 5, "budget": Budget(3_000), "parameters": SHAPE, "baselines": False}


class KilledError(Exception):
    """Ends a search from inside, as a killed process does."""


def window_of(size=80, layers=3, experts=8, seed=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 100, size)
    skew = rng.dirichlet(np.full(experts, 0.5), (size, layers))
    counts = np.array([[rng.multinomial(n, p) for p in row] for n, row in zip(lengths, skew, strict=True)])
    return Window.from_counts(lengths, counts)


@pytest.fixture(scope="module")
def problem():
    return Problem(window_of(), Topology(4, 4, 2), 800, (AttentionStage("a", 1.0, 2.0),))


def outcome(made):
    """What a plan decides, and every number of its search but the clock's."""
    trace = [{k: v for k, v in level.items() if k != "seconds"} for level in made.trace]
    return made.hash, made.score, made.rung, made.provenance["proposals"], trace


def killed_after(problem, path, levels, **call):
    """Stop a search when it reports level number `levels` (from 0), which is not saved yet."""

    def stop(stage, facts):
        if stage == "level":
            seen.append(facts["level"])
            if len(seen) > levels:
                raise KilledError

    seen = []
    with pytest.raises(KilledError):
        plan(problem, progress=stop, checkpoint=path, **call)


@pytest.mark.parametrize(
    ("more", "phases"),
    [
        ({}, {"blocks", "inside", "finish"}),
        ({"parameters": replace(SHAPE, blocks_first=False)}, {"cells"}),
        ({"refine_placement": True}, {"blocks", "inside", "finish"}),
        ({"method": "paper", "parameters": None}, {"cells"}),
    ],
    ids=["blocks", "cells", "alternation", "paper"],
)
def test_a_search_killed_at_any_level_ends_as_if_it_had_not_been(problem, tmp_path, more, phases):
    call = CALL | more
    reference = plan(problem, **call)
    assert {level["phase"] for level in reference.trace} == phases
    for k in range(0, len(reference.trace), 1 if len(reference.trace) < 20 else 6):
        path = tmp_path / f"{k}.npz"
        killed_after(problem, path, k, **call)
        assert path.exists() == (k > 0)
        found = plan(problem, checkpoint=path, threads=2, **call).validate(problem)
        assert outcome(found) == outcome(reference)
        seconds = [level["seconds"] for level in found.trace]
        assert seconds == sorted(seconds) or more.get("refine_placement")  # which starts its clock again


def test_it_goes_on_instead_of_starting_again(problem, tmp_path):
    path, told = tmp_path / "run.npz", []
    killed_after(problem, path, 4, **CALL)
    before = path.read_bytes()
    plan(problem, checkpoint=path, progress=lambda stage, facts: told.append((stage, facts)), **CALL)
    stage, facts = told[0]
    assert (stage, facts["levels"]) == ("resumed", 4)
    assert 0 < facts["proposals"] < 3_000
    assert path.read_bytes() != before


def test_a_finished_search_is_not_searched_again(problem, tmp_path, monkeypatch):
    path = tmp_path / "run.npz"
    first = plan(problem, checkpoint=path, **CALL)
    monkeypatch.setattr("routepack_opt.solvers.annealing.members.run_chain", None)
    assert outcome(plan(problem, checkpoint=path, **CALL)) == outcome(first)


def test_a_crash_while_writing_loses_no_level(problem, tmp_path, monkeypatch):
    path, replaced = tmp_path / "run.npz", os.replace

    def fail(source, target):
        writes.append(target)
        if len(writes) == 3:
            raise OSError("power cut")
        replaced(source, target)

    writes = []
    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(OSError, match="power cut"):
        plan(problem, checkpoint=path, **CALL)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == ["run.npz"]
    assert outcome(plan(problem, checkpoint=path, **CALL)) == outcome(plan(problem, **CALL))


OTHERS = {
    "seed": ({"seed": 6}, r"seed \(5, not 6\)"),
    "proposals": ({"budget": Budget(6_000)}, r"proposals \(2100, not 4200\)"),
    # the first phase is colder than what is asked for
    "parameters": ({"parameters": replace(SHAPE, hottest=0.02)}, r"hottest \(0.006, not 0.012\)"),
    "phase": ({"parameters": replace(SHAPE, blocks_first=False)}, r"phase \(blocks, not cells\)"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_checkpoint_of_another_search_names_what_differs(problem, tmp_path, name):
    path = tmp_path / "run.npz"
    killed_after(problem, path, 2, **CALL)
    before = path.read_bytes()
    more, message = OTHERS[name]
    with pytest.raises(InputError, match=message):
        plan(problem, checkpoint=path, **(CALL | more))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("window", "capacity", "named"), [(window_of(seed=2), 800, "demand"), (window_of(), 801, "problem")]
)
def test_a_checkpoint_of_another_problem_is_refused(problem, tmp_path, window, capacity, named):
    path = tmp_path / "run.npz"
    killed_after(problem, path, 2, **CALL)
    other = Problem(window, problem.topology, capacity, problem.stages)
    with pytest.raises(InputError, match=f"another.*{named}"):
        plan(other, checkpoint=path, **CALL)


def test_damaged_and_foreign_files_are_refused_and_kept(problem, tmp_path):
    path = tmp_path / "run.npz"
    killed_after(problem, path, 2, **CALL)
    whole = path.read_bytes()
    plan_file, empty = tmp_path / "plan.npz", tmp_path / "empty.npz"
    plan(problem, **CALL).save(plan_file)
    save_npz(empty, "checkpoint", 1, {"parts": [{"level": 1}]}, {})
    bad = {"torn": whole[: len(whole) // 2], "text": b"not a checkpoint", "nothing": b""}
    bad |= {"plan": plan_file.read_bytes(), "no parts": empty.read_bytes()}
    for content in bad.values():
        path.write_bytes(content)
        with pytest.raises(FormatError, match=r"run\.npz: expected"):
            plan(problem, checkpoint=path, **CALL)
        assert path.read_bytes() == content


def test_arrays_of_another_shape_never_reach_the_kernels(problem, tmp_path):
    path = tmp_path / "run.npz"
    killed_after(problem, path, 2, **CALL)
    meta, arrays = files.load_npz(path, "checkpoint", 1)
    arrays["0.1.members"] = arrays["0.1.members"][:-1]
    save_npz(path, "checkpoint", 1, {"parts": meta["parts"]}, arrays)
    with pytest.raises(FormatError, match="members as int32"):
        plan(problem, checkpoint=path, **CALL)


def test_only_a_search_in_proposals_has_a_checkpoint(problem, tmp_path):
    with pytest.raises(InputError, match="found a deadline"):
        plan(problem, checkpoint=tmp_path / "run.npz", deadline=1.0)
    with pytest.raises(InputError, match="does not search"):
        plan(problem, checkpoint=tmp_path / "run.npz", method="seed")
    with pytest.raises(InputError, match="a folder that exists"):
        plan(problem, checkpoint=tmp_path / "none" / "run.npz", **CALL)
