"""What users of sequence packers ran into, as small windows with the right answer.

Guarantees: every entry is a pure packing problem under the layout rules, and its answer is checked against an
exhaustive search where the window is small enough.
"""

# ruff: noqa: E501  (a table: one case, one line)

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rows:
    """Feasible: the smallest number of rows."""

    rows: int


@dataclass(frozen=True)
class Infeasible:
    """No row count has a layout: the rule that binds, and how many one-token samples more would help."""

    rule: str
    dummies: int


@dataclass(frozen=True)
class Refused:
    """The input cannot be planned at all: a pattern that the error message matches."""

    message: str


@dataclass(frozen=True)
class Report:
    """One report: what went wrong elsewhere, the window, and what is right."""

    name: str
    lengths: tuple[int, ...]
    capacity: int
    dp: int
    answer: Rows | Infeasible | Refused
    rules: dict = field(default_factory=dict)

    @property
    def small(self):
        """Whether exhaustive search is quick."""
        return len(self.lengths) <= 20


def _report(name, lengths, capacity, dp, answer, **rules):
    return Report(name, tuple(lengths), capacity, dp, answer, rules)


REPORTS = [
    # The count is not the sum over the cap: packing into too few cells breaks the cap.
    _report("sevens-in-eights", [7] * 8, 8, 2, Rows(4)),
    _report("sevens-in-eights-one-slot", [7] * 8, 8, 1, Rows(8)),
    _report("just-over-half-of-32k", [30720] * 16, 32768, 4, Rows(4)),
    _report("count-rounded-down", [9] * 5 + [1] * 3, 10, 4, Rows(2)),
    _report("first-fit-count-other-packing", [3, 3, 4, 5, 5], 10, 1, Rows(2)),
    # Slots of different weight: one row count for all of them, found for the whole window.
    _report("heavy-and-light-rank", [8000, 8000, 100, 100], 8192, 2, Rows(1)),
    _report("heavy-rank-outnumbers-light", [8000] * 8 + [100] * 4, 8192, 2, Rows(4)),
    _report("more-rows-than-the-window-fills", [8000] * 8 + [100] * 4, 8192, 2, Infeasible("min_rows", 2), min_rows=7),
    _report("count-forced-by-a-peer", [10, 10, 10], 40, 1, Rows(3), min_rows=3),
    # True lengths, not the padded width.
    _report("padded-width-40960", [9000, 7000, 3000, 9000], 16384, 2, Rows(1)),
    _report("one-long-many-short", [10000] + [100] * 9999, 20000, 1, Rows(51)),
    # Slots are D, not all devices; numbers that D does not divide.
    _report("eight-on-four-slots", [100] * 8, 8192, 4, Rows(1)),
    _report("eight-on-sixteen-slots", [100] * 8, 8192, 16, Infeasible("samples", 8)),
    _report("ten-over-three", [5] * 10, 20, 3, Rows(1)),
    _report("ten-over-three-equally", [5] * 10, 20, 3, Infeasible("equal_samples_per_slot", 2), equal_samples_per_slot=True),
    _report("146-over-four", [1] * 146, 40, 4, Rows(1)),
    _report("206-over-four", [1] * 206, 60, 4, Rows(1)),
    _report("206-over-four-equally", [1] * 206, 60, 4, Infeasible("equal_samples_per_slot", 2), equal_samples_per_slot=True),
    _report("nine-over-four", [1] * 9, 3, 4, Rows(1)),
    _report("fewer-cells-than-slots", [100] * 8, 8192, 4, Rows(1), length_multiple=64),
    _report("three-on-four-slots", [5, 5, 5], 10, 4, Infeasible("samples", 1)),
    _report("trailing-samples-stay", [1] * 10, 4, 2, Rows(2)),
    # Equal counts can cost a row.
    _report("grid-beats-equal-counts", [1, 10, 1, 1], 10, 2, Rows(1)),
    _report("equal-counts-cost-a-row", [1, 10, 1, 1], 10, 2, Rows(2), equal_samples_per_slot=True),
    _report("one-huge-of-eight", [100] + [1] * 7, 104, 2, Rows(1), equal_samples_per_slot=True),
    _report("one-huge-fills-its-cell", [100] + [1] * 7, 100, 2, Rows(2), equal_samples_per_slot=True),
    # Samples over the cap.
    _report("4500-over-4096", [4500], 4096, 1, Refused(r"at most 4096 tokens per cell, found sample 0 of 4500 tokens")),
    _report("4500-alone", [4500], 4096, 1, Rows(1), oversize="alone"),
    _report("21-over-twice-ten", [21], 20, 1, Refused(r"at most 20 tokens per cell, found sample 0 of 21 tokens")),
    _report("20000-under-context-parallelism", [20000, 20000], 16384, 1, Refused(r"sample 0 of 20000 tokens, the first of 2")),
    _report("never-truncated", [4, 2, 3, 1], 3, 1, Refused(r"at most 3 tokens per cell, found sample 0 of 4 tokens")),
    _report("never-truncated-alone", [4, 2, 3, 1], 3, 1, Rows(3), oversize="alone"),
    _report("aligned-over-the-bin", [9], 10, 1, Refused(r"sample 0 of 9 tokens \(12 aligned\)"), length_multiple=4),
    _report("nothing", [], 10, 1, Refused("an empty window")),
    # Alignment counts against the cap.
    _report("251-twice", [251, 251], 502, 1, Rows(1)),
    _report("251-twice-aligned", [251, 251], 502, 1, Rows(2), length_multiple=2),
    _report("cell-padded-to-four", [5, 5], 10, 1, Rows(2), cell_multiple=4),
    # Pipeline multiples.
    _report("six-samples-need-eight", [5] * 6, 10, 2, Infeasible("row_multiple", 2), row_multiple=4),
    _report("three-samples-need-four", [9] * 3, 10, 2, Infeasible("capacity", 1)),
    _report("pipeline-depth", [6, 6, 6, 3, 3, 3], 10, 1, Rows(4), min_rows=4),
    _report("pipeline-divisor", [6, 6, 6, 3, 3, 3], 10, 1, Rows(4), row_multiple=4),
    _report("no-pipeline", [6, 6, 6, 3, 3, 3], 10, 1, Rows(3)),
    # First fit in order of arrival, and first fit decreasing, waste cells.
    _report("arrival-order-two-slots", [1, 5, 6, 5], 10, 2, Rows(1)),
    _report("arrival-order-one-slot", [4, 2, 5, 7], 10, 1, Rows(2)),
    _report("decreasing-order", [2, 2, 3, 2, 5, 6], 10, 2, Rows(1)),
    _report("left-overs-in-the-emptiest-bin", [8, 2, 4, 2, 4, 2, 3, 5], 10, 1, Rows(3)),
    _report("equal-lengths", [5] * 17, 10, 2, Rows(5)),
    _report("long-lengths", [131072, 40000, 100], 131072, 1, Rows(2)),
    # Limits and groups.
    _report("static-sequence-count", [1] * 20, 100, 1, Rows(2), max_samples_per_cell=16),
    _report("pairs-fewer-than-slots", [1] * 4, 10, 4, Infeasible("same_cell", 2), same_cell=((0, 1), (2, 3))),
    _report("pairs-kept", [3, 3, 4, 4, 3, 3], 10, 1, Rows(3), same_cell=((0, 2), (1, 3), (4, 5))),
    _report("text-and-image", [5, 5, 5, 5], 10, 2, Rows(2), row_class=(0, 1, 0, 1)),
    _report("one-image", [5, 5, 5, 5], 10, 2, Infeasible("row_class", 1), row_class=(0, 0, 0, 1)),
    _report("largest-row-first", [2, 9, 3, 8], 10, 1, Rows(3), row_order="largest_first"),
]  # fmt: skip
