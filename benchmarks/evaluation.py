"""Write the tables of ``docs/evaluation.md`` from the results of an evaluation.

    routepack evaluate instances/evaluation/paper.json --seeds 2 -o benchmarks/results/evaluation.jsonl
    python benchmarks/evaluation.py

It also draws ``docs/images/sensitivity.png``. Text between ``<!-- table NAME -->`` and ``<!-- end -->`` is
replaced; everything else stays.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
RESULT, PAGE = ROOT / "benchmarks" / "results" / "evaluation.jsonl", ROOT / "docs" / "evaluation.md"

from routepack_opt.plotting import save_sensitivity  # noqa: E402
from routepack_opt.suite.evaluation import read_results, summary  # noqa: E402
from routepack_opt.suite.evaluation.assumptions import VARIED  # noqa: E402
from routepack_opt.suite.evaluation.tables import RATES  # noqa: E402

NAMES = {"baseline": "Baseline", "reorder": "Reorder", "routepack": "RoutePack"}


def fill(name, table):
    """Replace one table of the page."""
    pattern = rf"(<!-- table {name} -->\n).*?(<!-- end -->)"
    text = PAGE.read_text()
    assert re.search(pattern, text, re.DOTALL), f"no table {name} in {PAGE}"
    PAGE.write_text(re.sub(pattern, lambda m: f"{m[1]}{table}\n{m[2]}", text, flags=re.DOTALL))


def grid(head, rows):
    """Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def percent(value, digits=2):
    """Format a signed change."""
    return f"{100 * value:+.{digits}f} %"


def spread(entry, digits, unit=1.0):
    """Mean and sample standard deviation."""
    deviation = "" if entry["deviation"] is None else f" ± {entry['deviation'] / unit:.{digits}f}"
    return f"{entry['mean'] / unit:,.{digits}f}{deviation}"


def cv(scenarios):
    """Figure 7."""
    rows = [
        [s["scenario"], s["windows"], *(_small(s["cv_global"][k]) for k in ("baseline", "reorder"))]
        for s in scenarios
    ]
    return grid(["scenario", "windows", "before", "after"], rows)


def _small(entry):
    """Mean and sample standard deviation of numbers that may be near 0."""
    return f"{entry['mean']:.3g} ± {entry['deviation']:.2g}"


def rates(scenarios):
    """Table 3."""
    rows = []
    for s in scenarios:
        for layout, name in NAMES.items():
            rate = s[RATES][layout]
            rows.append([s["scenario"], name, spread(rate, 2, 1000), f"{rate['tenth'] / 1000:,.2f}"])
    return grid(["scenario", "layout", "simulated, 1000 tokens/s", "10th percentile"], rows)


def tests(scenarios):
    """Tests of Table 3."""
    rows = [
        [
            s["scenario"],
            f"{NAMES[c['second']]} over {NAMES[c['first']]}",
            percent(c["ratio"] - 1),
            *(f"{c[key]:.2g}" for key in ("p", "bonferroni", "holm")),
        ]
        for s in scenarios
        for c in s["comparisons"]
    ]
    return grid(["scenario", "comparison", "simulated gain", "p", "Bonferroni", "Holm"], rows)


def loads(scenarios):
    """Table 4."""
    keys = ("ep_peak_sum", "ep_tail_peak")
    rows = []
    for s in scenarios:
        found = s["loads"]
        before, after = found["ep_balance_efficiency"]
        changes = [percent(found[key]) for key in keys], [percent(found[k]) for k in ("attention", "joint")]
        rows.append([s["scenario"], *changes[0], f"{before:.3f} → {after:.3f}", *changes[1]])
    return grid(["scenario", "EP peak sum", "tail peak", "EP balance eff.", "attention", "joint"], rows)


def step(scenarios):
    """Parts of the simulated step."""
    rows = []
    for s in scenarios:
        for layout, name in NAMES.items():
            part = s["simulated"][layout]
            busy = sum(part[f"{k}_seconds"] for k in ("attention", "dense", "expert", "exchange"))
            shares = [part[f"{k}_seconds"] / busy for k in ("attention", "dense", "expert", "exchange")]
            sent = [f"{part[f'{level}_node_bytes'] / 2**30:.1f}" for level in ("intra", "inter")]
            times = [f"{part['step_seconds']:.3f}", *(f"{100 * x:.0f} %" for x in shares)]
            rows.append([s["scenario"], name, *times, f"{100 * part['idle_share']:.1f} %", *sent])
    head = ["scenario", "layout", "seconds", "attention", "dense", "expert", "exchange", "pipeline idle"]
    return grid([*head, "GiB sent in the node", "GiB sent to other nodes"], rows)


def sensitivity(scenarios):
    """Show the gain of RoutePack over Baseline, coefficients halved and doubled."""
    rows = []
    for s in scenarios:
        found = {key: percent(entry["routepack"], 1) for key, entry in s["sensitivity"].items()}
        pairs = [f"{found[f'{part}_half']} / {found[f'{part}_double']}" for part in VARIED]
        rows.append([s["scenario"], found["as assumed"], *pairs])
    heads = [part.replace("_", " ") for part in VARIED]
    return grid(["scenario", "as assumed", *heads], rows)


def assumed(results):
    """Assumptions of every scenario, then the notes on their sources."""
    rows, notes = [], {}
    for name, entry in results.header["assumptions"].items():
        device = entry["accelerator"]
        numbers = [f"{device['peak_flops'] / 1e12:g}"]
        numbers += [f"{device[f'{level}_node_bandwidth'] / 1e9:g}" for level in ("intra", "inter")]
        pipeline = f"{entry['pipeline']} x {entry['chunks']}"
        rows.append([name, device["name"], *numbers, entry["devices"], pipeline])
        notes[device["name"]] = device["source"]
        for part in ("efficiency", "constants"):
            notes |= {f"{key} = {value['value']:g}": value["source"] for key, value in entry[part].items()}
    head = ["scenario", "accelerator", "TFLOP/s", "GB/s in the node", "GB/s between nodes"]
    table = grid([*head, "devices of a slot", "pipeline stages x chunks"], rows)
    return table + "\n\n" + grid(["coefficient", "source"], [[f"`{k}`", v] for k, v in notes.items()])


def main():
    """Fill every table."""
    results = read_results(RESULT)
    scenarios = summary(results)
    for make in (cv, rates, tests, loads, step, sensitivity):
        fill(make.__name__, make(scenarios))
    fill("assumed", assumed(results))
    save_sensitivity(results, ROOT / "docs" / "images" / "sensitivity.png")


if __name__ == "__main__":
    main()
