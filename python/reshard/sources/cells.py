"""How tensors are cut into boxes that are read at once."""

import itertools
import math
from collections.abc import Iterator, Sequence

__all__ = ["boxes_of", "cell_of"]

_WANTED = 4 << 20  # bytes
_MOST = 64 << 20


def cell_of(shape: Sequence[int], chunk: Sequence[int] | None, itemsize: int) -> list[int]:
    """The shape of the boxes: whole cells of the grid, joined from the last dimension on to some MiB; a cell of more
    than 64 MiB is cut, from the first dimension on.

        cell_of([4096, 4096], None, 4) == [256, 4096]
        cell_of([4096, 4096], [512, 1], 4) == [512, 2048]
    """
    cell = [min(c, s) or 1 for c, s in zip(chunk or [1] * len(shape), shape)]
    size = itemsize * math.prod(cell)
    for d in reversed(range(len(shape))):
        times = min(max(_WANTED // size, 1), math.ceil(shape[d] / cell[d]) or 1)
        cell[d], size = min(cell[d] * times, max(shape[d], 1)), size * times
    size = itemsize * math.prod(cell)
    for d in range(len(shape)):
        if size <= _MOST:
            break
        rows = max(cell[d] * _WANTED // size, 1)
        size, cell[d] = size // cell[d] * rows, rows
    return cell


def boxes_of(shape: Sequence[int], cell: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(offset, shape) of all boxes, row by row; none of a tensor without elements."""
    for offset in itertools.product(*(range(0, s, c) for s, c in zip(shape, cell))):
        yield offset, tuple(min(c, s - o) for s, c, o in zip(shape, cell, offset))
