"""An independent check of layouts: which rules cells break.

Guarantees: it shares no code with the product and imports none of it; it looks at plain lists and numbers
only, and reports every broken rule, not just the first.
"""

from collections import Counter


def broken_rules(
    cells,
    lengths,
    *,
    dp,
    capacity,
    length_multiple=1,
    cell_multiple=1,
    min_rows=1,
    row_multiple=1,
    equal_samples_per_slot=False,
    max_samples_per_cell=None,
    same_cell=(),
    row_class=None,
    oversize="reject",
    row_order="none",
    pad_routing="none",
):
    """Name the rules that ``cells[r][d]`` break, in alphabetical order; an empty list means valid.

    Parameters
    ----------
    cells : nested sequence of int
        Sample ids of every cell.
    lengths : sequence of int
        Raw lengths of the window.
    dp, capacity : int
        D and C; the other arguments are the layout rules, by their names.

    Returns
    -------
    list of str
        Out of ``rectangle``, ``samples``, ``empty``, ``capacity``, ``oversize`` and the rules' names.
    """
    del pad_routing  # it changes the score, never which layouts are valid
    if not cells or any(len(row) != dp for row in cells):
        return ["rectangle"]
    flat = [cell for row in cells for cell in row]
    held = Counter(i for cell in flat for i in cell)
    if sorted(held.elements()) != list(range(len(lengths))):
        return ["samples"]
    tokens = [-(-n // length_multiple) * length_multiple for n in lengths]
    cap = capacity // cell_multiple * cell_multiple
    broken = set()
    for cell in flat:
        if not cell:
            broken.add("empty")
        if max_samples_per_cell is not None and len(cell) > max_samples_per_cell:
            broken.add("max_samples_per_cell")
        if sum(tokens[i] for i in cell) > cap:
            long = [i for i in cell if tokens[i] > cap]
            if oversize == "alone" and long:
                if len(cell) > 1:
                    broken.add("oversize")
            else:
                broken.add("capacity")
    if len(cells) < min_rows:
        broken.add("min_rows")
    if len(cells) % row_multiple:
        broken.add("row_multiple")
    if equal_samples_per_slot and len({sum(len(row[d]) for row in cells) for d in range(dp)}) > 1:
        broken.add("equal_samples_per_slot")
    for group in same_cell:
        if not any(set(group) <= set(cell) for cell in flat):
            broken.add("same_cell")
    if row_class is not None:
        for row in cells:
            if len({row_class[i] for cell in row for i in cell}) > 1:
                broken.add("row_class")
    if row_order == "largest_first":
        fullest = [max(sum(tokens[i] for i in cell) for cell in row) for row in cells]
        if fullest != sorted(fullest, reverse=True):
            broken.add("row_order")
    return sorted(broken)


def plain_rules(rules):
    """Rules as keyword arguments of :func:`broken_rules`, from an object with one attribute per rule."""
    names = (
        "length_multiple", "cell_multiple", "min_rows", "row_multiple", "equal_samples_per_slot",
        "max_samples_per_cell", "same_cell", "row_class", "oversize", "row_order",
    )  # fmt: skip
    return {name: getattr(rules, name) for name in names}


def broken_by(problem, cells):
    """:func:`broken_rules` with the lengths, topology and rules of a problem object."""
    return broken_rules(
        cells,
        problem.window.lengths.tolist(),
        dp=problem.topology.dp,
        capacity=problem.capacity,
        **plain_rules(problem.rules),
    )
