"""Population annealing: reproducible on any executor, never worse than its seeds, on time, a true chain."""

import math
import pickle
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from annealing_cases import case_of, oracle_score
from validity import broken_by

from routepack_opt.layout import Layout
from routepack_opt.placement import Placement
from routepack_opt.problem import AttentionStage, Problem, Topology
from routepack_opt.solvers.annealing._kernels.chain import run_chain
from routepack_opt.solvers.annealing.members import Member, Step, slice_of
from routepack_opt.solvers.annealing.parameters import AnnealingParameters, Mix
from routepack_opt.solvers.annealing.population import SerialExecutor, anneal
from routepack_opt.solvers.annealing.threads import ThreadExecutor
from routepack_opt.window import Window

SMALL = AnnealingParameters(population=5, levels=6, hottest=1e-2, coldest=1e-4)


def window_of(size=24, layers=3, experts=8, seed=1):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 100, size)
    skew = rng.dirichlet(np.full(experts, 0.5), (size, layers))
    counts = np.array([[rng.multinomial(n, p) for p in row] for n, row in zip(lengths, skew, strict=True)])
    return Window.from_counts(lengths, counts)


@pytest.fixture(scope="module")
def started():
    """A problem, its demand under identity, and three layouts of 2 rows of 4 slots."""
    window = window_of()
    problem = Problem(window, Topology(dp=4, ep=4, edp_shards=2), 400, (AttentionStage("a", 1.0, 2.0),))
    demand = Placement.identity(3, 8, 4).demand(problem.item_counts)
    order = np.argsort(-window.lengths, kind="stable")
    seeds = []
    for shift in range(3):
        cells = np.empty(24, np.int64)
        cells[order] = [(k + shift * (k // 8)) % 8 for k in range(24)]
        Layout.from_items(problem, cells, 2).validate(problem)
        seeds.append(cells)
    return problem, demand, seeds


def outcome(result):
    """What a run decides."""
    levels = [(x.incumbent, x.energy_mean, x.survivors, x.evaluated, x.accepted) for x in result.trace]
    return result.cell_of_item.tolist(), result.score, result.proposals, levels


class PicklingExecutor:
    """Stands for other processes: steps and members arrive as copies, and come back in the order given."""

    workers = 2

    def map(self, step, members):
        sent = [pickle.dumps((step, member)) for member in members]
        done = []
        for message in reversed(sent):
            far_step, member = pickle.loads(message)
            done.append(pickle.dumps(far_step(member)))
        return [pickle.loads(message) for message in reversed(done)]


@pytest.fixture(scope="module")
def reference(started):
    problem, demand, seeds = started
    return outcome(anneal(problem, demand, seeds, 2, seed=7, parameters=SMALL, proposals=6_000))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_do_not_change_the_result(started, reference, threads):
    problem, demand, seeds = started
    executor = ThreadExecutor(threads)
    try:
        found = anneal(
            problem, demand, seeds, 2, seed=7, parameters=SMALL, proposals=6_000, executor=executor
        )
    finally:
        executor.close()
    assert outcome(found) == reference


@pytest.mark.parametrize("executor", [SerialExecutor(), PicklingExecutor()], ids=["serial", "pickling"])
def test_executors_do_not_change_the_result(started, reference, executor):
    problem, demand, seeds = started
    found = anneal(problem, demand, seeds, 2, seed=7, parameters=SMALL, proposals=6_000, executor=executor)
    assert outcome(found) == reference


def test_what_an_executor_sends_is_compiled_already(started):
    problem, demand, seeds = started
    anneal(problem, demand, seeds, 2, parameters=SMALL, proposals=100)
    known = len(getattr(run_chain, "signatures", ()))
    anneal(problem, demand, seeds, 2, parameters=SMALL, proposals=100, executor=PicklingExecutor())
    assert len(getattr(run_chain, "signatures", ())) == known


def test_another_seed_is_another_run(started, reference):
    problem, demand, seeds = started
    found = anneal(problem, demand, seeds, 2, seed=8, parameters=SMALL, proposals=6_000)
    assert outcome(found)[3] != reference[3]


def score_at(problem, cells, rows=2):
    score = oracle_score(problem, Placement.identity(3, 8, 4), Layout.from_items(problem, cells, rows).cells)
    return tuple(int(x * problem.denominator) for x in score)


@pytest.mark.parametrize("temperature", [1e9, 1e-2, 1e-6])
def test_the_result_is_the_best_state_seen_whatever_resampling_does(started, temperature):
    problem, demand, seeds = started
    shape = AnnealingParameters(population=3, levels=4, hottest=temperature, coldest=temperature / 4)
    best = min(score_at(problem, cells) for cells in seeds)
    found = anneal(problem, demand, seeds, 2, parameters=shape, proposals=400)
    assert found.score <= best
    assert found.score == score_at(problem, found.cell_of_item)
    assert broken_by(problem, Layout.from_items(problem, found.cell_of_item, 2).cells) == []
    incumbents = [level.incumbent for level in found.trace]
    assert incumbents == sorted(incumbents, reverse=True)
    assert incumbents[-1] == found.score


class Watching(SerialExecutor):
    """Notes the best score of every member after every level."""

    def __init__(self):
        self.seen = []

    def map(self, step, members):
        done = super().map(step, members)
        self.seen += [tuple(member.best_score.tolist()) for member in done]
        return done


@pytest.mark.parametrize("turn", [0, 1, 2])
def test_no_members_best_state_is_forgotten(started, turn):
    problem, demand, seeds = started
    turned, watch = [*seeds[turn:], *seeds[:turn]], Watching()
    found = anneal(problem, demand, turned, 2, seed=turn, parameters=SMALL, proposals=90, executor=watch)
    assert found.score == min(watch.seen + [score_at(problem, cells) for cells in seeds])
    idle = anneal(problem, demand, turned, 2, parameters=SMALL, proposals=0)
    assert idle.score == min(score_at(problem, cells) for cells in seeds)


def test_a_walk_that_never_improves_returns_its_best_seed(started):
    problem, demand, seeds = started
    good = anneal(problem, demand, seeds, 2, parameters=SMALL, proposals=60_000).cell_of_item
    hot = AnnealingParameters(population=2, levels=3, hottest=1e9, coldest=1e9)
    found = anneal(problem, demand, [good, seeds[0]], 2, parameters=hot, proposals=90)
    assert found.cell_of_item.tolist() == good.tolist()
    assert found.trace[-1].energy_mean > found.score[0] / problem.denominator * 1.001  # all members left it


def test_the_budget_is_shared_by_levels_and_members(started):
    problem, demand, seeds = started
    for budget in (0, 4, 103, 1_000):
        found = anneal(problem, demand, seeds, 2, parameters=SMALL, proposals=budget)
        each = [level.proposals for level in found.trace]
        assert len(each) == SMALL.levels
        assert sum(each) == found.proposals == budget // SMALL.population * SMALL.population
        assert each == sorted(each, reverse=True)
        assert max(each) - min(each) <= SMALL.population
        assert all(x.proposals >= x.evaluated >= x.accepted for x in found.trace)
        assert found.stopped == "finished"
    assert [level.temperature for level in found.trace] == SMALL.temperatures()


def test_larger_problems_start_and_end_colder():
    sizes = [8, 65, 512, 513, 2048, 16_384]
    shapes = [AnnealingParameters.for_items(size) for size in sizes]
    hottest, coldest = [s.hottest for s in shapes], [s.coldest for s in shapes]
    assert hottest == sorted(hottest, reverse=True)
    assert coldest == sorted(coldest, reverse=True)
    assert (shapes[2].hottest, shapes[2].coldest) == (3e-5, 1e-6)
    assert shapes[-1].hottest == pytest.approx(3e-5 * 32**-0.75)


def test_temperatures_are_geometric():
    values = AnnealingParameters(levels=7, hottest=1e-2, coldest=1e-5).temperatures()
    assert values == pytest.approx([1e-2 * 10 ** (-k / 2) for k in range(7)], rel=1e-12)
    assert AnnealingParameters(levels=1, hottest=1e-2, coldest=1e-5).temperatures() == [1e-5]


class Clock:
    """A clock that advances by `step` every time somebody looks at it."""

    def __init__(self, step):
        self.step, self.now = step, 0.0

    def __call__(self):
        self.now += self.step
        return self.now


def test_a_deadline_ends_the_search_within_a_slice(started):
    problem, demand, seeds = started
    clock = Clock(0.01)
    found = anneal(problem, demand, seeds, 2, parameters=SMALL, deadline=0.05, clock=clock)
    assert found.stopped == "deadline"
    assert found.score <= min(score_at(problem, cells) for cells in seeds)
    # after the deadline every member looks at the clock once more, and whoever called looks a few times
    assert clock.now <= 0.05 + clock.step * (SMALL.population + 4)


def test_a_deadline_that_has_passed_returns_the_best_seed(started):
    problem, demand, seeds = started
    found = anneal(problem, demand, seeds, 2, parameters=SMALL, deadline=-1.0, clock=Clock(0.01))
    best = min(seeds, key=lambda cells: score_at(problem, cells))
    assert (found.proposals, found.trace, found.stopped) == (0, [], "deadline")
    assert found.cell_of_item.tolist() == best.tolist()


def test_a_member_looks_at_the_clock_once_per_slice(started):
    problem, _, seeds = started
    case = case_of(problem, Placement.identity(3, 8, 4), Layout.from_items(problem, seeds[0], 2))
    looks = iter([False, False, True])
    step = Step(
        case.instance, SMALL.mix.thresholds(), 1e-3, 10 * slice_of(case.instance), lambda: next(looks)
    )
    member = step(Member(case.state, case.state.cell.copy(), case.state.score.copy()))
    assert member.proposals == 2 * slice_of(case.instance)
    assert next(looks, None) is None


# The chain against its own transition matrix, on four samples in two cells of different shards.

LENGTHS, TEMPERATURE = (1, 2, 3, 5), 0.1
STATES = [state for state in product((0, 1), repeat=4) if len(set(state)) == 2]


def energy(state):
    """Eq. 16 of a tiny layout, whose work is t / C; below 1, so that its normaliser is 1."""
    work = [Fraction(sum(t for t, c in zip(LENGTHS, state, strict=True) if c == cell), 20) for cell in (0, 1)]
    return float(max(work) + sum(work) / 10**6 + max(work) / 10**9)


def proposals_from(state, mix):
    """Every proposal of a state with its probability, from the description of the moves; {} is invalid."""
    held = {c: [i for i in range(4) if state[i] == c] for c in (0, 1)}
    near, swap, move, pair = (share / 1024 for share in (mix.near, mix.any, mix.move, mix.pair))
    for i in range(4):
        a = state[i]
        others = [k for k in held[a] if k != i]
        for j in (i - 1, i + 1):  # neighbours in the order of lengths, reach 1
            yield near / 8, {i: state[j], j: a} if 0 <= j < 4 and state[j] != a else {}
        for b, j in [(cell, k) for cell in (0, 1) for k in held[cell]]:
            p = 1 / 8 / len(held[b])
            yield p * swap, {i: b, j: a} if a != b else {}
            yield p * move, {i: b} if a != b and others else {}
            for k in others:
                yield p * pair / len(others), {i: b, k: b, j: a} if a != b else {}
            yield p * (1 - near - swap - move - pair), {k: 1 - state[k] for k in range(4)} if a != b else {}


def transition_matrix(mix):
    """Metropolis at one temperature over the enumerated states."""
    matrix = np.zeros((len(STATES), len(STATES)))
    for row, state in enumerate(STATES):
        for p, changes in proposals_from(state, mix):
            after = tuple(changes.get(k, state[k]) for k in range(4))
            accepted = math.exp(-max(energy(after) - energy(state), 0.0) / TEMPERATURE) if changes else 0.0
            matrix[row, STATES.index(after)] += p * accepted
        matrix[row, row] += 1 - matrix[row].sum()
    return matrix


def visits(start, mix, steps):
    """Part of the time that the chain spends in every state."""
    problem = Problem(
        Window.from_lengths(LENGTHS), Topology(dp=2, edp_shards=2), 20, (AttentionStage("a", 1.0),)
    )
    words = np.random.SeedSequence(5).generate_state(4, np.uint64)
    placement = Placement.identity(0, problem.window.num_experts, 1)
    case = case_of(problem, placement, Layout(start, 1, 2), words)
    best_cell, best_score, counts = case.state.cell.copy(), case.state.score.copy(), np.zeros(2, np.int64)
    seen = dict.fromkeys(STATES, 0)
    with np.errstate(over="ignore"):
        for _ in range(steps):
            run_chain(
                case.instance, case.state, best_cell, best_score, TEMPERATURE, 2, mix.thresholds(), counts
            )
            seen[tuple(case.state.cell.tolist())] += 1
    return np.array(list(seen.values())) / steps


def stationary(matrix, start):
    law = np.zeros(len(STATES))
    law[STATES.index(start)] = 1.0
    return law @ np.linalg.matrix_power(matrix, 2**14)


SWAPS = Mix(near=0, any=1024, move=0, pair=0, guided=0)
EVERYTHING = Mix(near=250, any=200, move=200, pair=200, reach=1, guided=0)


def test_unguided_swaps_visit_states_as_boltzmann_says():
    start = (0, 1, 0, 1)
    boltzmann = np.array([math.exp(-energy(s) / TEMPERATURE) if sum(s) == 2 else 0.0 for s in STATES])
    boltzmann /= boltzmann.sum()
    np.testing.assert_allclose(stationary(transition_matrix(SWAPS), start), boltzmann, atol=1e-9)
    assert np.abs(visits(start, SWAPS, 20_000) - boltzmann).sum() < 0.03


def test_all_moves_visit_states_as_their_transition_matrix_says():
    start = (0, 1, 0, 1)
    law = stationary(transition_matrix(EVERYTHING), start)
    assert law.max() > 2 * law.min()
    assert np.abs(visits(start, EVERYTHING, 20_000) - law).sum() < 0.05
