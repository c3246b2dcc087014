"""The border between a problem and the kernels: plain arrays, with slots numbered shard by shard.

Guarantees: :func:`to_kernel` and :func:`from_kernel` are inverse; loads fit int32 (or the problem is
refused).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import IntArray
from routepack_opt.errors import InputError
from routepack_opt.problem import Problem
from routepack_opt.solvers.annealing._kernels.peaks import LANES
from routepack_opt.solvers.annealing._kernels.state import Instance, State, rebuild

TOTAL_WEIGHT = 1e-6  # of s1 in Eq. 16
_LOAD_LIMIT = 2**31 // LANES  # LANES peaks are added in 32 bits


def build_instance(problem: Problem, demand: npt.NDArray[Any]) -> Instance:
    """Copy what the kernels need out of a problem.

    Parameters
    ----------
    problem : Problem
        Items, topology, units and rules.
    demand : numpy.ndarray of int, shape (M, L, P)
        q of every item under the placement.

    Raises
    ------
    InputError
        When the busiest rank of one layer over the whole window could exceed 2^28 assignments.

    Notes
    -----
    Arrays are writable copies: read-only arrays are another type to the compiler, and lose the flag when an
    executor pickles them, which would compile every kernel again in the middle of a search.
    """
    items, topology, rules = problem.items, problem.topology, problem.rules
    busiest = int(demand.sum(axis=0, dtype=np.int64).max()) if demand.size else 0
    if busiest >= _LOAD_LIMIT:
        remedy = "Plan the window in parts: no training step is that large"
        expected = f"fewer than {_LOAD_LIMIT} assignments on a rank of a layer"
        raise InputError(expected, str(busiest), "counts", remedy)
    by_length = np.argsort(items.tokens, kind="stable")
    widths = [len(part) for part in topology.shards]
    return Instance(
        demand=blocked(demand),
        tokens=items.tokens.copy(),
        squares=items.squares.copy(),
        samples=items.samples.copy(),
        row_class=items.row_class.copy(),
        alone=items.alone.copy(),
        by_length=by_length,
        rank_of=np.argsort(by_length),
        linear=problem.linear.copy(),
        quadratic=problem.quadratic.copy(),
        shard_start=np.concatenate([[0], np.cumsum(widths)]).astype(np.int64),
        shard_of_slot=np.repeat(np.arange(len(widths)), widths),
        unit=problem.expert_unit,
        denominator=problem.denominator,
        cap=problem.cell_cap,
        max_samples=rules.max_samples_per_cell or problem.window.size,
        equal_samples=int(rules.equal_samples_per_slot),
        total_weight=TOTAL_WEIGHT,
    )


def blocked(demand: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rearrange (M, L, P) into (M, blocks, P, LANES), padded with zero layers, in uint16 where it fits."""
    size, layers, ranks = demand.shape
    blocks = -(-layers // LANES)
    small = demand.dtype.itemsize <= 2 or not demand.size or int(demand.max()) < 2**16
    padded = np.zeros((size, blocks * LANES, ranks), np.uint16 if small else np.int32)
    padded[:, :layers] = demand
    return np.ascontiguousarray(padded.reshape(size, blocks, LANES, ranks).transpose(0, 1, 3, 2))


def slot_order(problem: Problem) -> IntArray:
    """Slot of the problem for every slot of the kernels: shard after shard."""
    return np.array([d for part in problem.topology.shards for d in part], np.int64)


def to_kernel(problem: Problem, cell_of_item: npt.NDArray[Any]) -> IntArray:
    """Renumber the slots of flat cells from the problem's order to the kernels'."""
    place = np.argsort(slot_order(problem))
    row, slot = np.divmod(np.asarray(cell_of_item, np.int64), problem.topology.dp)
    return np.asarray(row * problem.topology.dp + place[slot], np.int64)


def from_kernel(problem: Problem, cell_of_item: IntArray) -> IntArray:
    """Renumber the slots of flat cells from the kernels' order to the problem's."""
    row, slot = np.divmod(cell_of_item, problem.topology.dp)
    return np.asarray(row * problem.topology.dp + slot_order(problem)[slot], np.int64)


def new_state(instance: Instance, rows: int, cell: IntArray, words: npt.NDArray[np.uint64]) -> State:
    """Allocate a state and build it from the kernel cell of every item.

    Parameters
    ----------
    instance : Instance
        From :func:`build_instance`.
    rows : int
        R.
    cell : numpy.ndarray of int64, shape (M,)
        A valid layout, in kernel order.
    words : numpy.ndarray of uint64, shape (4,)
        Random state of the chain.
    """
    size, cells = cell.size, rows * instance.shard_of_slot.size
    shards = instance.shard_start.size - 1
    shape = instance.demand.shape[1:]

    def zeros(*extent: int) -> IntArray:
        return np.zeros(extent, np.int64)

    most = most_items(instance, cells)
    state = State(
        cell=cell.astype(np.int64, copy=True),
        members=np.zeros((cells, most), np.int32),
        position=zeros(size),
        size=zeros(cells),
        tokens=zeros(cells),
        squares=zeros(cells),
        samples=zeros(cells),
        routed=np.zeros((rows * shards, *shape), np.int32),
        attention=zeros(rows * shards),
        peaks=zeros(rows * shards),
        joint=zeros(rows * shards),
        by_shard=zeros(shards),
        score=zeros(3),
        top=zeros(3),
        rng=words.copy(),
        picked=zeros(2, most),
        moved=np.zeros((2, *shape), np.int32),
        trial=zeros(8),
    )
    rebuild(instance, state)
    return state


def most_items(instance: Instance, cells: int) -> int:
    """Return how many items one cell can ever hold, with one left for every other cell."""
    shortest = np.cumsum(instance.tokens[instance.by_length])
    fit = int(np.searchsorted(shortest, instance.cap, side="right"))
    return max(1, min(fit, int(instance.max_samples), int(instance.tokens.size) - cells + 1))
