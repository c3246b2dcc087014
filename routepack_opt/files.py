"""One container for windows and plans: an `.npz` file with a kind, a schema number and a JSON header.

Guarantees: pickling is off; equal contents give equal bytes; a file appears whole or not at all; a file that
is truncated, of another kind or of a newer schema is refused with what was found.
"""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import FormatError

_HEADER = "header"
# What numpy, zipfile and json raise on damaged bytes: a flipped bit can ask for an unknown compression, a
# password or more memory than there is.
_UNREADABLE = (
    OSError, EOFError, ValueError, KeyError, NotImplementedError, RuntimeError, MemoryError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def save_npz(
    path: str | os.PathLike[str],
    kind: str,
    schema: int,
    meta: dict[str, Any],
    arrays: dict[str, npt.NDArray[Any]],
) -> None:
    """Write a file of `kind` atomically.

    Parameters
    ----------
    path : path-like
        Target; replaced in one step.
    kind, schema : str, int
        What the file is, and the number of its field list.
    meta : dict
        JSON-serializable header.
    arrays : dict of str to numpy.ndarray
        Plain numeric arrays.
    """
    header = {"kind": kind, "schema": schema, "fields": sorted(arrays), **meta}
    text = json.dumps(header, sort_keys=True, separators=(",", ":"))
    target = Path(path)
    handle, temporary = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            members = {_HEADER: np.frombuffer(text.encode(), np.uint8), **arrays}
            np.savez_compressed(file, **members)  # type: ignore[arg-type]
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def load_npz(
    path: str | os.PathLike[str], kind: str, schema: int
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Read a file written by :func:`save_npz`.

    Parameters
    ----------
    path : path-like
        File to read.
    kind, schema : str, int
        Expected kind and the newest schema this version reads.

    Returns
    -------
    tuple of dict, dict
        Header and arrays.

    Raises
    ------
    FormatError
        When the file is missing, truncated, of another kind or of a newer schema.
    """
    where = str(path)
    try:
        with open(path, "rb") as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = arrays.pop(_HEADER, None)
        meta = {} if header is None else json.loads(bytes(header).decode())
    except FileNotFoundError as error:
        raise FormatError(f"a RoutePack {kind} file", "no such file", where) from error
    except _UNREADABLE as error:
        raise FormatError(
            f"a RoutePack {kind} file", f"a file that cannot be read ({error})", where
        ) from error
    found = meta.get("kind") if isinstance(meta, dict) else None
    if found is None:
        raise FormatError(f"a RoutePack {kind} file", "a file without its header", where)
    if found != kind:
        raise FormatError(f"a RoutePack {kind} file", f"a {found} file", where)
    loose = [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]
    if loose:
        raise FormatError("arrays only", f"a member {loose[0]!r} that is none", where)
    if not isinstance(meta.get("schema"), int) or meta["schema"] > schema:
        remedy = "Upgrade routepack_opt to read it"
        raise FormatError(f"{kind} schema up to {schema}", f"schema {meta.get('schema')}", where, remedy)
    # A damaged directory can lose a member without a trace, and an optional field would just be gone.
    fields = meta.pop("fields", sorted(arrays))
    if fields != sorted(arrays):
        raise FormatError(f"fields {fields}", f"fields {sorted(arrays)}", where)
    return meta, arrays


def kind_of(path: str | os.PathLike[str]) -> str:
    """Return what kind of file `path` is, or raise as :func:`load_npz` does when it is none of ours."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            return str(json.loads(bytes(archive[_HEADER]).decode())["kind"])
    except FileNotFoundError as error:
        raise FormatError("a RoutePack file", "no such file", str(path)) from error
    except (OSError, EOFError, ValueError, KeyError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise FormatError("a RoutePack file", f"another kind of file ({error})", str(path)) from error


def field(arrays: dict[str, npt.NDArray[Any]], name: str, where: str | os.PathLike[str]) -> npt.NDArray[Any]:
    """Return the array `name`, or say that the file lacks it.

    Raises
    ------
    FormatError
        When the field is missing.
    """
    if name not in arrays:
        raise FormatError(f"a field {name!r}", f"fields {sorted(arrays)}", str(where))
    return arrays[name]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
