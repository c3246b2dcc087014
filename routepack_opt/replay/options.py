"""What the caller tells every reader beside the source itself.

Guarantees: a per-sample value (its length) is asked for by sample index and checked when it is;
where the source and the caller both give a length, they agree.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.replay.routes import LayerAxis

_NO_LENGTH = (
    "n rows may belong to n tokens (the last one routed or padded) or to n + 1 (the last one never fed): "
    "pass lengths="
)


@dataclass(frozen=True)
class Options:
    """Model and per-sample values that the caller gave.

    Parameters
    ----------
    model : MoEModel
        The model whose routes are read.
    lengths : int64 [N] or None
        Tokens of every sample.
    layer_axis : {"all", "moe"} or None
        What the layer axis holds, where the caller says so.
    side : {"left", "right"} or None
        Where prompts are padded in a padded batch.
    """

    model: MoEModel
    lengths: NDArray[np.int64] | None = None
    layer_axis: LayerAxis | None = None
    side: Literal["left", "right"] | None = None

    def length(self, sample: int, stated: int | None = None, where: str | None = None) -> int:
        """Return the tokens of a sample, given by the caller or `stated` by the source."""
        where = where or f"sample {sample}"
        given = None
        if self.lengths is not None:
            if sample >= self.lengths.size:
                raise InputError(f"{self.lengths.size} samples, as many as lengths", "more", where)
            given = int(self.lengths[sample])
        if given is None and stated is None:
            raise InputError("the number of tokens", "none", where, _NO_LENGTH)
        if given is not None and stated is not None and given != stated:
            raise InputError(f"{given} tokens, as lengths say", f"{stated} in the source", where)
        length = operator.index(stated if given is None else given)  # type: ignore[arg-type]
        if length < 1:
            raise InputError("a length of at least 1", f"{length}", where)
        return length
