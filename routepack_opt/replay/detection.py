"""Which form a source has, by explicit markers.

Guarantees: a form is taken only for a marker of its own (field names, number of axes, prefixes); where none
or several fit, the caller must name the form and the error lists them. A form that the caller names is read
as that or refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from routepack_opt.errors import InputError
from routepack_opt.replay.containers import open_source
from routepack_opt.replay.joined import read_choices, read_messages, read_turns
from routepack_opt.replay.options import Options
from routepack_opt.replay.packed import read_arrays, read_packed
from routepack_opt.replay.padded import read_jagged, read_layers, read_padded
from routepack_opt.replay.records import ABSENT, RECORD_FORMS, lookup, read_records
from routepack_opt.replay.routes import Routes
from routepack_opt.replay.wire import ENVELOPE

Reader = Callable[[Any, Options], Iterator[Routes]]

_BATCHES: dict[str, Reader] = {
    "packed": read_packed,
    "padded": read_padded,
    "jagged": read_jagged,
    "megatron": read_layers,
}
_RECORDS: dict[str, Reader] = {
    **{form.name: partial(read_records, form) for form in RECORD_FORMS},
    "vllm": read_choices,
    "turns": read_turns,
    "messages": read_messages,
}
_READERS: dict[str, Reader] = {**_BATCHES, "arrays": read_arrays, **_RECORDS}

#: Names of the forms.
FORMS: tuple[str, ...] = tuple(_READERS)

_REMEDY = f"Name the form: form= one of {', '.join(FORMS)}"


def find_form(source: Any, form: str | None, options: Options) -> tuple[str, Iterator[Routes]]:
    """Return the name of the form of `source`, and its samples.

    Raises
    ------
    InputError
        No form fits, or several do.
    """
    if form is not None and form not in _READERS:
        raise InputError(f"one of {', '.join(FORMS)}", f"{form!r}", "form")
    if isinstance(source, str | Path):
        source = open_source(Path(source))
    source = _unwrap(source)
    if isinstance(source, Mapping):
        if form in _RECORDS or (form is None and not _batch_forms(source)):
            source = _records(source)
        else:
            name = form or _only(_batch_forms(source), source)
            return name, _READERS[name](_checked(source, name), options)
    if getattr(source, "ndim", None) is not None:
        return _array(np.asarray(source), form, options)
    if not isinstance(source, Iterable) or isinstance(source, str | bytes):
        raise InputError("a path, mapping, array or iterable", type(source).__name__, "replay")
    return _stream(iter(source), form, options)


def _unwrap(source: Any) -> Any:
    """Step into the one field that holds the samples, as debug dumps have it; open nested tensors."""
    if isinstance(source, Mapping) and getattr(source.get("routed_experts"), "is_nested", False):
        nested = source["routed_experts"]
        return {**source, "routed_experts": nested.values(), "cu_seqlens": nested.offsets()}
    for name in ("samples", "responses"):
        if isinstance(source, Mapping) and isinstance(source.get(name), list | tuple):
            return source[name]
    return source


_NEEDED = {
    "packed": ("routed_experts", "offsets"),
    "padded": ("routed_experts",),
    "jagged": ("routed_experts", "cu_seqlens"),
    "megatron": ("layers",),
}


def _checked(source: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    absent = [field for field in _NEEDED.get(name, ()) if field not in source]
    if absent:
        raise InputError(f"the fields {', '.join(_NEEDED[name])} of form {name}", f"no {absent[0]}", "replay")
    return source


def _batch_forms(source: Mapping[str, Any]) -> list[str]:
    """Return the batch forms whose fields a mapping has."""
    if "layers" in source:
        return ["megatron"]
    if "routed_experts" not in source:
        return []
    markers = {"packed": "offsets", "jagged": "cu_seqlens", "padded": "attention_mask"}
    found = [name for name, field in markers.items() if source.get(field) is not None]
    if not found and getattr(source["routed_experts"], "ndim", 0) == 4:
        return ["padded"]
    return found


def _only(names: list[str], source: Any) -> str:
    if len(names) == 1:
        return names[0]
    fields = ", ".join(sorted(map(str, source))) if isinstance(source, Mapping) else type(source).__name__
    found = f"fields {fields}, which fit " + (" and ".join(names) if names else "none")
    raise InputError("the markers of one form", found, "replay", _REMEDY)


def _records(source: Mapping[str, Any]) -> Iterable[Any]:
    """Return the records of a mapping: itself, or its rows when every field is a column."""
    columns = {name: value for name, value in source.items() if isinstance(value, list | tuple)}
    tokens = {token for form in RECORD_FORMS for token in form.tokens} & set(columns)
    if not any(len(columns[name]) and hasattr(columns[name][0], "__len__") for name in tokens):
        return [source]
    sizes = {name: len(value) for name, value in columns.items()}
    if len(set(sizes.values())) > 1:
        raise InputError("columns of one length", f"{sizes}", "replay")
    rows = next(iter(sizes.values()))
    return [{name: value[i] for name, value in columns.items()} for i in range(rows)]


def _array(source: Any, form: str | None, options: Options) -> tuple[str, Iterator[Routes]]:
    """Read one array: a padded batch with four axes, else one sample, or samples one after the other."""
    if source.ndim == 4 or form == "padded":
        return "padded", read_padded({"routed_experts": source}, options)
    if options.lengths is None or options.lengths.size == 1:
        return "arrays", read_arrays([source], options)
    if form == "arrays":
        return "arrays", read_arrays(source, options)
    rows, tokens, samples = source.shape[0], int(options.lengths.sum()), options.lengths.size
    if source.ndim == 1 or rows not in (tokens, tokens - samples):
        found = f"shape {source.shape} for {samples} samples of {tokens} tokens"
        raise InputError(f"{tokens} or {tokens - samples} rows in all", found, "replay")
    sizes = options.lengths - (rows != tokens)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return "packed", read_packed({"routed_experts": source, "offsets": offsets}, options)


def _stream(source: Iterator[Any], form: str | None, options: Options) -> tuple[str, Iterator[Routes]]:
    first = next(source, ABSENT)
    if first is ABSENT:
        raise InputError("at least one sample", "none", "replay")
    everything = chain([first], source)
    if form in _BATCHES:
        if form == "megatron":
            return form, read_layers({"layers": list(everything)}, options)
        raise InputError(f"one mapping for form {form}", "a sequence", "replay")
    name = form or _only(_record_forms(first), first)
    return name, _READERS[name](everything, options)


def _record_forms(record: Any) -> list[str]:
    """Return the forms whose markers a record has."""
    if record is None or getattr(record, "ndim", None) is not None or isinstance(record, list | tuple):
        return ["arrays"]
    if isinstance(record, str):
        return ["nemo-rl"] if record.startswith(ENVELOPE) else []
    marks = {
        "turns": ("parts",),
        "messages": ("message_log",),
        **{form.name: form.marker for form in RECORD_FORMS if form.marker},
    }
    names = [name for name, paths in marks.items() if all(_has(record, path) for path in paths)]
    if _has(record, "outputs") or _has(record, "choices"):
        names.append("vllm")
    value = lookup(record, "routed_experts")
    if not names and isinstance(value, str) and value.startswith(ENVELOPE):
        return ["nemo-rl"]
    return names


def _has(record: Any, path: str) -> bool:
    return lookup(record, path, ABSENT) is not ABSENT
