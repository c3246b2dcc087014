"""Where and by what every file in ``results/`` was measured.

After a measurement, on the machine that made it, run from the repository root

    python benchmarks/runs.py rows.json deadline.json

which writes version, day, processor, cores and system of these files into ``results/runs.json``. What nobody
wrote down stays unknown (null); the documentation says so.
"""

import datetime
import json
import os
import platform
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RECORD = RESULTS / "runs.json"


def read_runs():
    """Return the record: name of a results file to how it was measured."""
    return json.loads(RECORD.read_text())


def this_machine():
    """Processor, cores and system, as far as the system tells."""
    cpu = Path("/proc/cpuinfo")
    text = cpu.read_text() if cpu.exists() else ""
    names = {k.strip(): v.strip() for k, _, v in (line.partition(":") for line in text.splitlines())}
    parts = [names[key] for key in ("cpu family", "model") if key in names]
    name = names.get("model name") or platform.processor() or None
    family = f" (family {parts[0]}, model {parts[1]})" if name and len(parts) == 2 else ""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = ".".join(platform.python_version_tuple()[:2])
    return {
        "cpu": None if name is None else name + family,
        "cores": cores,
        "system": f"{platform.system()}, Python {python}",
    }


def stamp(names):
    """Write this machine, this version and today into the record of some results files."""
    from routepack_opt import __version__

    record = read_runs()
    for name in names:
        if not (RESULTS / name).exists() or name not in record:
            known = ", ".join(sorted(record))
            raise SystemExit(f"expected a results file with a command in runs.json ({known}), found {name}")
        today = datetime.date.today().isoformat()
        record[name] |= {"version": __version__, "measured": today, **this_machine()}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    stamp(sys.argv[1:])
