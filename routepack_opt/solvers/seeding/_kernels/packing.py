"""Which items share a cell: first fit, least loaded, and the two random operators of Algorithm 2.

Every kernel starts from an empty fill and leaves -1 in ``fill.cell`` where an item found no cell.
"""

from typing import Any

from routepack_opt.solvers.seeding._kernels.rectangle import below, fits, kernel, put


@kernel
def first_fit(rect: Any, fill: Any, order: Any) -> None:
    """Pack items in `order`, each into the lowest cell that takes it."""
    for item in order:
        for cell in range(fill.size.size):
            if fits(rect, fill, item, cell):
                put(rect, fill, item, cell, 1)
                break


@kernel
def open_empty_cells(rect: Any, fill: Any, order: Any) -> bool:
    """Open every empty cell with the last item of the fullest cell that has two or more."""
    for target in range(fill.size.size):
        if fill.size[target] > 0:
            continue
        donor = -1
        for cell in range(fill.size.size):
            same_class = rect.class_of_cell[cell] == rect.class_of_cell[target]
            # Slots that hold exactly their quota can only lend to themselves.
            same_slot = not rect.equal_slots or cell % rect.slots == target % rect.slots
            fuller = donor < 0 or fill.tokens[cell] > fill.tokens[donor]
            if fill.size[cell] >= 2 and same_class and same_slot and fuller:
                donor = cell
        if donor < 0:
            return False
        for k in range(order.size - 1, -1, -1):
            if fill.cell[order[k]] == donor:
                put(rect, fill, order[k], donor, -1)
                put(rect, fill, order[k], target, 1)
                break
    return True


@kernel
def least_loaded(rect: Any, fill: Any, order: Any) -> None:
    """Pack items in `order`, each into the cell of fewest tokens that takes it."""
    for item in order:
        best = -1
        for cell in range(fill.size.size):
            if (best < 0 or fill.tokens[cell] < fill.tokens[best]) and fits(rect, fill, item, cell):
                best = cell
        if best >= 0:
            put(rect, fill, item, best, 1)


@kernel
def window_shuffle(remaining: Any, window: int, words: Any) -> None:
    """Perturb an order in place: again and again, one of the first `window` remaining items is next."""
    for k in range(remaining.size):
        chosen = k + below(words[k], min(window, remaining.size - k))
        item = remaining[chosen]
        for back in range(chosen, k, -1):  # the others keep their order
            remaining[back] = remaining[back - 1]
        remaining[k] = item


@kernel
def randomized_best_fit(rect: Any, fill: Any, order: Any, ranked: Any, words: Any) -> None:
    """Build cells by lines 5-8 of Algorithm 2; `ranked` is room for w cells."""
    for k in range(order.size):
        cell = empty_cell(rect, fill, order[k])
        if cell < 0:
            cell = draw_best_fit(rect, fill, order[k], ranked, words[k])
        if cell < 0:
            break
        put(rect, fill, order[k], cell, 1)


@kernel
def empty_cell(rect: Any, fill: Any, item: int) -> int:
    """Return the lowest empty cell that takes `item`, or -1: the first items open the cells."""
    for cell in range(fill.size.size):
        if fill.size[cell] == 0 and fits(rect, fill, item, cell):
            return cell
    return -1


@kernel
def draw_best_fit(rect: Any, fill: Any, item: int, ranked: Any, word: Any) -> int:
    """Rank the cells that take `item` by (-tokens, size, index) and draw one of the first w; -1 if none."""
    window, count = ranked.size, 0
    for cell in range(fill.size.size):
        if not fits(rect, fill, item, cell):
            continue
        place = count
        while place > 0 and _fuller(fill, cell, ranked[place - 1]):
            place -= 1
        if place == window:
            continue
        count = min(count + 1, window)
        for back in range(count - 1, place, -1):
            ranked[back] = ranked[back - 1]
        ranked[place] = cell
    return ranked[below(word, count)] if count else -1


@kernel
def _fuller(fill: Any, cell: int, other: int) -> bool:
    if fill.tokens[cell] != fill.tokens[other]:
        return bool(fill.tokens[cell] > fill.tokens[other])
    return bool(fill.size[cell] < fill.size[other])  # cells come in index order: ties keep it
