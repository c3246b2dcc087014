"""Bounded local swaps from the current map, as serving systems do to move few experts.

Own implementation of the idea: at most 100 swaps a layer, each between the hottest rank and another one, at
most one per pair of ranks, and none that gains less than 1 % of the hottest rank's load.
"""

import numpy as np


def place(loads, ranks, rounds=100, least_gain=0.01):
    """Return expert_of_slot [layers, experts] for `loads` [layers, experts], starting from the identity."""
    table = np.asarray(loads, dtype=np.int64)
    layers, experts = table.shape
    result = np.tile(np.arange(experts), (layers, 1))
    for layer in range(layers):
        sets, used = result[layer].reshape(ranks, -1), set()
        for _ in range(rounds):
            totals = table[layer][sets].sum(axis=1)
            hot = int(totals.argmax())
            swap = _best_swap(table[layer], sets, totals, hot, used)
            if swap is None or swap[0] < least_gain * totals[hot]:
                break
            _, cold, i, j = swap
            sets[hot, i], sets[cold, j] = sets[cold, j], sets[hot, i]
            used.add((min(hot, cold), max(hot, cold)))
    return result


def _best_swap(loads, sets, totals, hot, used):
    best = None
    for cold in range(len(sets)):
        if cold == hot or (min(hot, cold), max(hot, cold)) in used:
            continue
        difference = loads[sets[hot]][:, None] - loads[sets[cold]][None, :]
        gain = totals[hot] - np.maximum(totals[hot] - difference, totals[cold] + difference)
        i, j = np.unravel_index(int(gain.argmax()), gain.shape)
        if best is None or gain[i, j] > best[0]:
            best = (int(gain[i, j]), cold, int(i), int(j))
    return best
