"""Samples that arrive in several parts: prompt and generation, messages, turns.

Guarantees: the choices of one prompt share the prompt's part; every part is placed by its start (see
:mod:`routepack_opt.replay.parts`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from routepack_opt.arrays import whole_number
from routepack_opt.errors import InputError
from routepack_opt.replay.options import Options
from routepack_opt.replay.parts import Part, join
from routepack_opt.replay.records import (
    ABSENT,
    RECORD_FORMS,
    first_of,
    lookup,
    place,
    prompt_of,
    refuse_moved_cache,
    routes_field,
    stated_start,
    token_count,
)
from routepack_opt.replay.routes import Routes
from routepack_opt.replay.wire import decode

_BY_NAME = {form.name: form for form in RECORD_FORMS}
_PROMPT_ROUTES = ("prompt_routed_experts", "prompt_moe_topk_indices")
_CHOICE_ROUTES = ("routed_experts", "moe_topk_indices")


def read_choices(records: Iterable[Any], options: Options) -> Iterator[Routes]:
    """Yield the samples of responses with ``outputs`` or ``choices``: one sample per choice."""
    sample = 0
    for number, record in enumerate(records):
        where = f"response {number}"
        refuse_moved_cache(record, where)
        choices = first_of(record, ("outputs", "choices"))
        if not isinstance(choices, list | tuple) or not choices:
            raise InputError("a list of outputs or choices", f"{choices!r:.40}", where)
        for choice in choices:
            yield _choice(record, choice, len(choices), sample, options)
            sample += 1


def _choice(record: Any, choice: Any, siblings: int, sample: int, options: Options) -> Routes:
    where = f"sample {sample}"
    refuse_moved_cache(choice, where)
    if all(lookup(choice, path, ABSENT) is ABSENT for path in _CHOICE_ROUTES):
        routes_field(choice, _CHOICE_ROUTES[0], where)
    own = decode(first_of(choice, _CHOICE_ROUTES), where)
    prompt_size, stated = _sizes(record, choice, siblings, where)
    length, prompt = options.length(sample, stated), prompt_of(record, ("prompt_id",), where)
    before = first_of(choice, _PROMPT_ROUTES)
    before = first_of(record, _PROMPT_ROUTES) if before is None else before
    paired = any(
        lookup(one, path, ABSENT) is not ABSENT for one in (record, choice) for path in _PROMPT_ROUTES
    )
    if paired and prompt_size is None:
        raise InputError("prompt_token_ids or usage beside the prompt's routes", "neither", where)
    if before is None:
        # Without the prompt's part, a trimmed or a lost prompt: the rows themselves say where they begin.
        trimmed = first_of(choice, ("routed_experts_prompt_start",))
        start = prompt_size if paired else (own.start if trimmed is None else trimmed)
        return place(own, whole_number(start or 0, f"{where}, start"), length, options, where, prompt)
    parts = [Part(decode(before, f"{where}, prompt").ids, 0, prompt_size), Part(own.ids, prompt_size)]
    return join(parts, length, options.model, where, axis=options.layer_axis, prompt=prompt)


def _sizes(record: Any, choice: Any, siblings: int, where: str) -> tuple[int | None, int | None]:
    """Return the tokens of the prompt and of the whole sample, as far as the response says them."""
    prompt = token_count(choice, ("prompt_token_ids",), (), where)
    if prompt is None:
        prompt = token_count(record, ("prompt_token_ids",), ("usage.prompt_tokens",), where)
    new = token_count(choice, ("token_ids",), (), where)
    if new is None and siblings == 1:
        new = token_count(record, (), ("usage.completion_tokens",), where)
    return prompt, None if prompt is None or new is None else prompt + new


def read_turns(records: Iterable[Any], options: Options) -> Iterator[Routes]:
    """Yield samples made of ``parts``: responses or mappings with ``routed_experts``."""
    for i, record in enumerate(records):
        where = f"sample {i}"
        parts = [_part(part, f"{where}, part {k}") for k, part in enumerate(_listed(record, "parts", where))]
        stated = token_count(record, ("token_ids",), ("length",), where)
        prompt = prompt_of(record, ("prompt_id",), where)
        yield join(
            parts, options.length(i, stated), options.model, where, axis=options.layer_axis, prompt=prompt
        )


def _part(part: Any, where: str) -> Part:
    refuse_moved_cache(part, where)
    form = _BY_NAME["record" if lookup(part, "meta_info") is None else "sglang"]
    decoded = decode(
        routes_field(part, form.routes, where), where, dtype=lookup(part, form.dtype) or form.raw_dtype
    )
    return Part(decoded.ids, stated_start(part, form, decoded, where))


def read_messages(records: Iterable[Any], options: Options) -> Iterator[Routes]:
    """Yield samples with a ``message_log``: each message holds the rows of its own tokens."""
    for i, record in enumerate(records):
        where = f"sample {i}"
        messages = _listed(record, "message_log", where)
        parts, end = [], 0
        for k, message in enumerate(messages):
            size = token_count(message, ("token_ids",), (), where)
            if size is None:
                raise InputError("token_ids in every message", "none", f"{where}, message {k}")
            ids = decode(routes_field(message, "routed_experts", f"{where}, message {k}"), where).ids
            parts.append(Part(ids, end, size))
            end += size
        prompt = prompt_of(record, ("prompt_id",), where)
        yield join(
            parts, options.length(i, end), options.model, where, axis=options.layer_axis, prompt=prompt
        )


def _listed(record: Any, name: str, where: str) -> list[Any]:
    values = lookup(record, name)
    if not isinstance(values, list | tuple) or not values:
        raise InputError(f"a list in {name}", f"{values!r:.40}", where)
    return list(values)
