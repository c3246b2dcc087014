"""One optimizer step after another: rollout, plan, move the experts, train row by row, export.

Guarantees that the loop checks as it goes: the planned layout gives the loss and the gradients of the
trainer's own layout; the realised loads are the planned ones; the exported weights are in canonical order.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from model import CONFIG, build_model, spread_experts
from rollout import Sample, roll_out
from training import Cells, logical_gradients, own_layout, run_rows

import routepack_opt as rp
from routepack_opt.integrations.collective import gather_over
from routepack_opt.planner.agreement import agree
from routepack_opt.planner.fallback import fall_back
from routepack_opt.runtime.adapters import huggingface
from routepack_opt.runtime.canonical import canonical_state_dict, save_safetensors
from routepack_opt.runtime.control import Control
from routepack_opt.runtime.materialize import Groups
from routepack_opt.runtime.recorder import RoutingRecorder


@dataclass(frozen=True)
class StepReport:
    """What a step did and what its checks found."""

    step: int
    rows: int
    rows_status: str
    rung: str
    own_joint: float
    planned_joint: float
    experts_moved: int
    loss: float
    loss_difference: float
    gradient_difference: float  # largest, relative to the largest gradient
    load_error: float  # of realised against planned loads
    sync_difference: float  # between the rollout engine's logits and the trainer's


class Loop:
    """One rank of the loop."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options, self.group = options, dist.group.WORLD
        self.rank, self.ranks = self.group.rank(), self.group.size()
        self.model = build_model(options.seed)
        spread_experts(self.model, self.group)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.groups = Groups(ranks=self.group)
        self.runtime = huggingface.attach(
            self.model, self.optimizer, groups=self.groups, control=Control(), staging_bytes=1 << 20
        )
        self.planner = rp.Planner(
            {
                "topology": {"dp": self.ranks, "ep": self.ranks},
                "capacity": options.capacity,
                "stages": [{"name": "attention", "alpha": 2.0, "beta": 1.0}],
                "search": {"proposals": 20_000},
            }
        )

    def step(self, number: int) -> StepReport:
        """Run one step, and the same window in the trainer's own layout beside it."""
        options = self.options
        seed = options.seed * 1_000 + number
        samples, window = roll_out(
            self.model, self.runtime.maps, options.prompts, options.answers, seed, self.group
        )
        own = own_layout(window.lengths.tolist(), options.capacity, self.ranks)
        plan = self.plan(window, own)
        reference, expected = self.reference(samples, own)

        moved = self.runtime.materializer.materialize(plan.placement)  # gradients are zero: a step boundary
        recorder = RoutingRecorder(self.runtime.maps)
        loss = run_rows(self.model, samples, plan.cells, self.group, recorder)
        gradients = logical_gradients(self.model, self.runtime, self.group)
        self.optimizer.step()
        self.optimizer.zero_grad()
        problem = self.planner.config.problem(window)
        largest = max(float(value.abs().max()) for value in expected.values())
        differences = [float((gradients[key] - expected[key]).abs().max()) for key in expected]
        return StepReport(
            step=number,
            rows=len(plan.cells),
            rows_status=plan.rows.status,
            rung=plan.rung,
            own_joint=rp.score(problem, plan.placement, own).as_float()[0],
            planned_joint=plan.score.as_float()[0],
            experts_moved=moved.experts,
            loss=loss,
            loss_difference=abs(loss - reference),
            gradient_difference=max(differences) / largest,
            load_error=rp.compare(plan, self.realised(recorder, plan)).error,
            sync_difference=self.sync(samples[0]),
        )

    def plan(self, window: rp.Window, own: Cells) -> rp.Plan:
        """Plan on rank 0, send the plan to all ranks, and compare digests."""
        plan = self.planner.plan(window, own=own) if self.rank == 0 else None
        problem = self.planner.config.problem(window)
        slots = self.runtime.materializer.placement
        here = rp.Placement(np.stack([slots[layer] for layer in sorted(slots)]), self.ranks)

        def fallback(reason: str) -> rp.Plan:
            return fall_back(reason, placement=here, problem=problem, own=own)

        return agree(plan, gather_over(self.group), fallback)

    def reference(self, samples: list[Sample], own: Cells) -> tuple[float, Any]:
        """Loss and gradients of the trainer's own layout, before anything moves."""
        loss = run_rows(self.model, samples, own, self.group)
        gradients = logical_gradients(self.model, self.runtime, self.group)
        self.optimizer.zero_grad()
        return loss, gradients

    def realised(self, recorder: RoutingRecorder, plan: rp.Plan) -> Any:
        """Count what every expert-parallel rank served: loads [layers, ranks] over the window."""
        counts = recorder.window().counts.sum(axis=0, dtype=np.int64)
        parts: list[Any] = [None] * self.ranks
        dist.all_gather_object(parts, counts, group=self.group)
        return plan.placement.loads(np.sum(parts, axis=0))

    def sync(self, sample: Sample) -> float:
        """Send canonical weights to the rollout engine, here a model of its own that is never planned."""
        state = canonical_state_dict(self.model, self.runtime.adapter.experts, self.runtime.maps, self.groups)
        engine = build_model(seed=0)
        engine.load_state_dict(state)
        tokens = torch.tensor([sample.tokens])
        with torch.no_grad():
            return float((engine(tokens).logits - self.model(tokens).logits).abs().max())

    def save(self, path: Path) -> None:
        """Write a checkpoint that knows nothing of the placement."""
        state = canonical_state_dict(self.model, self.runtime.adapter.experts, self.runtime.maps, self.groups)
        if self.rank == 0:
            save_safetensors(path, state)

    def close(self) -> None:
        """End the planner."""
        self.planner.close()


def run_rank(options: argparse.Namespace) -> list[StepReport]:
    """Run all steps on this rank."""
    torch.set_num_threads(1)
    assert CONFIG["num_experts"] % dist.get_world_size() == 0
    loop = Loop(options)
    try:
        reports = [loop.step(number) for number in range(options.steps)]
        if options.checkpoint is not None:
            loop.save(options.checkpoint)
        return reports
    finally:
        loop.close()
