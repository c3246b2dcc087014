"""What the project asks of itself next to what was measured: `python benchmarks/targets.py`.

Prints one Markdown table; every value comes from a file in ``results/`` and every line names the command that
writes that file. ``--measure`` runs these commands first, one after the other; those that can be interrupted
go on where they stopped, so remove their files for a new start.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import ge, getitem, gt, le, lt
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.how_good import grid, lines, ratios  # noqa: E402
from benchmarks.runs import RESULTS, read_runs  # noqa: E402

ROUTINE = ["Falkenauer U", "Falkenauer T", "Scholl 1", "Scholl 2", "Schwerin", "random"]
SIGNS = {"<=": (le, "at most"), ">=": (ge, "at least"), "<": (lt, "under"), ">": (gt, "over")}


@dataclass(frozen=True)
class Target:
    """One value that is asked for.

    Parameters
    ----------
    file : str
        Results file.
    asked : str
        What, in words.
    sign : {"<=", ">=", "<", ">"}
        Whether less or more is better, and whether the limit itself counts.
    limit : float
        In the unit of `measured`.
    measured : callable
        From the content of the file to the value.
    form : str
        How numbers are written.
    """

    file: str
    asked: str
    sign: str
    limit: float
    measured: Callable
    form: str = "{:.3g}"

    def row(self):
        """Cells of the table: asked, limit, measured, met, command."""
        path = RESULTS / self.file
        content = lines(path) if path.suffix == ".jsonl" else json.loads(path.read_text())
        value = self.measured(content)
        holds, sign = SIGNS[self.sign]
        met = "yes" if holds(value, self.limit) else "**no**"
        limit, value = (self.form.format(number) for number in (self.limit, value))
        return [self.asked, f"{sign} {limit}", value, met, f"`{read_runs()[self.file]['command']}`"]


def decided(section, group):
    """Share of windows of a section whose number of rows is proven, in percent."""

    def share(data):
        counts = data[section]["counts"][f"{section}/{group}"]
        known = counts.get("certified", 0) + counts.get("infeasible", 0)
        return 100 * known / sum(counts.values())

    return share


def large_slots(data):
    """Share as by `decided`, over all numbers of slots from 8 on."""
    counts = [data["stress"]["counts"][f"stress/D={d}"] for d in (8, 16, 32, 64)]
    known = sum(of.get("certified", 0) + of.get("infeasible", 0) for of in counts)
    return 100 * known / sum(sum(of.values()) for of in counts)


def literature(data):
    """Slowest proof over the six classes that are expected to close; infinite when one is missing."""
    classes = [data["literature"][name] for name in ROUTINE]
    return max(of["max"] if of["proved"] == of["instances"] else float("inf") for of in classes)


def column(key, of=np.mean):
    """Return a function that takes a mean, or something else, over one column of a file's rows."""
    return lambda data: float(of([row[key] for row in data["rows"]]))


def chain(data):
    """Windows on which the search is better than one chain of plain moves."""
    return sum(row["gap_ours_%"] < row["gap_plain_%"] for row in data["rows"])


def behind(data):
    """Most that the search is worse than one chain of plain moves, in points of the gap."""
    return max(row["gap_ours_%"] - row["gap_plain_%"] for row in data["rows"])


def closing(samples):
    """Median processor seconds to close instances of four cells; an open one counts as infinite."""

    def seconds(rows):
        mine = [of for of in rows if of["shape"][:4] == [samples, 2, 2, 1] and of["shape"][4:] == [8, 4]]
        mine = [of for of in mine if (of["backend"], of["way"]) == ("cpsat", "ours")]
        return float(np.median([of["seconds"] if of["proven"] == 3 else np.inf for of in mine]))

    return seconds


def optimal(rows):
    """Share of runs with the default budget at the proven optimum, in percent."""
    return 100 * float(np.mean([row["missed"] is None for row in rows if "default budget" in row["method"]]))


def closed_faster(backend):
    """Plain model over ours, in time to close an instance."""
    return lambda rows: ratios(rows)[backend][0]


def at(*keys, unit=1):
    """Return a function that takes one value, in units, out of nested lists and dictionaries."""
    return lambda data: reduce(getitem, keys, data) / unit


def targets():
    """All targets, by results file."""
    rows, exact = "rows.json", "exact.jsonl"
    quality, ling, chains = "annealing-quality.json", "annealing-ling.json", "annealing-chain.json"
    rows, speed, first, large = (
        "rows.json",
        "annealing-speed.json",
        "annealing-first.json",
        "annealing-large.json",
    )
    return [
        Target(rows, "real and RL-like lengths: windows certified, %", ">=", 100, decided("real", "all")),
        Target(rows, "N = 512, C = 8192: median, ms", "<", 5, at("latency", "all", "median", unit=1e-3)),
        Target(rows, "the same: 99th percentile, ms", "<", 50, at("latency", "all", "p99", unit=1e-3)),
        Target(rows, "stress lengths, 2 s, D = 4: certified, %", ">=", 95, decided("stress", "D=4")),
        Target(rows, "stress lengths, 2 s, D from 8: certified, %", ">=", 99, large_slots),
        Target(rows, "windows with more rows than a packer", "<=", 0, lambda of: len(of["peers"]["more"])),
        Target(rows, "six classes of the literature: slowest proof, s", "<=", 60, literature),
        Target("gap-exact-small.jsonl", "small instances: runs at the optimum, %", ">=", 100, optimal),
        Target(exact, "plain model over ours, CP-SAT, time", ">", 1, closed_faster("cpsat")),
        Target(exact, "plain model over ours, HiGHS, time", ">", 1, closed_faster("highs")),
        Target(exact, "four cells, N = 24, proof: median, s", "<=", 10, closing(24)),
        Target(exact, "four cells, N = 32, proof: median, s", "<=", 30, closing(32)),
        Target(speed, "rescoring two rows over ours, time", ">=", 4, column("rescored_over_ours")),
        Target(speed, "byte rate over streaming", ">=", 0.5, column("byte_rate_over_streaming")),
        Target(speed, "two threads over one", ">=", 1.8, column("two_threads_over_one")),
        Target(quality, "recorded windows, 1 s: gap, mean, %", "<=", 0.15, column("gap_any_%")),
        Target(quality, "recorded windows, 1 s: gap, worst, %", "<=", 0.40, column("gap_any_%", max)),
        Target(
            ling, "Ling-like windows, 1 s over 120 s: worst, %", "<=", 0.2, column("above_long_run_%", max)
        ),
        Target(chains, "better than one chain, windows of ten", ">=", 9, chain),
        Target(chains, "behind one chain: most, points of the gap", "<=", 0.02, behind),
        Target(first, "first plan, N = 512, ms", "<", 20, at("rows", 0, "median_ms")),
        Target(first, "first plan, N = 16,384, s", "<", 1, at("rows", 1, "median_ms", unit=1e3)),
        Target(large, "plan of N = 16,384: s", "<=", 60, column("seconds"), "{:.2f}"),
        Target(large, "plan of N = 16,384: GiB", "<=", 8, column("peak_GiB")),
        Target(
            "runtime.json", "moving over a bare exchange, time", "<=", 1.5, at("runtime", "ratio", "plain")
        ),
        Target("deadline.json", "of 1,000 windows in time", ">=", 1000, at("in_time"), "{:.0f}"),
        Target("deadline.json", "worse than the trainer's own layout", "<=", 0, at("worse_than_own")),
    ]


def table():
    """All targets as Markdown."""
    head = ["what", "asked", "measured", "met", "command"]
    return grid(head, [target.row() for target in targets()])


def measure():
    """Run the commands of all files, each once."""
    for name in dict.fromkeys(target.file for target in targets()):
        command = shlex.split(read_runs()[name]["command"])
        print(f"{name}: {shlex.join(command)}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, *command[1:]], cwd=ROOT, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        measure()
    elif sys.argv[1:]:
        raise SystemExit(f"expected nothing or --measure, found {' '.join(sys.argv[1:])}")
    print(table())
