"""Snake deal: experts by falling load, dealt to the ranks left to right, then right to left, and so on.

What a vectorised balancer does without replicas (own implementation).
"""

import numpy as np


def place(loads, ranks):
    """Return expert_of_slot [layers, experts] for `loads` [layers, experts]."""
    table = np.asarray(loads)
    layers, experts = table.shape
    order = np.argsort(-table, axis=1, kind="stable").reshape(layers, experts // ranks, ranks)
    order[:, 1::2] = order[:, 1::2, ::-1]
    return order.transpose(0, 2, 1).reshape(layers, experts)
