"""Padded batches [samples, positions, layers, K], jagged batches, and per-layer lists.

Guarantees: a sample's rows are those of its own tokens; a valid route in the padding is an error, because it
shows that mask and routes are misaligned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from routepack_opt.arrays import whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.replay.counting import scan
from routepack_opt.replay.options import Options
from routepack_opt.replay.routes import Routes, as_rows, integer_array, row_stream


def read_padded(source: Mapping[str, Any], options: Options) -> Iterator[Routes]:
    """Yield the samples of a padded batch.

    Parameters
    ----------
    source : mapping
        ``routed_experts`` [B, S, L, K] or [B, S, L * K], and ``attention_mask`` [B, S] (1 for a token) or the
        caller's lengths and padding side.
    options : Options
        Model, lengths and side.
    """
    stream = row_stream(source["routed_experts"], "routed_experts")
    if len(stream.shape) not in (3, 4):
        raise InputError("[samples, positions, layers, top-k]", f"shape {stream.shape}", "routed_experts")
    spans = _spans(source, stream.shape[:2], options)
    prompts = source.get("prompt_ids")
    for i, (first, length) in enumerate(spans):
        where = f"sample {i}"
        end = first + length
        ids = stream.take(1)[0]
        padding = np.concatenate([ids[:first], ids[end:]])
        _refuse_routes(padding, options, where, f"tokens at positions {first}..{end - 1}")
        prompt = None if prompts is None else int(prompts[i])
        yield Routes(ids[first:end], options.length(i, length), prompt=prompt, where=where)
    stream.finish()


def _spans(source: Mapping[str, Any], shape: tuple[int, ...], options: Options) -> list[tuple[int, int]]:
    """Return the first position and the number of tokens of every sample."""
    samples, positions = shape
    if source.get("attention_mask") is not None:
        mask = np.asarray(source["attention_mask"]).astype(np.bool_)
        if mask.shape != shape:
            raise InputError(f"shape {shape}", f"shape {mask.shape}", "attention_mask")
        return [_span(row, f"sample {i}, attention_mask") for i, row in enumerate(mask)]
    lengths = source.get("lengths", options.lengths)
    if lengths is None or options.side is None:
        missing = "lengths" if lengths is None else 'the padding side: side="left" and side="right" both fit'
        raise InputError("an attention_mask, or lengths and side", f"no {missing}", "padded batch")
    sizes = whole_numbers(lengths, "lengths", shape=(samples,), low=1, high=positions).tolist()
    return [(positions - size if options.side == "left" else 0, size) for size in sizes]


def _span(mask: NDArray[np.bool_], where: str) -> tuple[int, int]:
    tokens = np.flatnonzero(mask)
    if not tokens.size:
        raise InputError("at least one token", "an empty mask", where)
    first, last = int(tokens[0]), int(tokens[-1])
    if last - first + 1 != tokens.size:
        gap = first + int(np.flatnonzero(~mask[first : last + 1])[0])
        raise InputError("one stretch of tokens", f"a gap at position {gap}", where)
    return first, int(tokens.size)


def _refuse_routes(padding: NDArray[Any], options: Options, where: str, tokens: str) -> None:
    """Refuse padding that holds routes; -1, repeated ids and upward counting are what padding looks like."""
    from routepack_opt.replay._kernels import ROW_KEPT

    if not len(padding) or options.model.top_k == 1:
        return
    model = options.model
    rows, columns = as_rows(padding, model, options.layer_axis, where)
    unlike_filler = rows[scan(rows, columns, model).status == ROW_KEPT]
    ids = unlike_filler[:, columns[:, None] + np.arange(model.top_k)]
    # Rows too short to be told from real ones inside a sample are filler here if they are 0..K-1.
    routed = int((ids != np.arange(model.top_k)).any(axis=(1, 2)).sum())
    if routed:
        remedy = "Mask and routes are misaligned: padded on the other side, or shifted?"
        raise InputError(f"filler outside the {tokens}", f"{routed} rows with routes", where, remedy)


def without_padding(
    ids: NDArray[Any] | None, length: int, options: Options, where: str
) -> NDArray[Any] | None:
    """Return the first `length` rows of right-padded routes; what follows must be filler."""
    if ids is None or ids.ndim < 2 or len(ids) <= length:
        return ids
    _refuse_routes(ids[length:], options, where, f"first {length} tokens")
    return ids[:length]


def read_jagged(source: Mapping[str, Any], options: Options) -> Iterator[Routes]:
    """Yield the samples of a jagged batch: one row per token, ``cu_seqlens`` [N + 1] tells whose."""
    stream = row_stream(source["routed_experts"], "routed_experts")
    rows = stream.shape[0]
    bounds = whole_numbers(source["cu_seqlens"], "cu_seqlens", shape=(None,), high=rows)
    lengths = np.diff(bounds)
    if bounds.size < 2 or bounds[0] != 0 or bounds[-1] != rows or (lengths < 1).any():
        raise InputError(f"ascending cu_seqlens 0..{rows}", f"{bounds.tolist()!s:.60}", "cu_seqlens")
    for i, length in enumerate(lengths.tolist()):
        yield Routes(stream.take(length), options.length(i, length), where=f"sample {i}")
    stream.finish()


def read_layers(source: Mapping[str, Any], options: Options) -> Iterator[Routes]:
    """Yield the samples of per-layer arrays.

    Parameters
    ----------
    source : mapping
        ``layers``: one [tokens, K] array per layer; ``cu_seqlens`` for packed samples, or ``batch`` b for
        sequence-major [s * b] tokens, whose lengths the caller gives.
    options : Options
        Model and lengths.
    """
    layers = [integer_array(layer, f"layer {i}") for i, layer in enumerate(source["layers"])]
    for i, layer in enumerate(layers):
        if layer.ndim != 2 or layer.shape != layers[0].shape:
            expected = f"[tokens, {options.model.top_k}], the same in every layer"
            raise InputError(expected, f"shape {layer.shape}", f"layer {i}")
    if not layers:
        raise InputError("at least one layer", "none", "layers")
    tokens = layers[0].shape[0]
    if source.get("cu_seqlens") is not None:
        yield from read_jagged(
            {"routed_experts": np.stack(layers, axis=1), "cu_seqlens": source["cu_seqlens"]}, options
        )
        return
    batch = int(source.get("batch") or 1)
    if batch < 1 or tokens % batch:
        raise InputError(f"a batch that divides {tokens} tokens", f"{batch}", "batch")
    for i in range(batch):
        ids = np.stack([layer[i::batch] for layer in layers], axis=1)
        length = options.length(i)
        _refuse_routes(ids[length:], options, f"sample {i}", f"first {length} tokens")
        yield Routes(ids[:length], length, where=f"sample {i}")
