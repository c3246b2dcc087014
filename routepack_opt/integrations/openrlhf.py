"""OpenRLHF: `balance_experiences` on the driver, `setup_dynamic_batch` of the workers' replay buffer.

Guarantees: the trainer's own functions run; a plan only says which samples share a rank and a microbatch.
Loss scales and optimizer steps are computed by the trainer from the planned microbatches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from routepack_opt.integrations.dispatch import Slots, plan_dispatch, step_windows
from routepack_opt.integrations.own import COMPARED, Groups, swap, two_stages
from routepack_opt.integrations.rowids import FIELD, all_agree, read_column, rows_of, tell_own
from routepack_opt.integrations.seam import Seam

#: Version whose contract this module was written for.
READ_FROM = "OpenRLHF 0.11.2 and 3c3be623 (0.11.0)"


def balance_experiences(
    seam: Seam,
    own: Callable[..., Any],
    *,
    counts: Callable[[Any], Any] | None = None,
    tools: Any = None,
    buffer: Any = None,
) -> Callable[..., Any]:
    """Return a replacement of `balance_experiences`: one Experience for every rank.

    Parameters
    ----------
    seam : Seam
        Where to plan.
    own : callable
        The trainer's function; it deals the samples out first: every optimizer step keeps its samples.
    counts : callable, optional
        Takes the single-sample experiences and returns counts [N, L, E]; OpenRLHF carries no routing.
    tools : module, optional
        `openrlhf.trainer.ppo_utils.experience`.
    buffer : module, optional
        `openrlhf.trainer.ppo_utils.replay_buffer`, to compare with the trainer's own microbatches (for steps
        of at most 1024 samples); without it there is no comparison.
    """

    def balance(experiences: Any, args: Any) -> Any:
        dealt = own(experiences, args)
        seam.begin()
        try:
            module = tools if tools is not None else import_module("openrlhf.trainer.ppo_utils.experience")
            samples = [one for part in dealt for one in module.split_experience_batch(part)]
            lengths = [int(sample.total_length) for sample in samples]
            found = plan_dispatch(
                seam,
                lengths,
                step_windows(len(samples), int(args.train.batch_size), len(dealt)),
                counts=None if counts is None else counts(samples),
                own=None if buffer is None else partial(_own_cells, buffer, args),
            )
            if found is None:
                return dealt
            return [module.make_experience_batch(_marked(samples, found, slot)) for slot in found.slots]
        except Exception as error:
            seam.fail(error)
            return dealt

    return balance


def _own_cells(buffer: Any, args: Any, slots: Slots, tokens: list[int]) -> list[Groups] | None:
    """Return the cells that the workers would run: counted, then cut evenly, as many on every rank."""
    if len(tokens) > COMPARED:
        return None
    limit = (args.train.max_tokens_per_gpu, args.ds.ring_attn_size, args.ds.tensor_parallel_size)

    def pack(slot: Sequence[int], rows: int) -> Groups:
        sizes = [tokens[i] for i in slot]
        count = max(rows, buffer.get_minimum_num_micro_batch_size(sizes, *limit))
        groups: Groups = buffer.get_seqlen_balanced_partitions(sizes, count, equal_size=False)
        return groups

    return two_stages(slots, pack)


def _marked(samples: Sequence[Any], found: Any, slot: Sequence[int]) -> list[Any]:
    """Return a rank's samples, each with its row in `info`, which the trainer carries along."""
    import torch

    for i in slot:
        samples[i].info = {**samples[i].info, FIELD: torch.as_tensor(found.column[i].copy())}
    return [samples[i] for i in slot]


def setup_dynamic_batch(own: Callable[..., Any], module: Any = None) -> Callable[..., Any]:
    """Return a replacement of `NaiveReplayBuffer.setup_dynamic_batch`.

    Parameters
    ----------
    own : callable
        The trainer's method. It counts and cuts microbatches by two functions of its module, which answer by
        plan while it runs.
    module : module, optional
        `openrlhf.trainer.ppo_utils.replay_buffer`.
    """

    def setup(self: Any, strategy: Any) -> Any:
        buffer = module if module is not None else import_module("openrlhf.trainer.ppo_utils.replay_buffer")
        held = [item.info.pop(FIELD, None) for item in self.items]
        group = strategy.ds_device_mesh["dp"].get_group()
        steps = _steps(held, strategy.args)
        agreed = all_agree(None if steps is None else [row for step in steps for row in step], group)
        if steps is None or not agreed:
            tell_own(held)
            return own(self, strategy)
        with _answering(buffer, steps):
            return own(self, strategy)

    return setup


def _steps(held: Sequence[Any], args: Any) -> list[Groups] | None:
    """Return the rows of every optimizer step, by position in the step."""
    column = read_column(held)
    if column is None:
        return None
    limit = args.train.max_tokens_per_gpu * args.ds.ring_attn_size * args.ds.tensor_parallel_size
    steps: list[Groups] = []
    start = 0
    for w in np.unique(column[:, 0]):
        where = np.flatnonzero(column[:, 0] == w)
        rows = rows_of(column[where], int(limit))
        if rows is None or not np.array_equal(where, np.arange(start, start + len(where))):
            return None
        steps.append(rows)
        start += len(where)
    return steps


@contextmanager
def _answering(buffer: Any, steps: list[Groups]) -> Any:
    """Let the two functions that a buffer asks answer by plan, step after step."""
    names = ("get_minimum_num_micro_batch_size", "get_seqlen_balanced_partitions")
    kept = {name: getattr(buffer, name) for name in names}
    counted, cut = iter(steps), iter(steps)
    buffer.get_minimum_num_micro_batch_size = lambda *args, **kwargs: len(next(counted))
    buffer.get_seqlen_balanced_partitions = lambda *args, **kwargs: [list(row) for row in next(cut)]
    try:
        yield
    finally:
        for name in names:
            setattr(buffer, name, kept[name])


def install_driver(seam: Seam, **options: Any) -> None:
    """Put planned dealing into OpenRLHF; call it in the process of the trainer."""
    trainer = import_module("openrlhf.trainer.ppo_trainer")
    more = {"buffer": import_module("openrlhf.trainer.ppo_utils.replay_buffer")} | options
    swap(trainer, "balance_experiences", lambda own: balance_experiences(seam, own, **more))


def install_worker() -> None:
    """Let this worker's replay buffer run planned rows; call it in every worker."""
    buffer = import_module("openrlhf.trainer.ppo_utils.replay_buffer")
    swap(buffer.NaiveReplayBuffer, "setup_dynamic_batch", setup_dynamic_batch)
