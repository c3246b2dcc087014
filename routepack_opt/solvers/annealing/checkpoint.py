"""A long search on disk: where it stands after every level, and how it goes on from there.

Guarantees: a search that goes on from a checkpoint gives, bit for bit, the plan of one that was never
stopped; the file always holds the last saved level whole; a checkpoint of another search is refused with what
differs, and left as it is.

One plan may search several times (phases, or once more after its experts moved). Each of them is a *part*;
the parts follow one another in the file. Everything before the search is cheap and reproducible, so it is
done again, and the parts that are over return what they found.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt._version import __version__
from routepack_opt.arrays import IntArray, digest
from routepack_opt.errors import FormatError, InputError
from routepack_opt.files import load_npz, save_npz
from routepack_opt.solvers.annealing._kernels.state import Instance
from routepack_opt.solvers.annealing.members import Member
from routepack_opt.solvers.annealing.parameters import AnnealingParameters

KIND, SCHEMA = "checkpoint", 1
_SCRATCH = ("picked", "moved", "trial")  # of a state: without meaning between two proposals
_FACTS = {"identity": dict, "level": int, "made": int, "score": list, "trace": list, "resampling": dict}


@dataclass(frozen=True)
class Part:
    """One search after some of its levels.

    Attributes
    ----------
    facts : dict
        ``identity`` (see :func:`identity_of`), ``level`` (how many are done), ``made`` (proposals), ``score``
        (of the incumbent), ``trace``, and ``resampling`` (state of that random generator).
    arrays : dict of str to numpy.ndarray
        ``best_cell``, and the members while levels are left.
    """

    facts: dict[str, Any]
    arrays: dict[str, npt.NDArray[Any]]


class Checkpoint:
    """The file of one call of :func:`routepack_opt.plan`.

    Parameters
    ----------
    path : path-like
        Read when it exists; replaced as a whole after every level.

    Attributes
    ----------
    levels, proposals : int
        What the file held when it was opened; zero for a new one.

    Raises
    ------
    InputError
        When the folder does not exist, or the file is torn, foreign or newer. It is left as it is.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise InputError("a folder that exists", str(self.path.parent), "checkpoint")
        self.parts = _read(self.path) if self.path.exists() else []
        self.levels = sum(part.facts["level"] for part in self.parts)
        self.proposals = sum(part.facts["made"] for part in self.parts)
        self._begun = 0

    def begin(self, identity: dict[str, Any]) -> Part | None:
        """Return where the next part stands, None where it has not begun.

        Raises
        ------
        InputError
            When the file holds another search, with what differs.
        """
        self._begun += 1
        if self._begun > len(self.parts):
            return None
        part = self.parts[self._begun - 1]
        found = part.facts["identity"]
        other = [name for name in identity if found.get(name) != identity[name]]
        if other:
            said = ", ".join(_difference(name, found.get(name), identity[name]) for name in other)
            remedy = "Ask for the same search again, or give another file"
            raise InputError("a checkpoint of this search", f"another {said}", str(self.path), remedy)
        return part

    def save(self, part: Part) -> None:
        """Write the part that runs, after those that are over."""
        self.parts[self._begun - 1 :] = [part]
        arrays = {f"{k}.{name}": a for k, p in enumerate(self.parts) for name, a in p.arrays.items()}
        save_npz(self.path, KIND, SCHEMA, {"parts": [p.facts for p in self.parts]}, arrays)


def identity_of(
    instance: Instance,
    starts: Sequence[IntArray],
    rows: int,
    seed: int,
    parameters: AnnealingParameters,
    proposals: int | None,
    phase: str,
) -> dict[str, Any]:
    """Return everything that a search depends on, as plain values and digests."""
    fields = instance._asdict()
    demand = fields.pop("demand")
    return {
        "version": __version__,
        "problem": digest(v if isinstance(v, np.ndarray) else repr(v) for v in fields.values()),
        "demand": digest([demand]),
        "layouts": digest(starts),
        "rows": rows,
        "seed": seed,
        "parameters": asdict(parameters),
        "proposals": proposals,
        "phase": phase,
    }


def pack_members(members: Sequence[Member]) -> dict[str, npt.NDArray[Any]]:
    """Return copies of all arrays that members carry from level to level."""
    return {name: array.copy() for name, array in _carried(members)}


def unpack_members(part: Part, members: Sequence[Member], path: Path) -> None:
    """Write saved arrays into members of the same shape.

    Raises
    ------
    FormatError
        When an array is missing or of another shape or type: kernels do not check.
    """
    for name, array in _carried(members):
        saved = part.arrays.get(name)
        if saved is None or (saved.shape, saved.dtype) != (array.shape, array.dtype):
            found = "none" if saved is None else f"{saved.dtype} {saved.shape}"
            raise FormatError(f"{name} as {array.dtype} {array.shape}", found, str(path))
        array[...] = saved


def _carried(members: Sequence[Member]) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    for m, member in enumerate(members):
        for name, array in member.state._asdict().items():
            if name not in _SCRATCH:
                yield f"{m}.{name}", array
        yield f"{m}.best_cell", member.best_cell
        yield f"{m}.best_score", member.best_score


def _read(path: Path) -> list[Part]:
    meta, arrays = load_npz(path, KIND, SCHEMA)
    parts = meta.get("parts")
    if not isinstance(parts, list) or not all(_is_part(facts) for facts in parts):
        raise FormatError("the parts of a search", "a header without them", str(path))
    found = []
    for k, facts in enumerate(parts):
        own = {name.split(".", 1)[1]: a for name, a in arrays.items() if name.split(".", 1)[0] == str(k)}
        if "best_cell" not in own:
            raise FormatError(f"a field '{k}.best_cell'", f"fields {sorted(arrays)}", str(path))
        found.append(Part(facts, own))
    return found


def _is_part(facts: object) -> bool:
    return isinstance(facts, dict) and all(isinstance(facts.get(name), t) for name, t in _FACTS.items())


def _difference(name: str, found: object, wanted: object) -> str:
    """Name what differs: small values in full, digests by name."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = [key for key in wanted if found.get(key) != wanted[key]]
        return ", ".join(f"{key} ({found.get(key)}, not {wanted[key]})" for key in keys)
    return name if isinstance(found, str) and len(found) > 20 else f"{name} ({found}, not {wanted})"
