"""One Markdown table, or a few, for every file in ``results/``; the page on benchmarks shows them.

``docs/benchmarks.md`` calls :func:`show` while the documentation is built, so that it cannot say anything but
what the files say.
"""

import json
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks import evaluation, how_good, peers_table  # noqa: E402
from benchmarks.how_good import grid  # noqa: E402
from benchmarks.runs import RESULTS, read_runs  # noqa: E402
from routepack_opt.suite.evaluation import read_results, summary  # noqa: E402


def show(name):
    """Return how a results file was measured, and its tables, as Markdown."""
    run = read_runs()[name]
    head = ["file", "command", "version", "measured", "processor", "cores", "system"]
    keys = ("version", "measured", "cpu", "cores", "system")
    values = ["not recorded" if run[key] is None else run[key] for key in keys]
    where = grid(head, [[f"`benchmarks/results/{name}`", f"`{run['command']}`", *values]])
    return f"{where}\n\n{TABLES[name]() if name in TABLES else plain(name)}"


def load(name):
    """Read a JSON results file."""
    return json.loads((RESULTS / name).read_text())


def plain(name):
    """Show the rows of a file without a table of its own: the fields that hold one number or text."""
    found = load(name)["rows"]
    fields = [key for key, value in found[0].items() if not isinstance(value, list | dict)]
    body = [[f"{row[k]:.5g}" if isinstance(row[k], float) else row[k] for k in fields] for row in found]
    return grid([field.replace("_", " ") for field in fields], body)


def rows():
    """Latency of row certification, then classes of the literature."""
    data = load("rows.json")
    times = ("median", "p99", "max")
    head = ["lengths", *(f"{key}, ms" for key in times)]
    latency = [[name, *(f"{1000 * of[key]:.2f}" for key in times)] for name, of in data["latency"].items()]
    classes = [
        [name, f"{of['proved']} of {of['instances']}", *(f"{1000 * of[key]:.1f}" for key in times)]
        for name, of in data["literature"].items()
    ]
    second = grid(["class", "proven", *head[1:]], classes)
    return f"{grid(head, latency)}\n\n{second}"


def quality():
    """Gaps after a second."""
    head = ["window, shards", "rows", "gap", "gap over all placements", "million proposals", "seconds"]
    body = []
    for of in load("annealing-quality.json")["rows"]:
        gaps = [f"{of[key]:.3f} %" for key in ("gap_%", "gap_any_%")]
        amount = [f"{of['million_proposals']:.1f}", f"{of['seconds']:.2f}"]
        body.append([of["window"], of["rows"], *gaps, *amount])
    return grid(head, body)


def speed():
    """Time per proposal and its ratios."""
    names = {
        "ns_per_evaluated_swap": "nanoseconds per evaluated swap",
        "rescored_over_ours": "rescoring whole rows, over ours",
        "expert_terms_alone_over_ours": "the expert terms alone, over ours",
        "byte_rate_over_streaming": "rate of bytes read, over streaming memory",
        "two_threads_over_one": "proposals per second of two threads, over one",
    }
    (of,) = load("annealing-speed.json")["rows"]
    return grid(["measure", "value"], [[text, f"{of[key]:.2f}"] for key, text in names.items()])


def sweep():
    """Gaps around the default parameters."""
    rows = load("annealing-sweep.json")["rows"]
    body = [[of["parameters"], f"{of['mean_gap_%']:.3f} %", f"{of['worst_gap_%']:.3f} %"] for of in rows]
    return grid(["parameters", "mean gap", "largest gap"], body)


def deadline():
    """Distribution of the time to a plan."""
    of = load("deadline.json")
    rungs = ", ".join(f"{name} {count}" for name, count in of["rungs"].items())
    facts = (
        f"{of['in_time']} of {of['windows']} plans within {of['deadline']:g} s; rungs: {rungs}; worse than "
        f"the trainer's own layout: {of['worse_than_own']}."
    )
    body = [[f"{share} %", f"{value:.4f}"] for share, value in of["seconds"].items()]
    return f"{facts}\n\n{grid(['share of plans', 'seconds, at most'], body)}"


def evaluated():
    """Show exact loads, then simulated throughput."""
    scenarios = summary(read_results(RESULTS / "evaluation.jsonl"))
    return f"{evaluation.loads(scenarios)}\n\n{evaluation.rates(scenarios)}"


def peers():
    """Packers, harder lengths, placers."""
    found = peers_table.tables(load("peers.json")["rows"])
    return "\n\n".join(found[name] for name in ("packers", "harder", "placers"))


def seams():
    """Plans against each trainer's own layout."""
    keys = ("own_above", "plan_above", "sorted_above")
    body = [
        [name, len(rows), *(peers_table.mean(rows, key, 2) for key in keys)]
        for name, rows in load("seams.json")["trainers"].items()
    ]
    head = ["trainer", "windows", "its own layout", "planned", "planned, then sorted by the trainer"]
    return grid(head, body)


def crossings():
    """Show crossings between nodes before and after seating, means over windows."""
    groups = {}
    for of in how_good.lines(RESULTS / "crossings.jsonl"):
        shape = ("slots", "shards", "ranks", "nodes")
        groups.setdefault(tuple(of[key] for key in shape), []).append(of)
    head = ["slots", "shards", "ranks", "nodes", "windows", "before", "after", "saved"]
    body = []
    for shape, found in groups.items():
        shares = [100 * np.mean([of[key] / of["total"] for of in found]) for key in ("before", "after")]
        saved = 100 * np.mean([of["saved"] for of in found])
        body.append([*shape, len(found), *(f"{share:.2f} %" for share in shares), f"{saved:.2f} %"])
    return grid(head, body)


def placement():
    """Placers on OLMoE's loads."""
    head = ["ranks", "method", "busiest rank over the bound, mean", "worst"]
    body = []
    for of in load("placement.json"):
        met = [f"{of['bound_met']} of {of['layers']}", f"{of['ms_per_layer']:.3f}"]
        body.append([of["ranks"], of["method"], f"{of['mean']:.5f}", f"{of['worst']:.5f}", *met])
    return grid([*head, "layers at the bound", "ms per layer"], body)


def runtime():
    """Bytes and times of moving experts, then what placements cost."""
    data = load("runtime.json")
    of = data["runtime"]
    moved = [f"{np.mean(of[key]) / 1e6:.0f}" for key in ("bytes_across_ranks", "bytes_across_lanes")]
    body = [
        ["MB sent to other ranks, mean over moves", moved[0]],
        ["MB sent across lanes, mean over moves", moved[1]],
        [
            "MB of staging memory, most / allowed",
            f"{of['staging_peak'] / 1e6:.0f} / {of['staging_budget'] / 1e6:.0f}",
        ],
        ["time of moving over the bare exchange", f"{of['ratio']['plain']:.2f}"],
        ["time of moving over the exchange with its two copies", f"{of['ratio']['copied']:.2f}"],
    ]
    windows = [
        [name, f"{of['gigabytes_per_window']:.1f}", f"{of['mean_peak_over_mean']:.3f}"]
        for name, of in data["windows"].items()
    ]
    second = grid(["placement", "GB moved per window", "mean peak over mean"], windows)
    return f"{grid(['measure', 'value'], body)}\n\n{second}"


TABLES = {
    "rows.json": rows,
    "gap-exact-small.jsonl": how_good.gap,
    "exact.jsonl": how_good.proof,
    "root-bounds.jsonl": how_good.roots,
    "production.jsonl": how_good.production,
    "annealing-quality.json": quality,
    "annealing-speed.json": speed,
    "annealing-sweep.json": sweep,
    "deadline.json": deadline,
    "placement.json": placement,
    "hierarchy.json": how_good.hierarchy,
    "runtime.json": runtime,
    "evaluation.jsonl": evaluated,
    "peers.json": peers,
    "crossings.jsonl": crossings,
    "seams.json": seams,
    "calibration.json": how_good.calibration,
}
