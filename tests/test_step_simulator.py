"""The step simulator: pipeline against a ticking clock, bytes against single samples, and hand-made cases."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles_pipeline import ticking_makespan

import routepack_opt as rp
from routepack_opt.errors import InputError
from routepack_opt.layout import Layout
from routepack_opt.suite.evaluation import assumptions
from routepack_opt.suite.evaluation.assumptions import Coefficients, assumptions_of, coefficients_of
from routepack_opt.suite.evaluation.exchange import shares, traffic_of
from routepack_opt.suite.evaluation.pipeline import Operation, makespan, schedule
from routepack_opt.suite.evaluation.simulator import simulate, volumes_of
from routepack_opt.suite.evaluation.work import preset_work, shape_work


@st.composite
def pipelines(draw):
    stages, chunks = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rows = draw(st.integers(1, 3)) * stages if chunks > 1 else draw(st.integers(1, 7))
    ticks = st.lists(st.integers(0, 5), min_size=stages * chunks, max_size=stages * chunks)
    times = [draw(st.lists(ticks, min_size=rows, max_size=rows)) for _ in range(2)]
    return stages, chunks, rows, *times


@given(pipelines())
def test_the_makespan_is_that_of_a_ticking_clock(case):
    stages, chunks, rows, forward, backward = case
    orders = [schedule(stages, chunks, rows, s) for s in range(stages)]
    wanted = ticking_makespan(forward, backward, orders)
    assert makespan(np.array(forward, float), np.array(backward, float), stages) == wanted


@given(pipelines())
def test_every_stage_does_everything_once(case):
    stages, chunks, rows, _, _ = case
    every = sorted(Operation(b, r, c) for b in (False, True) for r in range(rows) for c in range(chunks))
    for s in range(stages):
        assert sorted(schedule(stages, chunks, rows, s)) == every


def test_equal_rows_give_the_textbook_bubble():
    stages, rows = 4, 12
    ones = np.ones((rows, stages))
    assert makespan(ones, 2 * ones, stages) == 3 * rows + 3 * (stages - 1)
    chunks = 2
    halves = np.full((rows, stages * chunks), 0.5)
    assert makespan(halves, 2 * halves, stages) == 3 * rows + 3 * (stages - 1) / chunks


def test_one_forward_one_backward_order():
    order = schedule(3, 1, 4, 1)
    text = "".join(("B" if op.backward else "F") + str(op.row) for op in order)
    assert text == "F0F1B0F2B1F3B2B3"


def test_interleaved_order():
    texts = []
    for stage in (0, 1):
        order = schedule(2, 2, 4, stage)
        texts.append(" ".join(f"{'B' if op.backward else 'F'}{op.row}{'ab'[op.chunk]}" for op in order))
    assert texts[0] == "F0a F1a F0b F1b F2a B0b F3a B1b F2b B0a F3b B1a B2b B3b B2a B3a"
    assert texts[1] == "F0a F1a F0b B0b F1b B1b F2a B0a F3a B1a F2b B2b F3b B3b B2a B3a"


def test_interleaving_needs_whole_groups_of_rows():
    with pytest.raises(InputError, match="multiple of 4"):
        schedule(4, 2, 6, 0)


def tiny(shards=1, dp=2, ep=4):
    rng = np.random.default_rng(5)
    lengths = rng.integers(4, 20, 12)
    counts = np.stack([[rng.multinomial(2 * n, np.full(8, 1 / 8)) for _ in range(3)] for n in lengths])
    window = rp.Window.from_counts(lengths, counts)
    stages = [rp.AttentionStage("a", 3.0, 1.0), rp.AttentionStage("b", 2.0)]
    problem = rp.Problem(window, rp.Topology(dp, ep, shards), 64, stages)
    layout = Layout.from_cells([[[0, 1, 2], [3, 4]], [[5, 6], [7, 8]], [[9], [10, 11]]])
    return problem, rp.Placement.identity(3, 8, ep), layout


@pytest.mark.parametrize("shards", [1, 2])
def test_traffic_is_what_single_samples_send(shards):
    problem, placement, layout = tiny(shards)
    demand = placement.demand(problem.item_counts)
    found = traffic_of(problem, demand, layout, per_node=2)
    sent = np.zeros_like(found.sent)
    received = np.zeros_like(found.sent)
    for i, cell in enumerate(layout.cell_of_sample):
        row, slot = divmod(int(cell), 2)
        g = problem.topology.shard_of_slot[slot]
        homes = range(4) if shards == 2 else range(2 * slot, 2 * slot + 2)
        for p in homes:
            for layer in range(3):
                for q in range(4):
                    if p != q:
                        level = int(p // 2 != q // 2)
                        part = demand[i, layer, q] / len(homes)
                        sent[level, row, g, layer, p] += part
                        received[level, row, g, layer, q] += part
    np.testing.assert_allclose(found.sent, sent)
    np.testing.assert_allclose(found.received, received)
    np.testing.assert_allclose(found.sent.sum(axis=4), found.received.sum(axis=4))


@given(st.integers(1, 9), st.integers(1, 9))
def test_shares_of_a_slot_are_whole(slots, ranks):
    found = shares(slots, ranks)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found.sum(axis=0), slots / ranks)


ONES = Coefficients(1.0, 1.0, 1.0, 1.0, 1.0, backward_over_forward=2.0, element_bytes=1)


@pytest.mark.parametrize("shards", [1, 2])
def test_without_network_the_step_is_the_objective(shards):
    problem, placement, layout = tiny(shards)
    work = shape_work(rp.MoEModel(3, 8, 2), 2, hidden=1, expert_width=1)
    free = Coefficients(1.0, 1e30, 1.0, 1e30, 1e30)
    step = simulate(volumes_of(problem, placement, layout, work, 4), free)
    primary = rp.score(problem, placement, layout).as_float()[0]
    assert step.seconds == pytest.approx(3 * problem.capacity * primary * work.assignment_flops)
    assert step.idle == 0
    assert step.seconds == pytest.approx(step.attention + step.expert)


def test_every_part_answers_to_its_coefficient():
    problem, placement, layout = tiny()
    work = shape_work(rp.MoEModel(3, 8, 2), 2, hidden=2, expert_width=3, shared_width=4)
    volumes = volumes_of(problem, placement, layout, work, 2)
    base = simulate(volumes, ONES)
    for name, part in [
        ("attention_flops", "attention"),
        ("dense_flops", "dense"),
        ("expert_flops", "expert"),
    ]:
        half = simulate(volumes, ONES.scaled(name, 0.5))
        assert getattr(half, part) == pytest.approx(2 * getattr(base, part))
        assert half.seconds == pytest.approx(base.seconds + getattr(base, part))
    fast = ONES.scaled("intra_node_bandwidth", 1e9)
    assert simulate(volumes, fast).exchange > 0  # the other level is left
    assert simulate(volumes, fast.scaled("inter_node_bandwidth", 1e9)).exchange < 1e-3 * base.exchange
    demand = placement.demand(problem.item_counts)
    busiest = traffic_of(problem, demand, layout, 2).busiest.max(axis=0).sum()
    assert base.exchange == pytest.approx(4 * work.hidden * busiest)
    late = simulate(volumes, Coefficients(1, 1, 1, 1, 1, exchange_latency=5.0, element_bytes=1))
    assert late.exchange == pytest.approx(base.exchange + 3 * 3 * 4 * 5.0)  # rows, layers, exchanges


def test_a_pipeline_waits():
    problem, placement, layout = tiny()
    work = shape_work(rp.MoEModel(3, 8, 2), 2, hidden=2, expert_width=3)
    volumes = volumes_of(problem, placement, layout, work, 4)
    alone, split = simulate(volumes, ONES), simulate(volumes, ONES, stages=3)
    assert alone.seconds / 3 < split.seconds < alone.seconds
    assert 0 < split.idle < 1
    with pytest.raises(InputError, match="1 to 3"):
        simulate(volumes, ONES, stages=4)


def test_work_of_a_preset_by_hand():
    work = preset_work("Qwen3-30B-A3B", devices=2)
    assert work.assignment_flops == 6 * 2048 * 768
    assert work.dense_flops == (2.0 * 2048 * 128 / 2,) * 48  # the router alone
    assert work.stage_layers == (tuple(range(48)),)


def test_the_table_of_assumptions_names_its_sources():
    table = json.loads(Path(assumptions.__file__).with_name("accelerators.json").read_text())
    for part in table.values():
        assert all(len(entry["source"]) > 20 for entry in part.values())
    for name in assumptions.accelerators():
        found = coefficients_of(assumptions_of(name))
        assert found.intra_node_bandwidth > found.inter_node_bandwidth > 0
        assert found.expert_flops < table["accelerators"][name]["peak_flops"]
    with pytest.raises(InputError, match="H100 SXM"):
        assumptions_of("abacus")
