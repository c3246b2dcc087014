"""Record routed experts from a running model straight into a window.

Guarantees: ids are read before the placement is applied, so they are logical whatever moved; padding is left
out; a layer that is seen twice in one forward (activation recomputation) counts once; a layer that is not
seen, and a token count that does not fit the samples, are errors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from routepack_opt.errors import InputError
from routepack_opt.model import MoEModel
from routepack_opt.runtime.dispatch import LayerMap
from routepack_opt.window import Window

__all__ = ["RoutingRecorder"]


class RoutingRecorder:
    """Counts routed assignments per sample, MoE layer and logical expert.

    Parameters
    ----------
    maps : dict of int to LayerMap
        The maps of the attached model; recording starts inside :meth:`padded` or :meth:`packed`.

    Examples
    --------
    >>> with recorder.packed([17, 40]):       # doctest: +SKIP
    ...     model(input_ids)
    >>> window = recorder.window()            # doctest: +SKIP
    """

    def __init__(self, maps: Mapping[int, LayerMap]) -> None:
        self._maps = dict(sorted(maps.items()))
        self._lengths: list[int] = []
        self._counts: list[NDArray[np.int64]] = []

    @contextmanager
    def packed(self, lengths: Sequence[int]) -> Iterator[None]:
        """Record a forward of samples laid one after another.

        Parameters
        ----------
        lengths : sequence of int
            Tokens of each sample; their sum is the number of tokens that this rank routes.
        """
        sizes = torch.as_tensor(lengths, dtype=torch.int64)
        yield from self._record(torch.repeat_interleave(torch.arange(len(sizes)), sizes), sizes.tolist())

    @contextmanager
    def padded(self, mask: Tensor, *, sequence_first: bool = False) -> Iterator[None]:
        """Record a forward of a padded batch.

        Parameters
        ----------
        mask : Tensor, bool or int [samples, positions]
            Non-zero where a token is real (an attention mask).
        sequence_first : bool
            Whether the model flattens tokens position by position (Megatron-Core), not sample by sample.
        """
        real = mask.cpu() != 0
        ids = torch.where(real, torch.arange(len(real))[:, None], -1)
        yield from self._record((ids.t() if sequence_first else ids).reshape(-1), real.sum(1).tolist())

    def window(self, model: MoEModel | None = None) -> Window:
        """Return everything recorded as a window, samples in the order of recording."""
        if not self._counts:
            raise InputError("recorded samples", "none", "recorder")
        return Window.from_counts(
            np.array(self._lengths, dtype=np.int64), np.concatenate(self._counts), model=model
        )

    def _record(self, sample_of_token: Tensor, lengths: list[int]) -> Iterator[None]:
        seen: dict[int, NDArray[np.int64]] = {}
        observers = {
            row: _Observer(row, sample_of_token, len(lengths), m, seen) for row, m in self._maps.items()
        }
        for row, observer in observers.items():
            self._maps[row].observers.append(observer)
        try:
            yield
        finally:
            for row, observer in observers.items():
                self._maps[row].observers.remove(observer)
        missing = [row for row in self._maps if row not in seen]
        if missing:
            raise InputError("every MoE layer to be run", f"layers {missing} were not", "recorder")
        self._lengths += lengths
        self._counts.append(np.stack([seen[row] for row in self._maps], axis=1))


class _Observer:
    """Counts one layer of one forward."""

    def __init__(
        self,
        row: int,
        sample_of_token: Tensor,
        samples: int,
        layer_map: LayerMap,
        seen: dict[int, NDArray[np.int64]],
    ) -> None:
        self._row, self._sample_of_token, self._samples, self._seen = row, sample_of_token, samples, seen
        self._experts = len(layer_map.slot_of_expert)

    def __call__(self, routing: Tensor) -> None:
        """Count a routing map (bool [tokens, experts]) or ids (int [tokens, top-k]; negative is dropped)."""
        routing = routing.detach().reshape(-1, routing.shape[-1]).cpu()
        if len(routing) != len(self._sample_of_token):
            raise InputError(
                f"{len(self._sample_of_token)} tokens",
                f"{len(routing)}",
                f"recorder, layer {self._row}",
                "describe the tokens that this rank routes (under sequence parallelism only its own)",
            )
        if routing.dtype == torch.bool:
            token, expert = routing.nonzero(as_tuple=True)
        else:
            token = torch.arange(len(routing)).repeat_interleave(routing.shape[1])
            expert = routing.reshape(-1).long()
        sample = self._sample_of_token[token]
        keep = (sample >= 0) & (expert >= 0)
        cells = sample[keep] * self._experts + expert[keep]
        counts = torch.bincount(cells, minlength=self._samples * self._experts)
        found = counts.view(self._samples, self._experts).numpy()
        if self._row in self._seen and not np.array_equal(found, self._seen[self._row]):
            raise InputError(
                "one forward per recording, recomputed alike",
                "another routing",
                f"recorder, layer {self._row}",
            )
        self._seen[self._row] = found
