"""EPLB's placement when there are no replicas: experts by falling load to the least loaded open rank.

An own implementation of the published algorithm (deepseek-ai/EPLB, one group, one node) in its float32
arithmetic, to compare with; with as many slots as experts it packs each layer once.
"""

import numpy as np


def place(loads, ranks):
    """Return expert_of_slot [layers, experts] for `loads` [layers, experts]."""
    table = np.asarray(loads, dtype=np.float32)
    layers, experts = table.shape
    expert_of_slot = np.empty((layers, experts), dtype=np.int64)
    for layer, weights in enumerate(table):
        packs, totals = [[] for _ in range(ranks)], np.zeros(ranks, dtype=np.float32)
        for expert in np.argsort(-weights, kind="stable"):
            open_packs = [p for p in range(ranks) if len(packs[p]) < experts // ranks]
            pack = min(open_packs, key=lambda p: totals[p])
            packs[pack].append(expert)
            totals[pack] += weights[expert]
        expert_of_slot[layer] = np.concatenate(packs)
    return expert_of_slot
