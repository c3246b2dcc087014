"""Turn the packed replays of the GSM8K model into windows.

Usage: ``python instances/build_gsm8k.py FOLDER_OF_REPLAYS [OUTPUT_FOLDER]``

Reads ``replay-00.npz`` and so on (see ``instances/gsm8k-moe/README.md``) and writes ``window-00.npz`` and
so on. Windows have no timestamps, so building them again gives the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import routepack_opt as rp

MODEL = rp.MoEModel(layers=8, experts=32, top_k=4, name="gsm8k-moe")


def main(source: Path, target: Path) -> None:
    """Convert every replay of a folder."""
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted(source.glob("replay-*.npz")):
        window = rp.read_replay(path, model=MODEL)
        output = target / path.name.replace("replay", "window")
        window.save(output)
        tokens = int(window.lengths.sum())
        print(f"{output}: {window.size} samples, {tokens} tokens, digest {window.digest[:16]}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    here = Path(__file__).resolve().parent / "gsm8k-moe"
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else here)
