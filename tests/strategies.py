"""Hypothesis strategies for windows, problems, layouts and placements.

Guarantees: what `windows`, `problems` and `placements` draw is legal; `problems_with_layouts` draws a
layout that keeps every rule of its problem, by construction from the layout to the rules.
"""

import numpy as np
from hypothesis import strategies as st

from routepack_opt.layout import Layout
from routepack_opt.model import MoEModel
from routepack_opt.placement import Placement
from routepack_opt.problem import LayoutRules, Problem, Topology
from routepack_opt.stages import AttentionStage
from routepack_opt.window import Window

coefficients = st.one_of(
    st.integers(0, 20),
    st.integers(0, 3000).map(lambda k: k / 1000),
    st.sampled_from([0.1, 0.25, 1e-6, 2.000001]),
)


@st.composite
def stages(draw, most=3):
    """Up to `most` attention stages, some coefficients with decimals."""
    number = draw(st.integers(0, most))
    return tuple(AttentionStage(f"s{k}", draw(coefficients), draw(coefficients)) for k in range(number))


@st.composite
def topologies(draw, dp=None, ep=None):
    """Slots in one shard, in blocks, or in an explicit partition."""
    dp = dp or draw(st.integers(1, 4))
    ep = ep or draw(st.integers(1, 4))
    shards = draw(st.sampled_from([g for g in range(1, dp + 1) if dp % g == 0]))
    if draw(st.booleans()):
        owner = draw(st.lists(st.integers(0, dp - 1), min_size=dp, max_size=dp))
        shards = [[d for d in range(dp) if owner[d] == g] for g in sorted(set(owner))]
    return Topology(dp, ep, shards)


@st.composite
def windows(draw, size=None, lengths=None, experts=None, layers=None, top_k=None):
    """Windows as routing makes them: every token goes to `top_k` different experts at every layer."""
    if lengths is None:
        size = size or draw(st.integers(1, 8))
        lengths = draw(st.lists(st.integers(1, 12), min_size=size, max_size=size))
    experts = experts or draw(st.integers(1, 6))
    layers = draw(st.integers(0, 3)) if layers is None else layers
    top_k = top_k or draw(st.integers(1, experts))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    skew = rng.random(experts) ** 3
    counts = np.zeros((len(lengths), layers, experts), np.int64)
    for i, length in enumerate(lengths):
        for layer in range(layers):
            keys = rng.random((length, experts)) + skew
            chosen = np.argsort(-keys, axis=1, kind="stable")[:, :top_k]
            counts[i, layer] = np.bincount(chosen.ravel(), minlength=experts)
    model = MoEModel(layers, experts, top_k) if layers else None
    prompts = draw(st.none() | st.just(np.arange(len(lengths)) // 2))
    return Window.from_counts(lengths, counts, model=model, prompt_ids=prompts)


@st.composite
def placements(draw, layers, experts, ranks):
    """Any placement of that shape."""
    tables = [draw(st.permutations(range(experts))) for _ in range(layers)]
    return Placement(np.array(tables, np.int64).reshape(layers, experts), ranks)


def placements_of(problem):
    """Any placement that fits `problem`."""
    window = problem.window
    return placements(window.num_layers, window.num_experts, problem.topology.ep)


@st.composite
def rules_for(draw, size):
    """Any rule set for `size` samples; it need not be feasible."""
    ids = draw(st.permutations(range(size)))
    cut = draw(st.integers(0, min(3, size)))
    return LayoutRules(
        length_multiple=draw(st.sampled_from([1, 1, 2, 4])),
        cell_multiple=draw(st.sampled_from([1, 1, 3])),
        min_rows=draw(st.sampled_from([1, 1, 2])),
        row_multiple=draw(st.sampled_from([1, 1, 2])),
        equal_samples_per_slot=draw(st.booleans()),
        max_samples_per_cell=draw(st.sampled_from([None, None, 3, 4])),
        same_cell=(tuple(ids[:cut]),) if cut > 1 else (),
        row_class=None
        if cut > 1 or draw(st.booleans())
        else draw(st.lists(st.integers(0, 1), min_size=size, max_size=size)),
        pad_routing=draw(st.sampled_from(["none", "uniform"])),
        oversize=draw(st.sampled_from(["reject", "alone"])),
        row_order=draw(st.sampled_from(["none", "largest_first"])),
    )


@st.composite
def problems(draw, max_samples=8):
    """Problems with random rules that are legal one by one; whether any layout exists is left open."""
    window = draw(windows(size=draw(st.integers(1, max_samples))))
    rules = draw(rules_for(window.size))
    ep = draw(st.sampled_from([p for p in range(1, 5) if window.num_experts % p == 0]))
    aligned = -(-window.lengths // rules.length_multiple) * rules.length_multiple
    need = max([int(aligned.max()), *(int(aligned[list(g)].sum()) for g in rules.same_cell)])
    if rules.oversize == "alone" and not rules.same_cell:
        need = max(3, need // 2)
    if rules.same_cell and rules.max_samples_per_cell is not None:
        need = max(need, 3)
    capacity = -(-need // rules.cell_multiple) * rules.cell_multiple + draw(st.integers(0, 12))
    return Problem(window, draw(topologies(ep=ep)), capacity, stages=draw(stages()), rules=rules)


@st.composite
def problems_with_layouts(draw, max_rows=3, max_dp=4, plain=False):
    """Draw a problem and one layout that keeps all its rules; `plain` leaves the rules out."""
    rows, dp = draw(st.integers(1, max_rows)), draw(st.integers(1, max_dp))
    extra = draw(st.lists(st.integers(0, rows * dp - 1), max_size=6))
    cells = draw(st.permutations([*range(rows * dp), *extra]))
    size = len(cells)
    lengths = draw(st.lists(st.integers(1, 12), min_size=size, max_size=size))
    layout = Layout(cells, rows, dp)
    multiple = 1 if plain else draw(st.sampled_from([1, 1, 2, 4]))
    aligned = [-(-n // multiple) * multiple for n in lengths]
    fill = [sum(t for t, c in zip(aligned, cells, strict=True) if c == k) for k in range(rows * dp)]
    window = draw(windows(lengths=lengths))
    rules = LayoutRules() if plain else draw(_rules_of(layout, multiple))
    ep = draw(st.sampled_from([p for p in range(1, 5) if window.num_experts % p == 0]))
    slack = rules.cell_multiple - 1 + draw(st.integers(0, 8))
    problem = Problem(window, draw(topologies(dp, ep)), max(fill) + slack, stages=draw(stages()), rules=rules)
    return problem, layout


@st.composite
def _rules_of(draw, layout, multiple):
    """Rules that `layout` keeps, each as tight as it allows or left out."""
    cells = layout.cell_of_sample.tolist()
    count = np.bincount(cells)
    per_slot = np.bincount(layout.cell_of_sample % layout.dp)
    groups = [tuple(cell) for row in layout.cells for cell in row if len(cell) > 1]
    chosen = [group for group in groups if draw(st.booleans())]
    class_of_row = draw(st.lists(st.integers(0, 1), min_size=layout.rows, max_size=layout.rows))
    return LayoutRules(
        length_multiple=multiple,
        cell_multiple=draw(st.sampled_from([1, 2, 5])),
        pad_routing=draw(st.sampled_from(["none", "uniform"])),
        min_rows=draw(st.integers(1, layout.rows)),
        row_multiple=draw(st.sampled_from([m for m in range(1, layout.rows + 1) if layout.rows % m == 0])),
        equal_samples_per_slot=bool(per_slot.min() == per_slot.max()) and draw(st.booleans()),
        max_samples_per_cell=draw(st.sampled_from([None, int(count.max())])),
        same_cell=tuple(chosen),
        row_class=draw(st.none() | st.just([class_of_row[c // layout.dp] for c in cells])),
    )
