"""Range algebra: random ranges, meshes and placements against a slow oracle."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routepack_opt.errors import CheckError, InputError
from routepack_opt.runtime import pieces as columns
from routepack_opt.runtime.cycles import cycles_of, moves_of
from routepack_opt.runtime.movement import LayerState, Mesh, Movement, TensorSpec, Transfer, plan_movement

from .oracles import run, scatter, wire


@st.composite
def layouts(draw):
    """Draw a mesh and specs: replicated, cut anywhere (so whole, split or absent), or overlapping."""
    mesh = Mesh(draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(1, 4)))
    specs = []
    for index in range(draw(st.integers(1, 3))):
        size = draw(st.integers(1, 12))
        kind = draw(st.sampled_from(["replicated", "partitioned", "overlapping"]))
        held = np.zeros((mesh.lanes, mesh.slots_per_rank, 2), dtype=np.int64)
        for slot in range(mesh.slots_per_rank):
            cuts = draw(st.lists(st.integers(0, size), min_size=mesh.lanes - 1, max_size=mesh.lanes - 1))
            cuts = [0, *sorted(cuts), size]
            for lane in range(mesh.lanes):
                held[lane, slot] = (0, size) if kind == "replicated" else (cuts[lane], cuts[lane + 1])
            if kind == "overlapping":
                held[draw(st.integers(0, mesh.lanes - 1)), slot] = (0, size)
                held[draw(st.integers(0, mesh.lanes - 1)), slot] = (0, size)
        if kind == "overlapping" and not _covers(held, size):
            held[0, :] = (0, size)
        specs.append(TensorSpec(f"t{index}", draw(st.sampled_from([1, 2, 4])), size, held))
    old = np.array([draw(st.permutations(range(mesh.slots)))], dtype=np.int64)
    new = np.array([draw(st.permutations(range(mesh.slots)))], dtype=np.int64)
    return mesh, tuple(specs), old, new


def _covers(held, size):
    return all(
        set(range(size)) <= {x for a, b in held[:, slot] for x in range(a, b)}
        for slot in range(held.shape[1])
    )


def canonical(specs, mesh):
    """Distinct numbers for every element of every expert."""
    return [
        np.arange(mesh.slots * s.size).reshape(mesh.slots, s.size) + 1000 * t for t, s in enumerate(specs)
    ]


@settings(max_examples=150, deadline=None)
@given(layouts(), st.integers(0, 3))
def test_movement_equals_cutting_the_canonical_state_again(layout, tightness):
    """Whatever the ranges and the budget, the store ends as if cut under the new placement."""
    mesh, specs, old, new = layout
    states, budget = [LayerState(0, specs)], None
    free = plan_movement(old, new, states, mesh)
    if tightness and free.transfers:
        pairs = [[a, b] for a in range(mesh.slots) for b in range(a + 1, mesh.slots)]
        single = [Movement(mesh, free.states, (_swap(specs, mesh, p),)).staging_bytes() for p in pairs]
        budget = max(max(single), free.staging_bytes() // tightness)
    plan = plan_movement(old, new, states, mesh, budget)
    plan.check()
    values = canonical(specs, mesh)
    store = scatter(values, specs, mesh, old[0])
    sent = run(plan, 0, store)
    want = scatter(values, specs, mesh, new[0])
    assert store.keys() == want.keys()
    assert all(np.array_equal(store[key], want[key]) for key in want)
    assert sent == (plan.bytes_across_ranks(), plan.bytes_across_lanes())
    for index in range(len(plan.transfers)):
        assert sorted(plan.transfers[index].slots.tolist()) == list(range(mesh.slots))
        assert budget is None or wire(plan, index) <= budget
    assert max([wire(plan, i) for i in range(len(plan.transfers))], default=0) == plan.staging_bytes()
    if plan.transfers:
        assert plan.transfers[-1].slots.tolist() == new[0].tolist()


def _swap(specs, mesh, pair):
    moves = moves_of([pair])
    return Transfer(0, np.arange(mesh.slots), moves, columns.build_pieces(specs, mesh, moves))


@settings(max_examples=100, deadline=None)
@given(layouts())
def test_stage_one_sends_the_moved_experts_state_and_nothing_else(layout):
    """For state that lanes cut or replicate, stage one is the sum of the held ranges that change rank."""
    mesh, specs, old, new = layout
    plan = plan_movement(old, new, [LayerState(0, specs)], mesh)
    exact = 0
    for spec in specs:
        for source, target in zip(old[0], new[0], strict=True):
            if source // mesh.slots_per_rank != target // mesh.slots_per_rank:
                ranges = spec.held[:, source % mesh.slots_per_rank]
                exact += int((ranges[:, 1] - ranges[:, 0]).sum()) * spec.itemsize
    if all(_partition_or_replica(spec) for spec in specs):
        assert plan.bytes_across_ranks() == exact


def _partition_or_replica(spec):
    lengths = (spec.held[..., 1] - spec.held[..., 0]).sum(axis=0)
    return bool((lengths == spec.size).all() or (lengths == spec.size * spec.held.shape[0]).all())


def partitioned(mesh, size=6):
    """One tensor cut evenly between the lanes, but at another place for every slot."""
    held = np.zeros((mesh.lanes, mesh.slots_per_rank, 2), dtype=np.int64)
    for slot in range(mesh.slots_per_rank):
        cut = (slot * 2) % (size + 1)
        held[0, slot], held[1, slot] = (0, cut), (cut, size)
    return TensorSpec("moment", 4, size, held)


def test_the_plan_is_the_same_everywhere_and_its_digest_tells_plans_apart():
    mesh = Mesh(2, 2, 2)
    states = [LayerState(0, (partitioned(mesh),))]
    old, new = np.array([[0, 1, 2, 3]]), np.array([[1, 2, 3, 0]])
    digests = {plan_movement(old, row, states, mesh).digest for row in (new, new.copy())}
    assert len(digests) == 1
    other = [LayerState(0, (TensorSpec("moment", 2, 6, partitioned(mesh).held),))]
    assert plan_movement(old, np.array([[2, 1, 0, 3]]), states, mesh).digest not in digests
    assert plan_movement(old, new, other, mesh).digest not in digests


@pytest.mark.parametrize(
    ("column", "change", "message"),
    [
        (columns.SOURCE_LANE, lambda x: 1 - x, "not held"),
        (columns.TARGET_SLOT, lambda x: (x + 1) % 4, "no move"),
        (columns.END, lambda x: x + 1, "not held|not join|ends before"),
        (columns.START, lambda x: x + 99, "does not exist"),
        (columns.TENSOR, lambda x: x + 1, "does not exist"),
        (columns.TARGET_LANE, lambda x: 1 - x, "join|ends before|destination"),
    ],
)
def test_a_tampered_table_is_refused(column, change, message):
    mesh = Mesh(2, 2, 2)
    plan = plan_movement(
        np.array([[0, 1, 2, 3]]), np.array([[1, 2, 3, 0]]), [LayerState(0, (partitioned(mesh),))], mesh
    )
    for row in range(len(plan.transfers[0].pieces)):
        table = plan.transfers[0].pieces.copy()
        table[row, column] = change(table[row, column])
        broken = Transfer(0, plan.transfers[0].slots, plan.transfers[0].moves, table)
        with pytest.raises(CheckError, match=message):
            Movement(mesh, plan.states, (broken,)).check()


def test_a_dropped_or_doubled_piece_is_refused():
    mesh = Mesh(2, 2, 2)
    plan = plan_movement(
        np.array([[0, 1, 2, 3]]), np.array([[1, 2, 3, 0]]), [LayerState(0, (partitioned(mesh),))], mesh
    )
    whole = plan.transfers[0]
    for table in (whole.pieces[1:], np.concatenate([whole.pieces, whole.pieces[:1]])):
        with pytest.raises(CheckError):
            Movement(mesh, plan.states, (Transfer(0, whole.slots, whole.moves, table),)).check()


def test_user_mistakes_name_the_tensor_and_the_remedy():
    mesh = Mesh(2, 2, 2)
    spec = partitioned(mesh)
    identity, cycle = np.array([[0, 1, 2, 3]]), np.array([[1, 2, 3, 0]])
    with pytest.raises(InputError, match="new placement, layer 0"):
        plan_movement(identity, np.array([[0, 0, 1, 2]]), [LayerState(0, (spec,))], mesh)
    hole = TensorSpec("moment", 4, 7, spec.held)
    with pytest.raises(InputError, match=r"moment.*element 6 on no lane"):
        plan_movement(identity, cycle, [LayerState(0, (hole,))], mesh)
    with pytest.raises(InputError, match="raise the staging budget"):
        plan_movement(identity, cycle, [LayerState(0, (spec,))], mesh, budget=8)


def test_a_cut_cycle_costs_one_further_move_per_cut():
    mesh = Mesh(8, 1, 1)
    spec = TensorSpec("w", 16, 1, np.array([[[0, 1]]]))
    old, new = np.arange(8)[None], np.roll(np.arange(8), 1)[None]
    free = plan_movement(old, new, [LayerState(0, (spec,))], mesh)
    assert (len(free.transfers), free.bytes_across_ranks()) == (1, 8 * 16)
    assert free.staging_bytes() == 32  # one expert out, one in, however long the cycle
    one_rank = Mesh(1, 1, 8)
    wide = TensorSpec("w", 16, 1, np.repeat(np.array([[[0, 1]]]), 8, axis=1))
    cut = plan_movement(old, new, [LayerState(0, (wide,))], one_rank, budget=3 * 16)
    assert [len(t.moves) for t in cut.transfers] == [3, 3, 3, 2]
    assert cut.staging_bytes() == 48


def test_cycles_leave_fixed_slots_out():
    assert cycles_of(np.array([2, 0, 1, 3]), np.array([0, 2, 1, 3])) == [[0, 2]]


def test_planning_needs_numpy_only():
    code = "import sys; import routepack_opt.runtime.movement; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
