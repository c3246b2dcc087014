"""Items: what a layout moves as one piece.

Guarantees: every sample belongs to exactly one item; items stand in the order of their smallest sample; an
item's squares are the sum of its samples' squares, never the square of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from routepack_opt.arrays import BoolArray, IntArray, frozen
from routepack_opt.errors import InputError
from routepack_opt.problem.rules import LayoutRules

_LONGEST = 2**31  # tokens; the square of a longer length would not fit int64


@dataclass(frozen=True, eq=False)
class Items:
    """The M items of a problem, as plain arrays.

    Attributes
    ----------
    tokens, squares, samples : numpy.ndarray of int64, shape (M,)
        Sum of aligned lengths, sum of their squares, number of samples.
    row_class : numpy.ndarray of int64, shape (M,)
        Class of the item; 0 where the rule is not set.
    alone : numpy.ndarray of bool, shape (M,)
        Whether the item is over the cap and has a cell of its own.
    offsets, members : numpy.ndarray of int64, shapes (M + 1,) and (N,)
        Samples of item m: ``members[offsets[m]:offsets[m + 1]]``, ascending.
    of_sample : numpy.ndarray of int64, shape (N,)
        Item of every sample.
    """

    tokens: IntArray
    squares: IntArray
    samples: IntArray
    row_class: IntArray
    alone: BoolArray
    offsets: IntArray
    members: IntArray
    of_sample: IntArray

    @property
    def size(self) -> int:
        """M."""
        return int(self.tokens.size)

    def samples_of(self, item: int) -> list[int]:
        """Sample ids of one item, ascending."""
        return [int(i) for i in self.members[self.offsets[item] : self.offsets[item + 1]]]

    def sum_by_item(self, per_sample: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Sum a per-sample array (N, ...) over the samples of every item."""
        if self.size == self.members.size:
            return per_sample
        return frozen(np.add.reduceat(per_sample[self.members], self.offsets[:-1], axis=0, dtype=np.int32))


def build_items(aligned: IntArray, cap: int, capacity: int, raw: IntArray, rules: LayoutRules) -> Items:
    """Group samples into items and check each item against the rules that concern it alone.

    Parameters
    ----------
    aligned, raw : numpy.ndarray of int64, shape (N,)
        Aligned and raw lengths.
    cap, capacity : int
        Tokens a cell may hold (after `cell_multiple`), and C itself.
    rules : LayoutRules
        Rules of the problem.

    Raises
    ------
    InputError
        Naming the sample, its lengths and the cap.
    """
    if int(aligned.max()) > _LONGEST:
        i = int(np.argmax(aligned))
        found = f"{aligned[i]} for sample {i} of {raw[i]} tokens"
        raise InputError(f"aligned lengths up to {_LONGEST}", found, "rules.length_multiple")
    of_sample = _group(aligned.size, rules)
    members = np.argsort(of_sample, kind="stable")
    samples = np.bincount(of_sample)
    offsets = np.concatenate([[0], np.cumsum(samples)])
    tokens = np.add.reduceat(aligned[members], offsets[:-1])
    squares = np.add.reduceat((aligned * aligned)[members], offsets[:-1])
    row_class = _classes(of_sample, members, offsets, rules)
    whole = (tokens, squares, samples, row_class)
    tokens, squares, samples, row_class = (frozen(np.ascontiguousarray(a, np.int64)) for a in whole)
    offsets, members, of_sample = (
        frozen(np.ascontiguousarray(a, np.int64)) for a in (offsets, members, of_sample)
    )
    items = Items(tokens, squares, samples, row_class, frozen(tokens > cap), offsets, members, of_sample)
    _check_oversize(items, aligned, raw, cap, capacity, rules)
    limit = rules.max_samples_per_cell
    if limit is not None and int(samples.max()) > limit:
        group = tuple(items.samples_of(int(np.argmax(samples > limit))))
        raise InputError(f"at most max_samples_per_cell={limit} samples", f"{group}", "rules.same_cell")
    return items


def _group(size: int, rules: LayoutRules) -> IntArray:
    """Item of every sample; items are numbered by their smallest sample."""
    leader = np.arange(size)
    for group in rules.same_cell:
        if group[-1] >= size:
            raise InputError(
                f"samples from 0 to {size - 1}", f"sample {group[-1]} in {group}", "rules.same_cell"
            )
        leader[list(group)] = group[0]
    return np.unique(leader, return_inverse=True)[1].astype(np.int64)


def _classes(of_sample: IntArray, members: IntArray, offsets: IntArray, rules: LayoutRules) -> IntArray:
    if rules.row_class is None:
        return np.zeros(offsets.size - 1, np.int64)
    classes = np.asarray(rules.row_class, np.int64)
    if classes.size != of_sample.size:
        found = f"{classes.size} classes for {of_sample.size} samples"
        raise InputError("one class per sample", found, "rules.row_class")
    first = classes[members[offsets[:-1]]]
    mixed = classes != first[of_sample]
    if mixed.any():
        i = int(np.argmax(mixed))
        found = f"sample {i} of class {classes[i]} in an item of class {first[of_sample[i]]}"
        raise InputError("one class within a same_cell tuple", found, "rules.row_class")
    return first


def _check_oversize(
    items: Items, aligned: IntArray, raw: IntArray, cap: int, capacity: int, rules: LayoutRules
) -> None:
    bad = items.alone & (items.samples > 1) if rules.oversize == "alone" else items.alone
    if not bad.any():
        return
    m = int(np.argmax(bad))
    group = items.samples_of(m)
    limit = f"{cap} tokens per cell" + (
        f" (capacity {capacity} rounded down to cell_multiple)" if cap != capacity else ""
    )
    if len(group) > 1:
        found = f"{int(items.tokens[m])} tokens in the same_cell tuple {tuple(group)}"
        raise InputError(f"at most {limit}", found, "rules.same_cell", "Split the tuple or raise capacity")
    i = group[0]
    length = f"{raw[i]} tokens" + (f" ({aligned[i]} aligned)" if raw[i] != aligned[i] else "")
    count = int(bad.sum())
    more = f", the first of {count} such samples" if count > 1 else ""
    remedy = "Raise capacity, drop the sample, or set rules.oversize='alone' to give it a cell of its own"
    raise InputError(f"at most {limit}", f"sample {i} of {length}{more}", "lengths", remedy)
