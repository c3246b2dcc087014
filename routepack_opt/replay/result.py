"""What reading a replay gives: counts per sample, and a report of what became of every row.

Guarantees: every expected row of a sample is in exactly one of ``kept``, ``missing``, ``filler`` and
``corrupt``; the counts of each sample sum to K times its counted rows in every layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Policy = Literal["error", "count", "rescale"]
Routing = Literal["exact", "predicted"]
Int64 = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ReplayReport:
    """Rows kept and lost, per sample (int64 [N] each) and in total.

    Parameters
    ----------
    form : str
        The wire form that was read.
    policy : {"error", "count", "rescale"}
        What was done about rows that are not valid.
    expected : int64 [N]
        Rows that the sample should have: its tokens less the last, or all of them where the last has a route.
    kept, missing, filler, corrupt : int64 [N]
        Rows counted; rows absent, unset (all -1) or masked; rows with a repeated expert, or that only count
        upwards; rows partly negative.
    padded : int64 [N]
        Filler in the place of the last token, which is never fed through the model (not expected, so not
        lost).
    longest_run : int64 [N]
        Longest run of identical rows; very long ones are a sign of a broken capture.
    borrowed : bool [N]
        Samples without a single valid row, which ``rescale`` gave the profile of the window.
    routing : {"exact", "predicted"}
        Whether the routes were recorded, or come from a predictor.
    policy_version : str or None
        Version of the weights that produced the routes.
    """

    form: str
    policy: Policy
    expected: Int64
    kept: Int64
    missing: Int64
    filler: Int64
    corrupt: Int64
    padded: Int64
    longest_run: Int64
    borrowed: NDArray[np.bool_]
    routing: Routing = "exact"
    policy_version: str | None = None

    @property
    def total(self) -> dict[str, int]:
        """Rows of the whole window by what became of them."""
        names = ("expected", "kept", "missing", "filler", "corrupt", "padded")
        return {name: int(getattr(self, name).sum()) for name in names}

    def as_dict(self) -> dict[str, Any]:
        """Return the report in plain Python values; samples are listed only if they lost rows."""
        names = ("expected", "kept", "missing", "filler", "corrupt")
        lost = np.flatnonzero(self.kept < self.expected)
        return {
            "form": self.form,
            "policy": self.policy,
            "routing": self.routing,
            "policy_version": self.policy_version,
            "rows": self.total,
            "longest_run": int(self.longest_run.max(initial=0)),
            "samples_with_losses": [
                {"sample": int(i), **{name: int(getattr(self, name)[i]) for name in names}} for i in lost
            ],
            "borrowed": np.flatnonzero(self.borrowed).tolist(),
        }


@dataclass(frozen=True, eq=False)
class ReplayCounts:
    """Lengths and expert counts of one optimizer step.

    Parameters
    ----------
    lengths : int64 [N]
        Tokens of each sample, prompt and response.
    counts : int32 [N, L, E]
        Routed assignments of each sample, MoE layer and logical expert.
    prompt_ids : int64 [N] or None
        The prompt that each sample answers, where the source says so.
    report : ReplayReport
        What became of the rows.
    """

    lengths: Int64
    counts: NDArray[np.int32]
    prompt_ids: Int64 | None
    report: ReplayReport
