"""The step simulator: seconds of one optimizer step from the loads of a layout.

Guarantees: within a row, every layer waits for its slowest slot and rank, as the objective assumes; pipeline
and exchange come on top of it. Everything that comes out is simulated: the coefficients decide it, and none
of it was timed. Left out, since every layout with the same samples pays it alike: embedding, output layer,
gradient reduction and optimizer; and what moving experts costs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import Problem
from routepack_opt.scoring import demand_of, loads_of
from routepack_opt.suite.evaluation.assumptions import Coefficients
from routepack_opt.suite.evaluation.exchange import traffic_of
from routepack_opt.suite.evaluation.pipeline import makespan
from routepack_opt.suite.evaluation.work import ModelWork

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Volumes:
    """What a layout asks of the devices, before any coefficient; forward pass.

    Attributes
    ----------
    attention : numpy.ndarray of float64, shape (S, R, G)
        FLOPs of every stage on the slowest slot.
    tokens : numpy.ndarray of float64, shape (R, G)
        Tokens of the fullest slot.
    assignments : numpy.ndarray of float64, shape (R, G, L)
        Assignments of the busiest rank.
    busiest : numpy.ndarray of float64, shape (2, R, G, L)
        Elements that the busiest rank sends or receives in an exchange, inside the node and between nodes.
    sent : numpy.ndarray of float64, shape (2, G, P)
        Elements that each rank sends over the step.
    work : ModelWork
        What they were counted with.
    """

    attention: Floats
    tokens: Floats
    assignments: Floats
    busiest: Floats
    sent: Floats
    work: ModelWork


@dataclass(frozen=True)
class Simulation:
    """A simulated step.

    Parameters
    ----------
    seconds : float
        Of the slowest shard.
    attention, dense, expert, exchange : float
        Seconds of its parts, forward and backward, summed over rows and layers.
    idle : float
        Share of its pipeline stages' time without work.
    intra_node_bytes, inter_node_bytes : int
        Most bytes that one rank sends over the step, on any shard.
    """

    seconds: float
    attention: float
    dense: float
    expert: float
    exchange: float
    idle: float
    intra_node_bytes: int
    inter_node_bytes: int


def volumes_of(
    problem: Problem, placement: Placement, layout: Layout, work: ModelWork, ranks_per_node: int
) -> Volumes:
    """Count what a layout asks of the devices.

    Parameters
    ----------
    problem, placement, layout : Problem, Placement, Layout
        What runs; the layout need not keep the cap.
    work : ModelWork
        Layers and their FLOPs.
    ranks_per_node : int
        EP ranks of one node.

    Raises
    ------
    InputError
        When the problem's stages or layers are not those of `work`.
    """
    found = (len(problem.stages), problem.window.num_layers)
    wanted = (len(work.stage_layers), len(work.moe_layers))
    if found != wanted:
        raise InputError(f"(stages, MoE layers) {wanted}, as the model", f"{found}", "problem")
    demand = demand_of(problem, placement)
    loads = loads_of(problem, demand, layout)
    traffic = traffic_of(problem, demand, layout, ranks_per_node)
    unit = problem.capacity * work.assignment_flops / problem.denominator
    fullest = [loads.tokens[:, list(slots)].max(axis=1) for slots in problem.topology.shards]
    return Volumes(
        np.asarray(loads.attention * unit, np.float64),
        np.stack(fullest, axis=1).astype(np.float64),
        loads.routed.max(axis=3).astype(np.float64),
        np.asarray(traffic.busiest * work.hidden, np.float64),
        np.asarray(traffic.per_rank * work.hidden, np.float64),
        work,
    )


def simulate(volumes: Volumes, coefficients: Coefficients, *, stages: int = 1, chunks: int = 1) -> Simulation:
    """Simulate forward and backward of all rows.

    Parameters
    ----------
    volumes : Volumes
        What the layout asks.
    coefficients : Coefficients
        What a device does per second.
    stages, chunks : int, default 1
        Pipeline stages, and chunks of consecutive layers that each holds (interleaved when above 1).

    Raises
    ------
    InputError
        When there are more chunks than layers, or an interleaved schedule does not fit the rows.
    """
    layers = volumes.work.layers
    if not 1 <= stages * chunks <= layers:
        raise InputError(f"1 to {layers} stages times chunks", f"{stages} x {chunks}", "pipeline")
    compute, exchange = _layer_seconds(volumes, coefficients)
    forward = compute.sum(axis=0) + exchange
    backward = coefficients.backward_over_forward * compute.sum(axis=0) + exchange
    starts = [part[0] for part in np.array_split(np.arange(layers), stages * chunks)]
    spans = []
    for g in range(forward.shape[1]):
        parts = [np.add.reduceat(seconds[:, g], starts, axis=1) for seconds in (forward, backward)]
        spans.append(makespan(parts[0], parts[1], stages))
    slow = int(np.argmax(spans))
    own = (1 + coefficients.backward_over_forward) * compute[:, :, slow].sum(axis=(1, 2))
    sent = 2 * float(exchange[:, slow].sum())
    busy = (float(own.sum()) + sent) / (stages * spans[slow]) if spans[slow] else 1.0
    intra, inter = (round(float(level.max()) * coefficients.element_bytes) for level in volumes.sent)
    attention, dense, expert = (float(part) for part in own)
    idle = max(1 - busy, 0.0)
    return Simulation(spans[slow], attention, dense, expert, sent, idle, intra, inter)


def _layer_seconds(volumes: Volumes, coefficients: Coefficients) -> tuple[Floats, Floats]:
    """Forward seconds: (3, R, G, layers) of attention, dense and expert, and (R, G, layers) of exchange."""
    work = volumes.work
    compute = np.zeros((3, *volumes.tokens.shape, work.layers))
    for flops, where in zip(volumes.attention, work.stage_layers, strict=True):
        compute[0][:, :, list(where)] += (flops / len(where) / coefficients.attention_flops)[:, :, None]
    compute[1] = volumes.tokens[:, :, None] * np.array(work.dense_flops) / coefficients.dense_flops
    routed = list(work.moe_layers)
    compute[2][:, :, routed] = volumes.assignments * work.assignment_flops / coefficients.expert_flops
    bandwidths = np.array([coefficients.intra_node_bandwidth, coefficients.inter_node_bandwidth])
    seconds = volumes.busiest * coefficients.element_bytes / bandwidths[:, None, None, None]
    exchange = np.zeros(compute.shape[1:])
    # Dispatch and combine; the two levels of the network work at the same time.
    exchange[:, :, routed] = 2 * (seconds.max(axis=0) + coefficients.exchange_latency)
    return compute, exchange
