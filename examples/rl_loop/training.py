"""Training: one window, row by row, in whatever layout it is given.

The loss is a sum over samples, divided by the tokens of the *window*: so it does not know the layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from rollout import PROMPT, Sample, log_probs_of
from torch import Tensor, nn

from routepack_opt.runtime.recorder import RoutingRecorder

Cells = Sequence[Sequence[Sequence[int]]]  # [row][slot] -> samples
CLIP = 0.2


def own_layout(lengths: Sequence[int], capacity: int, slots: int) -> Cells:
    """Pack as the trainer does: longest first to the least loaded cell, in as few rows as that fits."""
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    rows = -(-sum(lengths) // (capacity * slots))
    while True:
        cells: list[list[int]] = [[] for _ in range(rows * slots)]
        for i in order:
            cell = min(cells, key=lambda c: sum(lengths[k] for k in c))
            cell.append(i)
        if max(sum(lengths[k] for k in c) for c in cells) <= capacity:
            return [cells[r * slots : (r + 1) * slots] for r in range(rows)]
        rows += 1


def run_rows(
    model: nn.Module, samples: list[Sample], cells: Cells, group: Any, recorder: RoutingRecorder | None = None
) -> float:
    """Run forward and backward of every row; gradients are summed over ranks. Returns the window's loss."""
    answers = sum(len(sample.old_log_probs) for sample in samples)
    total = torch.zeros(1)
    for row in cells:
        loss = cell_loss(model, [samples[i] for i in row[group.rank()]], recorder) / answers
        loss.backward()
        total += loss.detach()
    dist.all_reduce(total, group=group)
    for parameter in dense_parameters(model):
        dist.all_reduce(parameter.grad, group=group)
    return float(total)


def cell_loss(model: nn.Module, samples: list[Sample], recorder: RoutingRecorder | None = None) -> Tensor:
    """Clipped policy loss of a microbatch, summed over its answers' tokens."""
    longest = max(len(sample.tokens) for sample in samples)
    tokens = torch.zeros((len(samples), longest), dtype=torch.int64)
    old, weight = torch.zeros((2, len(samples), longest - 1))
    mask = torch.zeros_like(tokens)
    for k, sample in enumerate(samples):
        length = len(sample.tokens)
        tokens[k, :length], mask[k, :length] = torch.tensor(sample.tokens), 1
        old[k, PROMPT - 1 : length - 1] = torch.tensor(sample.old_log_probs)
        weight[k, PROMPT - 1 : length - 1] = 1.0
    advantage = torch.tensor([sample.advantage for sample in samples])[:, None]
    if recorder is None:
        log_probs = log_probs_of(model, tokens, mask)
    else:
        with recorder.padded(mask):
            log_probs = log_probs_of(model, tokens, mask)
    ratio = ((log_probs - old) * weight).exp()
    gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    return -(gain * weight).sum()


def dense_parameters(model: nn.Module) -> list[nn.Parameter]:
    """All that every rank holds; an expert's gradient is whole on the rank that owns it."""
    return [p for name, p in model.named_parameters() if ".experts." not in name]


def logical_gradients(model: nn.Module, runtime: Any, group: Any) -> dict[tuple[str, int], Tensor]:
    """Gather all gradients, those of experts by (tensor, logical expert): comparable across placements."""
    rank, mine = group.rank(), {}
    expert_of_slot = {one.name: runtime.maps[one.layer].expert_of_slot for one in runtime.adapter.experts}
    for name, parameter in model.named_parameters():
        module = name.rpartition(".")[0]
        if module not in expert_of_slot:
            mine[name, -1] = parameter.grad.clone()
            continue
        first = rank * len(parameter)
        for slot, gradient in enumerate(parameter.grad):
            mine[name, int(expert_of_slot[module][first + slot])] = gradient.clone()
    parts: list[Any] = [None] * group.size()
    dist.all_gather_object(parts, mine, group=group)
    return {key: value for part in parts for key, value in part.items()}
