"""Read routing replay of any known form into counts.

Guarantees: the form is found by explicit markers or named by the caller, never guessed from values; samples
are streamed; files are read without unpickling arbitrary objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from routepack_opt.arrays import frozen, whole_number, whole_numbers
from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay.counting import Counting, SampleCount, count_sample
from routepack_opt.replay.detection import find_form
from routepack_opt.replay.options import Options
from routepack_opt.replay.policies import rescale
from routepack_opt.replay.pool import in_order
from routepack_opt.replay.result import Policy, ReplayCounts, ReplayReport, Routing
from routepack_opt.replay.routes import LayerAxis, Routes


def read(
    source: Any,
    model: MoEModel,
    *,
    form: str | None = None,
    lengths: Any = None,
    prompt_ids: Any = None,
    mask: Any = None,
    policy: Policy = "error",
    layer_axis: LayerAxis | None = None,
    side: Literal["left", "right"] | None = None,
    repeat_limit: int | None = 64,
    routing: Routing = "exact",
    policy_version: str | None = None,
    threads: int | None = None,
) -> ReplayCounts:
    """Read routing replay and count the experts of every sample.

    Parameters
    ----------
    source : path, array, mapping or iterable
        A file, or what a system hands over: see :data:`FORMS`. Iterables are streamed.
    model : MoEModel
        Decides the layer axis, the number of experts and top-k.
    form : str, optional
        Name of the form; needed only where the source carries no marker.
    lengths : int array [N], optional
        Tokens (prompt and response) of every sample, where the source does not say them.
    prompt_ids : int array [N], optional
        The prompt that each sample answers, where the source does not say it.
    mask : sequence of N bool arrays [rows], or True, optional
        Rows that are real. Needed for ``top_k == 1``, where filler looks like a route; True vouches for all
        rows.
    policy : {"error", "count", "rescale"}
        For rows that are missing, filler or corrupt: refuse, count the valid rows, or scale the valid rows'
        counts to all rows.
    layer_axis : {"all", "moe"}, optional
        Whether the layer axis holds all decoder layers or the MoE layers; needed where both readings fit.
    side : {"left", "right"}, optional
        Where a padded batch pads its samples; needed where its masks do not say.
    repeat_limit : int, optional
        Under ``policy="error"``, so many identical rows in succession are refused; ``None`` accepts any.
    routing : {"exact", "predicted"}
        Recorded or predicted; kept in the report.
    policy_version : str, optional
        Version of the weights; kept in the report.
    threads : int, optional
        Threads that count. The result does not depend on it.

    Returns
    -------
    ReplayCounts

    Raises
    ------
    InputError
        The source fits no form or several, disagrees with the model or with `lengths`, or holds rows that
        the policy does not allow; the message names sample, position and value.
    FormatError
        A file is truncated or of another kind.

    Notes
    -----
    A training step routes all n tokens of a sample, its replay holds n - 1 rows: counts are exact up to one
    token per sample and layer.
    """
    _check_choice(policy, ("error", "count", "rescale"), "policy")
    _check_choice(routing, ("exact", "predicted"), "routing")
    _check_choice(layer_axis, (None, "all", "moe"), "layer_axis")
    _check_choice(side, (None, "left", "right"), "side")
    if threads is not None:
        threads = whole_number(threads, "threads", low=1)
    if repeat_limit is not None:
        repeat_limit = whole_number(repeat_limit, "repeat_limit", low=2)
    known = None if lengths is None else whole_numbers(lengths, "lengths", shape=(None,), low=1)
    masks = None if mask is None or mask is True else mask
    options = Options(model, known, layer_axis, side)
    how = Counting(model, policy, layer_axis, repeat_limit, vouched=mask is True)
    name, samples = find_form(source, form, options)
    routes = _with_masks(samples, masks)
    counted = list(in_order(lambda one: count_sample(one, how), routes, threads))
    if not counted:
        raise InputError("at least one sample", "none", "replay")
    if known is not None and known.size != len(counted):
        raise InputError(f"{known.size} samples, as many as lengths", f"{len(counted)}", "replay")
    if masks is not None and len(masks) != len(counted):
        raise InputError(f"{len(masks)} samples, as many as masks", f"{len(counted)}", "replay")
    return _collect(counted, name, how, prompt_ids, routing, policy_version)


def _check_choice(value: object, choices: tuple[object, ...], where: str) -> None:
    if value not in choices:
        raise InputError(f"one of {', '.join(map(repr, choices))}", f"{value!r}", where)


def _with_masks(samples: Iterable[Routes], masks: Any) -> Iterator[Routes]:
    for i, routes in enumerate(samples):
        if masks is None:
            yield routes
        elif i >= len(masks):
            raise InputError(f"{len(masks)} samples, as many as masks", "more", "mask")
        else:
            yield replace(routes, mask=_both(routes, np.asarray(masks[i])))


def _both(routes: Routes, mask: Any) -> Any:
    if mask.dtype.kind not in "biu":
        raise InputError("a mask of booleans", f"dtype {mask.dtype}", f"{routes.where}, mask")
    if routes.mask is not None and routes.mask.shape != mask.shape:
        raise InputError(f"a mask of shape {routes.mask.shape}", f"{mask.shape}", f"{routes.where}, mask")
    return mask.astype(np.bool_) if routes.mask is None else routes.mask & mask.astype(np.bool_)


def _collect(
    counted: list[SampleCount],
    form: str,
    how: Counting,
    prompt_ids: Any,
    routing: Routing,
    policy_version: str | None,
) -> ReplayCounts:
    rows = {
        name: np.array([sample.rows[name] for sample in counted], np.int64)
        for name in ("kept", "missing", "filler", "corrupt", "padded")
    }
    expected = np.array([sample.expected for sample in counted], np.int64)
    counts = np.stack([sample.counts for sample in counted])
    borrowed = np.zeros(len(counted), np.bool_)
    if how.policy == "rescale":
        borrowed = _rescale_all(counts, rows["kept"], expected)
    prompts = [sample.prompt for sample in counted]
    known = None
    if prompt_ids is not None:
        known = whole_numbers(prompt_ids, "prompt_ids", shape=(len(counted),), low=-(2**62))
    if known is None and None not in prompts:
        known = np.array(prompts, np.int64)
    report = ReplayReport(
        form=form,
        policy=how.policy,
        expected=expected,
        **rows,
        longest_run=np.array([sample.longest_run for sample in counted], np.int64),
        borrowed=borrowed,
        routing=routing,
        policy_version=policy_version,
    )
    lengths = np.array([sample.length for sample in counted], np.int64)
    return ReplayCounts(frozen(lengths), frozen(counts), known, report)


def _rescale_all(counts: Any, kept: Any, expected: Any) -> Any:
    """Rescale in place the samples that lost rows; tell which had none and borrowed the window's."""
    borrowed = (kept == 0) & (expected > 0)
    window, window_rows = counts.sum(axis=0, dtype=np.int64), int(kept.sum())
    if borrowed.any() and not window_rows:
        raise InputError("at least one valid row in the window", "none", "policy='rescale'")
    for i in np.flatnonzero(kept < expected):
        if borrowed[i]:
            counts[i] = rescale(window, window_rows, int(expected[i]))
        else:
            counts[i] = rescale(counts[i], int(kept[i]), int(expected[i]))
    return borrowed
