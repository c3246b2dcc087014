"""Write the tables of ``how-good.md``, ``exact.md`` and ``algorithm.md`` in ``docs`` from the results files.

Run ``python benchmarks/how_good.py`` from the repository root. Text between ``<!-- table NAME -->`` and
``<!-- end -->`` is replaced; everything else stays. A table whose results file is missing says so.
"""

import json
import math
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RESULTS, INSTANCES = ROOT / "benchmarks" / "results", ROOT / "instances"
PAGES = [ROOT / "docs" / name for name in ("how-good.md", "exact.md", "algorithm.md")]

from routepack_opt.bounds.score import placement_bound  # noqa: E402
from routepack_opt.suite.gap import read_rows, summary  # noqa: E402
from routepack_opt.suite.instances import Suite  # noqa: E402


def main():
    """Fill every table."""
    tables = {name: _made(make) for name, make in TABLES.items()}
    for page in PAGES:
        text = page.read_text()
        for name, table in tables.items():
            pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
            text = re.sub(pattern, lambda m, table=table: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL)
        page.write_text(text)


def _made(make):
    try:
        return make()
    except FileNotFoundError as error:
        return f"*Not measured yet: `{Path(error.filename).relative_to(ROOT)}` is missing.*"


def grid(head, rows):
    """Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def lines(path):
    """Read JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def percent(value, digits=2):
    """Format a share."""
    return "" if value is None else f"{100 * value:.{digits}f} %"


def small():
    """Composition of exact-small and who proved it."""
    records = json.loads((INSTANCES / "exact-small" / "manifest.json").read_text())["instances"]
    groups, proofs = defaultdict(list), Counter()
    for record in records.values():
        shape = record["shape"]
        groups[shape["R"] * shape["D"], shape["G"]].append(record)
        for backend, entry in record["proved_by"].items():
            proofs[backend] += entry["components"] == 3
    rows = []
    for (cells, shards), members in sorted(groups.items()):
        sizes = [r["shape"]["N"] for r in members]
        times = {by: [] for by in ("cpsat", "highs", "oracle")}
        for record in members:
            for backend, entry in record["proved_by"].items():
                if entry["components"] == 3:
                    times[backend].append(entry["seconds"])
        each = [f"{len(t)} of {len(members)}, at most {max(t, default=0):.1f} s" for t in times.values()]
        rows.append([cells, shards, len(members), f"{min(sizes)} to {max(sizes)}", *each])
    total = f"{len(records)} instances: CP-SAT proved {proofs['cpsat']}, HiGHS {proofs['highs']}, the subset"
    head = ["cells", "shards", "instances", "N", "proven by CP-SAT", "proven by HiGHS", "by the oracle"]
    return f"{total} oracle {proofs['oracle']}; no two disagree.\n\n" + grid(head, rows)


def medium():
    """Gaps of exact-medium, and who closed what."""
    records = json.loads((INSTANCES / "exact-medium" / "manifest.json").read_text())["instances"]
    groups, closers = defaultdict(list), Counter()
    for record in records.values():
        s = record["shape"]
        groups[s["N"], s["R"], s["D"], s["G"]].append(record)
        by = [name for name, entry in record["proved_by"].items() if entry["components"] == 3]
        closers[by[0] if by else "open"] += 1
    rows = []
    for shape, members in sorted(groups.items()):
        gaps = [record["best"][0] / record["bound"][0] - 1 for record in members]
        proven = sum(record["best"] == record["bound"] for record in members)
        rows.append([*shape, len(members), proven, percent(sum(gaps) / len(gaps)), percent(max(gaps))])
    names = {"oracle": "the subset oracle", "patterns": "row patterns", "cpsat": "CP-SAT"}
    closed = ", ".join(f"{closers[key]} by {name}" for key, name in names.items() if closers[key])
    text = f"{len(records)} instances: {closers['open']} open, the others closed, {closed}.\n\n"
    head = ["N", "R", "D", "G", "instances", "closed", "mean gap to bound", "largest"]
    return text + grid(head, rows)


def windows():
    """Best known scores and bounds at production size."""
    records = Suite(INSTANCES / "windows").records
    rows = []
    for name, record in records.items():
        score = [f"{value / 1e9:.4f}" for value in (record.best[0], record.bound_any[0])]
        shape = record.shape
        sizes = [shape[key] for key in ("N", "L", "E", "G", "R")]
        rows.append([name, *sizes, *score, percent(record.gap, 3), percent(record.gap_any, 3)])
    head = ["instance", "N", "L", "E", "G", "R", "best known, 10^9", "bound over all placements, 10^9"]
    return grid([*head, "gap", "gap over all placements"], rows)


def proof():
    """Proof power and the ratio to the plain model."""
    rows = lines(RESULTS / "exact.jsonl")
    cells = {(r["instance"], r["backend"], r["way"]): r for r in rows}
    shapes = {r["instance"]: r["shape"] for r in rows}
    keys = [(b, w) for b in ("cpsat", "highs") for w in ("ours", "plain")]
    body = []
    for name, shape in sorted(shapes.items(), key=lambda item: (math.prod(item[1][1:3]), item[1], item[0])):
        texts = [_proof(cells.get((name, *key))) for key in keys]
        others = cells.get((name, "cpsat", "ours")) or {}
        times = [others.get(key) for key in ("oracle_seconds", "patterns_seconds")]
        texts += ["" if seconds is None else f"{seconds:.2f} s" for seconds in times]
        body.append([", ".join(map(str, shape)), *texts])
    head = [
        "N, R, D, G, L, P",
        "CP-SAT",
        "CP-SAT, plain model",
        "HiGHS",
        "HiGHS, plain model",
        "subset oracle",
        "row patterns",
    ]
    note = "Plain over ours in processor time, geometric mean over the instances that ours proves: "
    means = (f"{backend} {mean:.2f} ({count} instances)" for backend, (mean, count) in ratios(rows).items())
    return grid(head, body) + f"\n\n{note}{'; '.join(means)}."


def ratios(rows):
    """By backend: plain over ours in processor time, geometric mean, and over how many instances."""
    times = defaultdict(dict)
    for row in rows:
        times[row["backend"], row["instance"]][row["way"]] = row
    logs = defaultdict(list)
    for (backend, _), ways in times.items():
        if len(ways) == 2 and ways["ours"]["proven"] == 3:
            logs[backend].append(math.log(ways["plain"]["seconds"] / ways["ours"]["seconds"]))
    return {backend: (math.exp(sum(of) / len(of)), len(of)) for backend, of in logs.items()}


def _proof(row):
    if row is None:
        return ""
    if row["proven"] == 3:
        return f"{row['seconds']:.1f} s"
    return f"{row['proven']} of 3" + ("" if row["gap"] is None else f", {percent(row['gap'])}")


def roots():
    """Compare what formulations prove of the first component in the same time."""
    rows = lines(RESULTS / "root-bounds.jsonl")
    best = {n: r.best[0] for n, r in Suite(INSTANCES / "exact-medium").records.items()}
    groups = defaultdict(lambda: defaultdict(list))
    for row in rows:
        shape = tuple(row["shape"][key] for key in "NRDG")
        groups[shape][row["method"]].append((best[row["instance"]] / row["bound"] - 1, row["seconds"]))
    body = []
    for shape, methods in sorted(groups.items()):
        texts = []
        for method in _FORMULATIONS:
            gaps, seconds = zip(*methods[method], strict=True)
            texts.append(f"{percent(sum(gaps) / len(gaps))} in {sum(seconds) / len(seconds):.1f} s")
        body.append([", ".join(map(str, shape)), len(methods["counting"]), *texts])
    return grid(["N, R, D, G", "instances", *_FORMULATIONS.values()], body)


_FORMULATIONS = {
    "counting": "counting bound",
    "lagrangian": "Lagrangian, subgradient",
    "patterns": "row-pattern program",
    "cpsat": "CP-SAT",
    "highs": "HiGHS",
}


def gap():
    """Gap run on exact-small."""
    rows = list(_existing(RESULTS / "gap-exact-small.jsonl"))
    facts = []
    for name in dict.fromkeys(row.method for row in rows):
        s = summary([row for row in rows if row.method == name])
        missed = ", ".join(f"{count} {c}" for c, count in s["missed"].items())
        share = f"{s['reached']} of {s['runs']} ({percent(s['reached_share'], 1)})"
        facts.append(
            [name, s["instances"], share, missed, percent(s["mean_gap"], 4), percent(s["largest_gap"])]
        )
    head = [
        "method",
        "instances",
        "runs at the proven optimum",
        "missed component",
        "mean gap",
        "largest gap",
    ]
    return grid(head, facts)


def _existing(path):
    path.stat()  # raises FileNotFoundError
    return read_rows(path)


def placement():
    """Busiest ranks of real loads."""
    groups = defaultdict(list)
    for row in lines(INSTANCES / "placement" / "results.jsonl"):
        groups[row["experts"], row["ranks"]].append(row)
    body = []
    for (experts, ranks), rows in sorted(groups.items()):
        mean = {m: sum(r[m] / r["bound"] - 1 for r in rows) / len(rows) for m in ("lpt", "refined", "best")}
        proven = sum(r["optimal"] for r in rows)
        refined = sum(r["refined"] == r["best"] for r in rows)
        body.append(
            [
                experts,
                ranks,
                len(rows),
                *(percent(v, 3) for v in mean.values()),
                proven,
                f"{refined} of {len(rows)}",
            ]
        )
    head = ["E", "P", "loads", "LPT over bound", "refined over bound", "best over bound", "proven optimal"]
    return grid([*head, "refined is the best known"], body)


def calibration():
    """Compare recorded and generated statistics."""
    data = json.loads((RESULTS / "calibration.json").read_text())
    names = list(next(iter(data.values())))
    body = [
        [
            which,
            *(f"{low:.2f}" if low == high else f"{low:.2f} to {high:.2f}" for low, high in stats.values()),
        ]
        for which, stats in data.items()
    ]
    return grid(["windows", *(f"`{name}`" for name in names)], body)


def hierarchy():
    """Loss of the hierarchical order."""
    rows = json.loads((RESULTS / "hierarchy.json").read_text())
    losses = sorted(row["loss"] for row in rows if row["proven"])
    none = sum(loss == 0 for loss in losses)
    return (
        f"{len(losses)} of {len(rows)} tiny problems closed. In {none} of them the hierarchical order loses"
        f" nothing; the mean loss is {percent(sum(losses) / len(losses))}, the largest {percent(losses[-1])}."
    )


def production():
    """Gaps at production size by budget."""
    cells = {(r["window"], r["shards"], r["times"]): r for r in lines(RESULTS / "production.jsonl")}
    times = sorted({key[2] for key in cells})
    body = []
    for window, shards in dict.fromkeys(key[:2] for key in cells):
        rows = [cells.get((window, shards, t)) for t in times]
        last = next(r for r in reversed(rows) if r)
        gaps = ["" if r is None else percent(r["gap"], 3) for r in rows]
        body.append([window, shards, last["rows"], *gaps, percent(last["gap_any"], 3)])
    heads = [f"gap at {t} x budget" for t in times]
    return grid(["window", "G", "R", *heads, "gap over all placements"], body)


def bound():
    """Distance of the counting bound from proven optima, by items in a row-shard."""
    groups = defaultdict(list)
    for instance, record in Suite(INSTANCES / "exact-small"):
        demand = instance.placement.demand(instance.problem.item_counts)
        low = placement_bound(instance.problem, instance.rows, demand).primary
        shape = record.shape
        crowd = shape["M"] / (shape["R"] * shape["G"])
        group = next(name for most, name in _CROWDS if crowd <= most)
        groups[group].append(record.best[0] / low - 1)
    body = [
        [name, len(groups[name]), percent(sum(groups[name]) / len(groups[name])), percent(max(groups[name]))]
        for _, name in _CROWDS
        if groups[name]
    ]
    return grid(["items per row-shard", "instances", "mean distance", "largest"], body)


_CROWDS = ((3, "up to 3"), (5, "4 to 5"), (8, "6 to 8"), (12, "9 to 12"), (10**9, "more than 12"))


def second():
    """Gaps of the recorded windows after a second, over all placements."""
    rows = json.loads((RESULTS / "annealing-quality.json").read_text())["rows"]
    gaps = defaultdict(list)
    for row in rows:
        gaps[row["window"].split()[0].removeprefix("window-")].append(row["gap_any_%"])
    body = [[window, *(f"{gap:.3f} %" for gap in of)] for window, of in gaps.items()]
    every = [row["gap_any_%"] for row in rows]
    note = f"Mean {sum(every) / len(every):.3f} %, worst {max(every):.3f} %."
    return f"{grid(['window', 'one shard', 'two shards'], body)}\n\n{note}"


_ALL = (
    small, medium, windows, proof, roots, gap, placement, calibration, hierarchy, production, bound, second,
)  # fmt: skip
TABLES = {f.__name__: f for f in _ALL}

if __name__ == "__main__":
    main()
