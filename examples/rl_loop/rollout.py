"""Rollout: sample responses, score them, record the routing, and seal the window.

Statistics over several samples (the group's baseline) are attached to the records here, before anything is
packed: a layout must not be able to change them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from model import END, VOCABULARY
from torch import Tensor, nn

import routepack_opt as rp
from routepack_opt.runtime.recorder import RoutingRecorder

PROMPT, LONGEST = 6, 30


@dataclass(frozen=True)
class Sample:
    """One prompt with its response, and all that training needs to know about it."""

    tokens: tuple[int, ...]
    prompt_id: int
    old_log_probs: tuple[float, ...]  # of the response's tokens
    reward: float
    advantage: float = 0.0


def roll_out(
    model: nn.Module, maps: Any, prompts: int, answers: int, seed: int, group: Any
) -> tuple[list[Sample], rp.Window]:
    """Sample `answers` responses to each of this rank's prompts; return everybody's and their window."""
    rank, ranks = group.rank(), group.size()
    mine = range(rank * prompts // ranks, (rank + 1) * prompts // ranks)
    words = np.random.SeedSequence(seed, spawn_key=(rank,)).generate_state(1)
    source = torch.Generator().manual_seed(int(words[0]))
    heads = torch.randint(2, VOCABULARY, (len(mine), PROMPT), generator=source)
    tokens, lengths = _generate(model, heads.repeat_interleave(answers, dim=0), source)
    ids = [prompt for prompt in mine for _ in range(answers)]
    records, counts = _score(model, maps, tokens, lengths, ids)
    parts: list[Any] = [None] * ranks
    dist.all_gather_object(parts, (records, counts), group=group)
    samples = with_advantages([sample for found, _ in parts for sample in found])
    window = rp.Window.from_counts(
        np.array([len(sample.tokens) for sample in samples]),
        np.concatenate([found for _, found in parts]),
        prompt_ids=np.array([sample.prompt_id for sample in samples]),
    )
    return samples, window


@torch.no_grad()
def _generate(model: nn.Module, tokens: Tensor, source: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sample until the end token; all ranks make the same number of forwards, as their experts are shared."""
    lengths = torch.full((len(tokens),), LONGEST)
    for position in range(PROMPT, LONGEST):
        logits = model(tokens).logits[:, -1]
        logits[:, END] += 1.5  # so that lengths differ
        drawn = torch.multinomial(logits.softmax(-1), 1, generator=source)
        tokens = torch.cat([tokens, drawn], dim=1)
        ended = (drawn[:, 0] == END) & (lengths == LONGEST)
        lengths = torch.where(ended, torch.tensor(position + 1), lengths)
    return tokens, lengths


@torch.no_grad()
def _score(
    model: nn.Module, maps: Any, tokens: Tensor, lengths: Tensor, ids: list[int]
) -> tuple[list[Sample], Any]:
    """Compute old log-probabilities, and record the routing in the same forward."""
    mask = (torch.arange(tokens.shape[1]) < lengths[:, None]).long()
    recorder = RoutingRecorder(maps)
    with recorder.padded(mask):
        log_probs = log_probs_of(model, tokens * mask, mask)
    samples = []
    for row, length, old, prompt in zip(tokens.tolist(), lengths.tolist(), log_probs, ids, strict=True):
        answer = row[PROMPT:length]
        reward = sum(token % 2 == 0 for token in answer) / len(answer)
        samples.append(
            Sample(tuple(row[:length]), prompt, tuple(old[PROMPT - 1 : length - 1].tolist()), reward)
        )
    return samples, recorder.window().counts


def log_probs_of(model: nn.Module, tokens: Tensor, mask: Tensor) -> Tensor:
    """Log-probability of every token after the first, given those before it."""
    logits = model(tokens, attention_mask=mask).logits[:, :-1]
    return logits.log_softmax(-1).gather(2, tokens[:, 1:, None])[..., 0]


def with_advantages(samples: list[Sample]) -> list[Sample]:
    """Attach the reward's deviation from the mean of its prompt's group."""
    rewards: dict[int, list[float]] = {}
    for sample in samples:
        rewards.setdefault(sample.prompt_id, []).append(sample.reward)
    return [
        Sample(
            sample.tokens,
            sample.prompt_id,
            sample.old_log_probs,
            sample.reward,
            sample.reward - float(np.mean(rewards[sample.prompt_id])),
        )
        for sample in samples
    ]
