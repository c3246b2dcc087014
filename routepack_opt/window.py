"""The window: raw lengths and expert counts of the samples of one optimizer step.

Guarantees: lengths are at least 1; counts are non-negative, never above the sample's length for one expert,
and sum to the same number in every layer of a sample; the digest identifies the contents on every host.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from routepack_opt import files
from routepack_opt.arrays import IntArray, digest, frozen, whole_numbers
from routepack_opt.errors import FormatError, InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay import read

KIND, SCHEMA = "window", 1
_BLOCK = 64  # samples checked at once: bounds the scratch memory of the checks


@dataclass(frozen=True, eq=False)
class Window:
    """The sealed batch of one optimizer step.

    Parameters
    ----------
    lengths : array_like of int, shape (N,)
        Tokens of every sample, prompt and response, before alignment; at least 1.
    counts : array_like of int, shape (N, L, E)
        Routed assignments of every sample at every MoE layer to every logical expert (a[i,l,e] of the paper).
        ``L = 0`` is legal: such a window is packed by length alone.
    prompt_ids : array_like of int, shape (N,), optional
        Which prompt a sample answers. Statistics only, never a constraint.
    routing : {"exact", "predicted"}
        Whether the counts were recorded or forecast.
    policy_version : str, optional
        The policy that generated the samples; travels into the plan.
    model : MoEModel, optional
        Shape of the model that was recorded.
    source : mapping, optional
        What the reader reported (rows kept, missing, filler, policy); JSON-serializable.

    Raises
    ------
    InputError
        Naming the value and its index.
    """

    lengths: IntArray
    counts: npt.NDArray[np.int32]
    prompt_ids: IntArray | None = None
    routing: Literal["exact", "predicted"] = "exact"
    policy_version: str | None = None
    model: MoEModel | None = None
    source: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        lengths = whole_numbers(self.lengths, "lengths", shape=(None,), low=1, high=2**31 - 1)
        if lengths.size == 0:
            raise InputError("at least one sample", "an empty window", "lengths")
        counts = self.counts
        if not (isinstance(counts, np.ndarray) and counts.dtype == np.int32 and not counts.flags.writeable):
            counts = whole_numbers(counts, "counts", shape=(lengths.size, None, None), dtype=np.int32)
        _check_counts(lengths, counts)
        object.__setattr__(self, "lengths", lengths)
        object.__setattr__(self, "counts", counts)
        if self.prompt_ids is not None:
            ids = whole_numbers(self.prompt_ids, "prompt_ids", shape=(lengths.size,), low=-(2**62))
            object.__setattr__(self, "prompt_ids", ids)
        if self.routing not in ("exact", "predicted"):
            raise InputError("'exact' or 'predicted'", repr(self.routing), "routing")
        if not isinstance(self.policy_version, (str, type(None))):
            raise InputError("a text or None", repr(self.policy_version), "policy_version")
        if not isinstance(self.source, Mapping):
            raise InputError("a mapping", repr(self.source), "source")
        self._check_model()

    def _check_model(self) -> None:
        if self.model is None or self.num_layers == 0:
            return
        wanted = (self.model.num_moe_layers, self.model.experts)
        if (self.num_layers, self.num_experts) != wanted:
            found = f"{self.num_layers} layers and {self.num_experts} experts"
            raise InputError(f"the model's {wanted[0]} MoE layers and {wanted[1]} experts", found, "counts")

    @classmethod
    def from_counts(cls, lengths: Any, counts: Any, **kwargs: Any) -> Window:
        """Build a window from lengths (N,) and counts (N, L, E); see :class:`Window` for the rest."""
        return cls(lengths, counts, **kwargs)

    @classmethod
    def from_lengths(cls, lengths: Any, **kwargs: Any) -> Window:
        """Build a window without layers, to be packed and certified by length alone."""
        size = np.shape(lengths)[0] if np.ndim(lengths) == 1 else 0
        return cls(lengths, frozen(np.zeros((size, 0, 0), np.int32)), **kwargs)

    @property
    def size(self) -> int:
        """Number of samples N."""
        return int(self.lengths.size)

    @property
    def num_layers(self) -> int:
        """Number of MoE layers L (0 when only lengths are known)."""
        return int(self.counts.shape[1])

    @property
    def num_experts(self) -> int:
        """Number of logical experts E per layer."""
        return int(self.counts.shape[2])

    @cached_property
    def loads(self) -> IntArray:
        """Window load L[l,e] of every expert: the sum of the counts over samples, int64 (L, E)."""
        return frozen(self.counts.sum(axis=0, dtype=np.int64))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what the planner sees: lengths, counts, prompts, routing kind and policy version."""
        prompts = self.prompt_ids if self.prompt_ids is not None else np.zeros(0, np.int64)
        return digest(["window", self.routing, self.policy_version or "", self.lengths, self.counts, prompts])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the window to `path` (`.npz`, fields in the docs page on file formats)."""
        meta: dict[str, Any] = {
            "routing": self.routing,
            "policy_version": self.policy_version,
            "source": dict(self.source),
        }
        meta["model"] = asdict(self.model) if self.model is not None else None
        arrays: dict[str, npt.NDArray[Any]] = {"lengths": self.lengths, "counts": self.counts}
        if self.prompt_ids is not None:
            arrays["prompt_ids"] = self.prompt_ids
        files.save_npz(path, KIND, SCHEMA, meta, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Window:
        """Read a window written by :meth:`save`.

        Raises
        ------
        FormatError
            When the file is truncated, of another kind or of a newer schema.
        InputError
            When its contents are no window.
        """
        meta, arrays = files.load_npz(path, KIND, SCHEMA)
        return cls(
            files.field(arrays, "lengths", path),
            frozen(files.field(arrays, "counts", path)),
            prompt_ids=arrays.get("prompt_ids"),
            routing=meta.get("routing", "exact"),
            policy_version=meta.get("policy_version"),
            model=_read_model(meta.get("model"), str(path)),
            source=meta.get("source", {}),
        )


def read_replay(source: Any, model: MoEModel, **options: Any) -> Window:
    """Read routing replay of any known form into a window.

    Parameters
    ----------
    source : path, array, mapping or iterable
        A file, or what a system hands over; see :data:`routepack_opt.replay.FORMS`.
    model : MoEModel
        Decides the layer axis, the number of experts and top-k.
    **options
        Those of :func:`routepack_opt.replay.read`: `form`, `lengths`, `policy`, `mask` and so on.

    Returns
    -------
    Window
        Its `source` holds the report of the rows kept and lost.

    Raises
    ------
    InputError
        As :func:`routepack_opt.replay.read`.
    """
    result = read(source, model, **options)
    report = result.report
    return Window(
        frozen(result.lengths),
        frozen(result.counts),
        prompt_ids=result.prompt_ids,
        routing=report.routing,
        policy_version=report.policy_version,
        model=model,
        source=report.as_dict(),
    )


def _read_model(record: Any, where: str) -> MoEModel | None:
    if record is None:
        return None
    names = {each.name for each in fields(MoEModel)}
    if not isinstance(record, dict) or set(record) != names:
        raise FormatError(f"a model with {', '.join(sorted(names))}", repr(record), where)
    return MoEModel(**record)


def _check_counts(lengths: IntArray, counts: npt.NDArray[np.int32]) -> None:
    """Check signs, at most one assignment per token and expert, and equal sums in all layers."""
    if counts.ndim != 3 or counts.shape[0] != lengths.size:
        raise InputError(f"shape ({lengths.size}, layers, experts)", f"shape {counts.shape}", "counts")
    if counts.shape[1] == 0:
        return
    if counts.shape[2] == 0:
        raise InputError("at least one expert", f"shape {counts.shape}", "counts")
    for start in range(0, lengths.size, _BLOCK):
        block = counts[start : start + _BLOCK]
        tokens = lengths[start : start + _BLOCK, None, None]
        if int(block.min()) < 0 or bool((block.max(axis=(1, 2)) > tokens[:, 0, 0]).any()):
            _report_count(block, tokens, start)
        sums = block.sum(axis=2, dtype=np.int64)
        if (sums != sums[:, :1]).any():
            i, layer = (int(k) for k in np.argwhere(sums != sums[:, :1])[0])
            found = f"{sums[i, layer]} in layer {layer} but {sums[i, 0]} in layer 0"
            remedy = (
                "Rows lost in one layer make its balance wrong: read the replay again, or drop the sample"
            )
            raise InputError(
                "the same number of assignments in every layer",
                f"{found} of sample {start + i}",
                "counts",
                remedy,
            )


def _report_count(block: npt.NDArray[np.int32], tokens: IntArray, start: int) -> None:
    bad = (block < 0) | (block > tokens)
    i, layer, expert = (int(k) for k in np.argwhere(bad)[0])
    found = f"{block[i, layer, expert]} for sample {start + i}, layer {layer}, expert {expert}"
    raise InputError(f"a count from 0 to the sample's {int(tokens[i, 0, 0])} tokens", found, "counts")
