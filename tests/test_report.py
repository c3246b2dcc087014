"""Figures and pages say what the plan says, fetch nothing, and load in a browser without a complaint."""

import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")

import routepack_opt as rp
from routepack_opt.crossings import Crossings
from routepack_opt.errors import InputError
from routepack_opt.plotting import PARTS, draw_parts, plot_plan, plot_sensitivity, save_plot
from routepack_opt.plotting.style import new_figure
from routepack_opt.plotting.terms import draw_load_maps
from routepack_opt.report import plan_page, results_page, write_page
from routepack_opt.suite.evaluation import read_results, summary
from routepack_opt.suite.evaluation.assumptions import VARIED

SVG = "{http://www.w3.org/2000/svg}"
STAGES = (rp.AttentionStage("kda", 6.0), rp.AttentionStage("mla", 2.0, 2.0))


@pytest.fixture(scope="module")
def plan():
    rng = np.random.default_rng(0)
    lengths = rng.integers(20, 100, 64)
    counts = np.stack([rng.multinomial(n, rng.dirichlet(np.full(8, 0.6)), 3) for n in lengths])
    window = rp.Window.from_counts(lengths, counts, routing="predicted")
    problem = rp.Problem(window, rp.Topology(4, 4, 2), 600, STAGES)
    return rp.plan(problem, budget=rp.Budget(4_000))


@pytest.fixture(scope="module")
def page(plan):
    return plan_page(plan, "A <plan> & more")


def test_the_page_shows_crossings_when_there_are_any(plan, page):
    assert "Crossings" not in page
    found = plan_page(replace(plan, crossings=Crossings(900, 800, 3200, 4, 2)))
    assert "200 of 800 assignments leave their node (nodes of 2 ranks); seating saved 11.11 %" in found
    assert "25.00 %" in found


def drawing(plan, name):
    return ET.fromstring(next(one.svg for one in draw_parts(plan) if one.name == name))


def titles(element):
    return [title.text for title in element.iter(f"{SVG}title")]


def test_bars_say_what_the_rows_cost(plan):
    root, shot, unit = drawing(plan, "rows"), plan.snapshot, plan.score.denominator
    heights = {}
    for r, g in np.ndindex(shot.expert.shape):
        for part, value in (("attention", shot.attention[:, r, g].sum()), ("expert", shot.expert[r, g])):
            (bar,) = [e for e in root.iter() if e.get("id") == f"rows-row-{r}-shard-{g}-{part}"]
            assert titles(bar) == [f"row {r}, shard {g}: {part} {value / unit:.3f}"]
            points = re.findall(r"(-?[\d.]+) (-?[\d.]+)", next(bar.iter(f"{SVG}path")).get("d"))
            ys = [float(y) for _, y in points]
            heights[r, g, part] = (max(ys) - min(ys)) / (value / unit)
    scale = list(heights.values())
    assert max(scale) == pytest.approx(min(scale), rel=1e-3)  # one scale: a bar is as high as its number


def test_cells_say_their_tokens_and_ranks_their_loads(plan):
    shot = plan.snapshot
    texts = titles(drawing(plan, "fill"))
    assert [int(re.search(r": ([\d,]+) of", text)[1].replace(",", "")) for text in texts] == (
        shot.cell_tokens.ravel().tolist()
    )
    texts = titles(drawing(plan, "loads"))
    loads = [int(re.search(r": ([\d,]+) assignments", text)[1].replace(",", "")) for text in texts]
    assert loads == [*shot.loads_identity.ravel().tolist(), *shot.loads_plan.ravel().tolist()]


def test_load_maps_stand_before_above_after_at_the_width_of_a_phone(plan):
    figure = new_figure(4.8, 4.8 * PARTS["loads"].shape(plan))
    draw_load_maps(plan, figure)
    figure.draw_without_rendering()
    before, after = (axis.get_window_extent() for axis in figure.axes)
    assert after.y1 < before.y0
    assert after.width == pytest.approx(before.width)
    assert before.width > 0.75 * figure.bbox.width
    pixels = 358 / (72 * 4.8)  # of a point, where the page is 390 wide
    assert min(text.get_fontsize() for axis in figure.axes for text in axis.texts) * pixels >= 7
    room = before.height / figure.dpi * 72 / len(plan.snapshot.loads_plan)
    assert room >= 7  # points for the number of a layer


def test_the_search_is_drawn_level_by_level(plan):
    root = drawing(plan, "search")
    for name in ("incumbent", "energy", "temperature", "acceptance", "bound"):
        assert [e for e in root.iter() if e.get("id") == f"search-{name}"], name
    energies = [level["energy_mean"] for level in plan.trace]
    assert max(energies) < 2 * min(energies)  # every phase in the unit of the score


class Reader(HTMLParser):
    """Checks nesting, and collects links, identifiers and text."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.links, self.ids, self.text = [], [], [], []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name in ("href", "src", "xlink:href"):
                self.links.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in self.VOID:
            self.open.pop()

    def handle_data(self, data):
        self.text.append(data)


def test_the_page_is_whole_and_fetches_nothing(plan, page):
    reader = Reader()
    reader.feed(page)
    assert not reader.open
    assert len(reader.ids) == len(set(reader.ids))
    assert all(link.startswith(("#", "data:")) for link in reader.links)
    assert {link[1:] for link in reader.links if link.startswith("#")} <= set(reader.ids)
    assert not re.search(r"url\((?!#)|@import|<script", page)
    assert set(PARTS) <= set(reader.ids)


def test_the_page_says_how_sure_the_plan_is(plan, page):
    reader = Reader()
    reader.feed(page)
    text = " ".join(" ".join(reader.text).split())
    assert "A <plan> & more" in text
    assert f"{100 * plan.gap:.2f} %" in text
    assert "certified: fewer rows cannot hold the window" in text
    assert "The routing is a forecast" in text
    assert plan.hash in text
    for row in plan.snapshot.table.values():
        assert f"{row['joint']:,.2f}" in text


RESULTS = Path(__file__).resolve().parents[1] / "benchmarks" / "results" / "evaluation.jsonl"


def test_the_page_of_an_evaluation_says_its_tables():
    results, reader = read_results(RESULTS), Reader()
    reader.feed(results_page(results))
    assert not reader.open
    assert all(link.startswith("data:") for link in reader.links)
    text = " ".join(" ".join(reader.text).split())
    for one in summary(results):
        assert one["scenario"] in text
        assert f"{100 * one['loads']['joint']:+.2f} %" in text
        assert f"{one['simulated_tokens_per_second']['routepack']['tenth']:,.0f}" in text
        assert f"{100 * one['sensitivity']['expert_flops_half']['routepack']:+.2f} %" in text
        assert f"{one['comparisons'][0]['holm']:.2g}" in text
    assert text.count("Simulated") >= 2
    assert "H100" in text


def test_the_figure_of_assumptions_draws_the_gains_of_the_table():
    results = read_results(RESULTS)
    figure = plot_sensitivity(results)
    for axis, one in zip(figure.axes, summary(results), strict=True):
        assert axis.get_title("left").startswith(one["scenario"])
        ends = {}
        for line in axis.get_lines():
            if line.get_marker() in ("<", ">"):
                ends.setdefault(line.get_marker(), []).append(line.get_xdata())  # Baseline, then RoutePack
        for marker, word in (("<", "half"), (">", "double")):
            gains = ends[marker][1] / ends[marker][0] - 1
            wanted = [one["sensitivity"][f"{part}_{word}"]["routepack"] for part in VARIED]
            assert gains == pytest.approx(wanted)
    assert "simulated" in figure.axes[-1].get_xlabel()
    with pytest.raises(InputError, match="results with rows"):
        plot_sensitivity(replace(results, rows=[]))


def test_a_plan_without_a_layout_is_refused(plan):
    empty = replace(plan, layout=None, snapshot=None, score=None, rung="none")
    for draw in (plan_page, plot_plan):
        with pytest.raises(InputError, match="a plan with a layout"):
            draw(empty)


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
@pytest.mark.parametrize("which", ["plan", *PARTS])
def test_single_figures_are_written(plan, tmp_path, which, suffix):
    path = tmp_path / f"figure{suffix}"
    save_plot(plan, path, which)
    magic = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[suffix]
    assert path.read_bytes().startswith(magic)


def test_wrong_names_are_refused(plan, tmp_path):
    with pytest.raises(InputError, match=r"\.png, \.svg, \.pdf"):
        save_plot(plan, tmp_path / "figure.gif")
    with pytest.raises(InputError, match="rows, ranks"):
        save_plot(plan, tmp_path / "figure.png", "row")
    with pytest.raises(InputError, match=r"\.html"):
        write_page("", tmp_path / "report.pdf")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_named_with_its_remedy(plan, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"matplotlib.*routepack_opt\[report\]"):
        save_plot(plan, tmp_path / "plan.png")


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_a_browser_has_nothing_to_complain_of(page, tmp_path):
    path = tmp_path / "report.html"
    write_page(page, path)
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom")
    command = ["chromium", *flags, path.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert "A &lt;plan&gt;" in done.stdout
    assert "CONSOLE" not in done.stderr
