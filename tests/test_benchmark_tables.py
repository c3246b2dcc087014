"""The page on benchmarks shows every results file, with its command, and says what the file says."""

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import runs, tables  # noqa: E402

FILES = sorted(p.name for p in runs.RESULTS.glob("*.json*") if p != runs.RECORD)


def test_every_results_file_has_a_command_a_table_and_a_place_on_the_page():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert sorted(re.findall(r'show\("(.*)"\)', page)) == FILES
    assert set(tables.TABLES) <= set(FILES)
    assert sorted(runs.read_runs()) == FILES


@pytest.mark.parametrize("name", FILES)
def test_tables_are_whole(name):
    text = tables.show(name)
    assert runs.read_runs()[name]["command"] in text
    for block in re.findall(r"(?:^\|.*\n?)+", text, re.M):
        assert len({line.count(" | ") for line in block.splitlines()}) == 1
    assert not re.search(r"\bnan\b", text)


def test_a_table_says_its_file():
    levels = json.loads((runs.RESULTS / "deadline.json").read_text())["seconds"]
    text = tables.show("deadline.json")
    assert all(f"| {share} % | {value:.4f} |" in text for share, value in levels.items())


def test_a_measurement_is_stamped_with_its_machine(tmp_path, monkeypatch):
    record = tmp_path / "runs.json"
    record.write_text(json.dumps({"rows.json": {"command": "x", "cpu": None}, "gap": {"command": "y"}}))
    monkeypatch.setattr(runs, "RECORD", record)
    runs.stamp(["rows.json"])
    stamped = runs.read_runs()
    assert stamped["rows.json"] == stamped["rows.json"] | {"command": "x"} | runs.this_machine()
    assert stamped["gap"] == {"command": "y"}
    with pytest.raises(SystemExit, match=r"found other\.json"):
        runs.stamp(["other.json"])
