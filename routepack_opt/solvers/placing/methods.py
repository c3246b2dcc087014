"""Place the experts of every MoE layer by their loads.

Guarantees: ``lpt`` is Algorithm 1 exactly; ``refined`` never has a busier rank than ``lpt`` in any layer when
moves are free; at most `max_moves` experts change rank; all loads are int64 and no tie is broken by chance.
"""

from __future__ import annotations

from typing import Any, Literal

from routepack_opt.arrays import IntArray, whole_number, whole_numbers
from routepack_opt.bounds.placement import rank_peaks
from routepack_opt.errors import InputError
from routepack_opt.placement import Placement
from routepack_opt.placement.checks import check_ranks
from routepack_opt.problem import Problem
from routepack_opt.solvers.placing.budget import choose_options, falling_order, layer_options
from routepack_opt.solvers.placing.refine import refine_layers
from routepack_opt.solvers.placing.relabel import keep_slots, relabel
from routepack_opt.solvers.placing.result import PlacementResult

Method = Literal["refined", "lpt"]


def place(
    problem: Problem,
    method: Method = "refined",
    previous: Placement | None = None,
    max_moves: int | None = None,
) -> PlacementResult:
    """Place the experts of a problem's window; see :func:`place_loads`.

    Parameters
    ----------
    problem : Problem
        Its loads (Eq. 10) are placed on the EP ranks of its topology.
    method, previous, max_moves
        As in :func:`place_loads`.
    """
    return place_loads(
        problem.loads, problem.topology.ep, method=method, previous=previous, max_moves=max_moves
    )


def place_loads(
    loads: Any,
    ep: int,
    *,
    method: Method = "refined",
    previous: Placement | None = None,
    max_moves: int | None = None,
) -> PlacementResult:
    """Place experts by their loads, independently in every layer.

    Parameters
    ----------
    loads : array_like of int, shape [layers, experts]
        Routed assignments of each expert, not negative.
    ep : int
        Expert-parallel ranks P; it divides the experts.
    method : {"refined", "lpt"}, optional
        ``"lpt"`` is Algorithm 1. ``"refined"`` lowers (busiest rank, sum of squared rank loads) by the best
        pairwise swap until none helps, from Algorithm 1 and from balanced largest differencing, and keeps the
        better of the two.
    previous : Placement, optional
        Where the experts live now. Ranks and slots are renamed so that the fewest move; ``"refined"`` also
        tries swaps from there, and takes the result with the least peak and then the fewest moves.
    max_moves : int, optional
        Experts that may change rank, over all layers; needs `previous`. The layers and swaps that lower the
        sum of the layers' peaks the most are taken.

    Returns
    -------
    PlacementResult

    Raises
    ------
    InputError
        Loads are negative, not whole or of another shape; `ep` does not divide the experts; `previous` has
        another shape; `max_moves` is negative or has no `previous`.
    """
    table = _check_loads(loads)
    ranks = check_ranks(ep, table.shape[1])
    _check_request(method, previous, max_moves)
    identity = Placement.identity(table.shape[0], table.shape[1], ranks)
    if previous is not None:
        identity.moves_from(previous)  # refuses another shape before any work
    slots, bound = _place_afresh(table, ranks, method)
    if previous is not None:
        slots = _near_previous(table, relabel(table, slots, previous), previous, method, max_moves)
    placement = Placement(slots, ranks)
    moves = placement.moves_from(identity if previous is None else previous)
    return PlacementResult(placement, placement.loads(table), bound, method, moves)


def _place_afresh(loads: IntArray, ranks: int, method: Method) -> tuple[IntArray, IntArray]:
    from routepack_opt.solvers.placing._kernels import lpt_layers

    if method == "refined" and loads.size:
        return refine_layers(loads, ranks)
    return lpt_layers(loads, falling_order(loads), ranks), rank_peaks(loads, ranks)


def _near_previous(
    loads: IntArray, replaced: IntArray, previous: Placement, method: Method, max_moves: int | None
) -> IntArray:
    if max_moves is None and method == "lpt":
        return replaced
    step_by_step = method == "refined"
    options = [
        layer_options(load, home, previous.ranks, slot, step_by_step)
        for load, home, slot in zip(loads, previous.slot_of_expert, replaced, strict=True)
    ]
    picked = [kept[-1] for kept in options] if max_moves is None else choose_options(options, max_moves)
    slots = replaced.copy()
    for layer, option in enumerate(picked):
        slots[layer] = keep_slots(option.rank, previous.slot_of_expert[layer], previous.slots_per_rank)
    return slots


def _check_loads(loads: Any) -> IntArray:
    table: IntArray = whole_numbers(loads, "loads", shape=(None, None))
    # Room to spare, so that sums and differences of rank loads stay exact.
    if table.size and int(table.max()) * table.size >= 2**62:
        raise InputError("loads whose sum stays below 2**62", f"a load of {int(table.max())}", "loads")
    return table


def _check_request(method: str, previous: Placement | None, max_moves: int | None) -> None:
    if method not in ("refined", "lpt"):
        raise InputError("'refined' or 'lpt'", repr(method), "method")
    if previous is not None and not isinstance(previous, Placement):
        raise InputError("a Placement", f"a {type(previous).__name__}", "previous")
    if max_moves is None:
        return
    whole_number(max_moves, "max_moves")
    if previous is None:
        remedy = "Give previous=Placement.identity(layers, experts, ranks) for a trainer that never moved any"
        raise InputError("a previous placement to count moves from", "none", "max_moves", remedy)
