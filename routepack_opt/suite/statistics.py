"""Statistics of a window's routing, by which generated windows are held against recorded ones.

Guarantees: deterministic; pairs of samples are thinned by position, never drawn.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError
from routepack_opt.window import Window

_MOST = 256  # samples whose pairs are looked at

Floats = npt.NDArray[np.float64]


def routing_statistics(window: Window, ranks: int) -> dict[str, list[float]]:
    """Measure how a window's samples choose experts.

    Parameters
    ----------
    window : Window
        With at least one layer and `prompt_ids`.
    ranks : int
        P, for the imbalance of single samples.

    Returns
    -------
    dict of str to list of float
        ``load_cv``: coefficient of variation of the load over experts, per layer.
        ``spread``: mean over samples of sqrt(sum_e (share - window share)^2 / window share), per layer.
        ``within_group``: mean cosine of the deviations of two answers to one prompt, per layer.
        ``sample_imbalance``: mean over samples of (busiest rank / mean rank - 1) when experts are dealt to
        ranks greedily by the window's load, per layer.
        ``between_layers``: mean correlation, over pairs of layers, of the cosines of pairs of samples; one
        value.

    Raises
    ------
    InputError
        When the window has no layers or no prompts.
    """
    if window.num_layers == 0 or window.prompt_ids is None:
        raise InputError("a window with layers and prompt_ids", "one without", "window")
    routed = window.counts.sum(axis=2, dtype=np.int64)
    kept = np.flatnonzero(routed[:, 0] > 0)
    share = window.counts[kept] / routed[kept][:, :, None]
    mean = window.loads / window.loads.sum(axis=1, keepdims=True)
    deviation = share - mean
    cosine = deviation / np.maximum(np.linalg.norm(deviation, axis=2, keepdims=True), 1e-12)
    return {
        "load_cv": (window.loads.std(axis=1) / window.loads.mean(axis=1)).tolist(),
        "spread": np.sqrt((deviation**2 / np.maximum(mean, 1e-12)).sum(axis=2)).mean(axis=0).tolist(),
        "within_group": _within(cosine, window.prompt_ids[kept]).tolist(),
        "sample_imbalance": _imbalance(window, kept, ranks).tolist(),
        "between_layers": [_between(cosine)],
    }


def _within(cosine: Floats, prompts: npt.NDArray[np.int64]) -> Floats:
    pairs = [
        pair for p in np.unique(prompts) for pair in combinations(np.flatnonzero(prompts == p).tolist(), 2)
    ]
    if not pairs:
        return np.zeros(cosine.shape[1])
    first, second = np.array(pairs[: 16 * _MOST]).T
    return np.asarray((cosine[first] * cosine[second]).sum(axis=2).mean(axis=0), np.float64)


def _between(cosine: Floats) -> float:
    layers = cosine.shape[1]
    if layers < 2:
        return 1.0
    some = cosine[:: -(-len(cosine) // _MOST)]
    upper = np.triu_indices(len(some), 1)
    alike = np.array([(some[:, layer] @ some[:, layer].T)[upper] for layer in range(layers)])
    return float(np.corrcoef(alike)[np.triu_indices(layers, 1)].mean())


def _imbalance(window: Window, kept: npt.NDArray[np.int64], ranks: int) -> Floats:
    result = np.zeros(window.num_layers)
    for layer, loads in enumerate(window.loads):
        owner = _greedy(loads, ranks)
        load = np.stack([window.counts[kept, layer][:, owner == p].sum(axis=1) for p in range(ranks)], axis=1)
        result[layer] = (load.max(axis=1) / load.mean(axis=1)).mean() - 1
    return result


def _greedy(loads: npt.NDArray[np.int64], ranks: int) -> npt.NDArray[np.int64]:
    """Deal experts to ranks, hottest first, each to the rank with room that has the least load."""
    owner, load = np.empty(loads.size, np.int64), np.zeros(ranks, np.int64)
    room = np.full(ranks, loads.size // ranks)
    for e in np.argsort(-loads, kind="stable"):
        p = int(np.argmin(np.where(room > 0, load, 2**62)))
        owner[e], load[p], room[p] = p, load[p] + loads[e], room[p] - 1
    return owner
