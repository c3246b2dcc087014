"""Forms with one record per request or sample: responses, samples, messages.

Guarantees: what a form calls its fields is one row of :data:`RECORD_FORMS`; a record's length comes from
its token lists or token totals (or the caller), never from its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from routepack_opt.arrays import whole_number
from routepack_opt.errors import InputError
from routepack_opt.replay.options import Options
from routepack_opt.replay.padded import without_padding
from routepack_opt.replay.routes import Routes
from routepack_opt.replay.wire import Decoded, decode


@dataclass(frozen=True)
class RecordForm:
    """Field names of a form; dots go down, alternatives are tried in order.

    Parameters
    ----------
    name : str
        Name of the form.
    routes : str
        Field with the routes.
    marker : tuple of str
        Fields that must all be there for the form to be recognised; empty if there are none of its own.
    tokens, totals : tuple of str
        Token lists whose lengths add up to the sample's, or numbers that do.
    start, dtype : str
        Fields with the first token of the rows, and with the dtype of raw bytes.
    raw_dtype : str, optional
        Dtype of raw bytes when no field states it; ``None`` if the form has no raw bytes.
    padded : bool
        Whether rows beyond the sample's tokens are filler rather than an error.
    prompt : tuple of str
        Fields with the prompt that the sample answers.
    """

    name: str
    routes: str
    marker: tuple[str, ...]
    tokens: tuple[str, ...] = ()
    totals: tuple[str, ...] = ()
    start: tuple[str, ...] = ("start",)
    dtype: str = "routed_experts_dtype"
    raw_dtype: str | None = None
    padded: bool = False
    prompt: tuple[str, ...] = ("prompt_id", "group_index")


RECORD_FORMS = (
    RecordForm(
        "sglang",
        "meta_info.routed_experts",
        ("meta_info",),
        totals=("meta_info.prompt_tokens", "meta_info.completion_tokens"),
        start=("meta_info.routed_experts_start_len", "routed_experts_start_len"),
        dtype="meta_info.routed_experts_dtype",
        raw_dtype="int32",
    ),
    RecordForm(
        "slime",
        "rollout_routed_experts",
        ("rollout_routed_experts",),
        tokens=("tokens",),
        start=("rollout_routed_experts_start_len", "routed_experts_start_len"),
        raw_dtype="int32",
    ),
    RecordForm(
        "skyrl",
        "rollout_expert_indices",
        ("rollout_expert_indices",),
        tokens=("prompt_token_ids", "response_ids"),
    ),
    RecordForm(
        "areal",
        "routed_experts",
        ("output_tokens",),
        tokens=("input_tokens", "output_tokens"),
        raw_dtype="int32",
    ),
    RecordForm("prime-rl", "routed_experts", ("completion_ids",), tokens=("prompt_ids", "completion_ids")),
    RecordForm(
        "nemo-rl", "routed_experts", (), tokens=("token_ids",), totals=("input_lengths",), padded=True
    ),
    RecordForm("record", "routed_experts", ("routed_experts", "length"), ("token_ids",), ("length",)),
)

ABSENT = object()


def lookup(record: Any, path: str, default: Any = None) -> Any:
    """Return a field of nested mappings or objects by its dotted path."""
    for name in path.split("."):
        if isinstance(record, Mapping):
            record = record.get(name, ABSENT)
        elif isinstance(record, str | bytes | list | tuple):
            return default
        else:
            record = getattr(record, name, ABSENT)
        if record is ABSENT:
            return default
    return record


def first_of(record: Any, paths: Iterable[str]) -> Any:
    """Return the first of several fields that is there and not null."""
    return next((value for path in paths if (value := lookup(record, path)) is not None), None)


def token_count(record: Any, tokens: tuple[str, ...], totals: tuple[str, ...], where: str) -> int | None:
    """Return the tokens of a record by its token lists or totals, or ``None`` when it has neither."""
    listed = _added(record, tokens, _size, where)
    total = _added(record, totals, whole_number, where)
    if listed is not None and total is not None and listed != total:
        raise InputError("one length", f"{listed} tokens, but {' + '.join(totals)} = {total}", where)
    return total if listed is None else listed


def _added(record: Any, paths: tuple[str, ...], size: Callable[[Any, str], int], where: str) -> int | None:
    values = [lookup(record, path) for path in paths]
    if not values or any(value is None for value in values):
        return None
    return sum(size(value, f"{where}, {path}") for value, path in zip(values, paths, strict=True))


def _size(values: Any, where: str) -> int:
    if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
        raise InputError("a list of tokens", f"{type(values).__name__}", where)
    return len(values)


def prompt_of(record: Any, paths: tuple[str, ...], where: str) -> int | None:
    """Return the prompt id of a record, if it has a whole number for one."""
    value = first_of(record, paths)
    return None if value is None else whole_number(value, f"{where}, prompt", low=-(2**62))


def refuse_moved_cache(record: Any, where: str) -> None:
    """Refuse a response whose keys and values came from elsewhere: its rows may be a former request's."""
    if first_of(record, ("kv_transfer_params", "meta_info.kv_transfer_params")):
        raise InputError(
            "routes of the forward pass that filled the cache",
            "kv_transfer_params: the cache was filled by another engine, and rows may be stale",
            where,
            "Record without disaggregated prefill or cache offload",
        )


def routes_field(record: Any, path: str, where: str) -> Any:
    """Return the routes of a record: perhaps null, but there."""
    value = lookup(record, path, ABSENT)
    if value is ABSENT:
        raise InputError(f"a field {path}", "none", where, "Was replay switched on for this request?")
    return value


def read_records(form: RecordForm, records: Iterable[Any], options: Options) -> Iterator[Routes]:
    """Yield the samples of a form with one record per sample."""
    for i, record in enumerate(records):
        where = f"sample {i}"
        refuse_moved_cache(record, where)
        value = routes_field(record, form.routes, where)
        length = options.length(i, token_count(record, form.tokens, form.totals, where))
        decoded = decode(value, where, dtype=lookup(record, form.dtype) or form.raw_dtype)
        start = stated_start(record, form, decoded, where)
        if form.padded:
            decoded = replace(decoded, ids=without_padding(decoded.ids, length, options, where))
        prompt = prompt_of(record, form.prompt, where)
        yield place(decoded, start or 0, length, options, where, prompt)


def stated_start(record: Any, form: RecordForm, decoded: Decoded, where: str) -> int | None:
    """Return the first token of the rows, if the record or its envelope says it."""
    stated = first_of(record, form.start)
    if stated is None:
        return decoded.start
    start = whole_number(stated, f"{where}, start")
    if decoded.start not in (None, start):
        raise InputError("one start", f"{start} and {decoded.start}", where)
    return start


def place(
    decoded: Decoded, start: int, length: int, options: Options, where: str, prompt: int | None
) -> Routes:
    """Put the rows at their start; a start beyond the last row is the last row's end, as recorders clamp it.

    Some builds send all rows whatever start was asked for: their row count tells.
    """
    start = min(start, length - 1)
    if not start or decoded.ids is None:
        return Routes(decoded.ids, length, start, prompt=prompt, where=where)
    fitting = [s for s in (0, start) if _fits(decoded.ids, length - s, options)]
    if len(fitting) > 1:
        found = f"rows that fit from token {start} on as well as from the first"
        raise InputError(
            "one reading", found, where, "Leave the start out if it was ignored, or join the parts"
        )
    return Routes(decoded.ids, length, fitting[0] if fitting else start, prompt=prompt, where=where)


def _fits(ids: Any, due: int, options: Options) -> bool:
    """Tell whether `ids` are `due` rows or one less, in some reading of the layer axis."""
    layers = {options.model.layers, options.model.num_moe_layers}
    if ids.ndim > 1:
        return ids.shape[0] in (due - 1, due)
    return any(ids.size == rows * count * options.model.top_k for rows in (due - 1, due) for count in layers)
