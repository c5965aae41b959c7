"""An array that is filled box by box: which box is what, in the end as one expression.

The tiles never overlap and always cover the array, whatever is put: so every element is one thing.
"""

from collections.abc import Sequence

import numpy

from .expressions import Expression, concatenate, window


class Tiles:
    def __init__(self, whole: Expression):
        self._shape = whole.shape
        self._begins = numpy.zeros((4, len(whole.shape)), numpy.int64)
        self._ends = numpy.zeros((4, len(whole.shape)), numpy.int64)
        self._expressions: list[Expression] = []
        self._whole: Expression | None = whole
        self._add((0,) * len(whole.shape), whole)

    def put(self, begin: Sequence[int], value: Expression) -> list[Expression]:
        """The box at `begin` of the value's shape becomes the value. Returns what it was, in parts."""
        if 0 in value.shape:
            return []
        low = numpy.array(begin, numpy.int64)
        high = low + numpy.array(value.shape, numpy.int64)
        count = len(self._expressions)
        met = ((self._begins[:count] < high) & (self._ends[:count] > low)).all(axis=1).nonzero()[0]
        were = []
        for place in sorted(met.tolist(), reverse=True):
            were.append(self._cut(place, low.tolist(), high.tolist()))
        self._add(begin, value)
        self._whole = None
        return were

    def whole(self) -> Expression:
        if self._whole is None:
            boxes = list(zip(self._begins.tolist(), self._ends.tolist(), self._expressions))
            self._whole = _joined(boxes, [0] * len(self._shape), list(self._shape))
        return self._whole

    def _add(self, begin: Sequence[int], value: Expression) -> None:
        place = len(self._expressions)
        if place == len(self._begins):
            self._begins, self._ends = (numpy.concatenate([old, old]) for old in (self._begins, self._ends))
        self._begins[place] = begin
        self._ends[place] = self._begins[place] + numpy.array(value.shape, numpy.int64)
        self._expressions.append(value)

    def _cut(self, place: int, low: list[int], high: list[int]) -> Expression:
        """Takes what is between `low` and `high` out of a tile, and returns it."""
        begin, end = self._begins[place].tolist(), self._ends[place].tolist()
        tile, at = self._expressions[place], list(begin)
        last = len(self._expressions) - 1
        for of in (self._begins, self._ends, self._expressions):
            of[place] = of[last]  # type: ignore[index]
        self._expressions.pop()
        for dim, (from_, to) in enumerate(zip(low, high)):
            for cut_begin, cut_end in ((begin[dim], min(from_, end[dim])), (max(to, begin[dim]), end[dim])):
                if cut_begin < cut_end:
                    self._add(*_part(tile, at, begin, end, dim, cut_begin, cut_end))
            begin[dim], end[dim] = max(begin[dim], from_), min(end[dim], to)
        return window(tile, [b - a for a, b in zip(at, begin)], [b - a for a, b in zip(begin, end)])


def _part(
    tile: Expression, at: list[int], begin: list[int], end: list[int], dim: int, low: int, high: int
) -> tuple[list[int], Expression]:
    """Of the box [begin, end) of a tile at `at` what has indices [low, high) of a dimension."""
    begin, end = begin.copy(), end.copy()
    begin[dim], end[dim] = low, high
    return begin, window(tile, [b - a for a, b in zip(at, begin)], [b - a for a, b in zip(begin, end)])


_Box = tuple[list[int], list[int], Expression]


def _joined(boxes: list[_Box], low: list[int], high: list[int]) -> Expression:
    """The array [low, high), which the boxes cover: cut where no box is cut, as often as that goes."""
    if len(boxes) == 1:
        return boxes[0][2]
    for dim in range(len(low)):
        boxes.sort(key=lambda box: box[0][dim])
        parts: list[list[_Box]] = []
        reach = low[dim]
        for box in boxes:
            if not parts or box[0][dim] >= reach:
                parts.append([])
            parts[-1].append(box)
            reach = max(reach, box[1][dim])
        if len(parts) > 1:
            return concatenate([_joined_between(part, dim, low, high) for part in parts], dim)
    # They stand around each other: one is cut in two, and with it all that are beside it.
    dim, edge = next(
        (dim, edge) for dim in range(len(low)) for box in boxes for edge in (box[0][dim], box[1][dim]) if low[dim] < edge < high[dim]
    )
    halves: list[Expression] = []
    for from_, to in ((low[dim], edge), (edge, high[dim])):
        part = []
        for begin, end, tile in boxes:
            if begin[dim] < to and end[dim] > from_:
                at, cut = _part(tile, begin, begin, end, dim, max(begin[dim], from_), min(end[dim], to))
                part.append((at, [a + size for a, size in zip(at, cut.shape)], cut))
        halves.append(_joined_between(part, dim, low, high))
    return concatenate(halves, dim)


def _joined_between(part: list[_Box], dim: int, low: list[int], high: list[int]) -> Expression:
    low, high = low.copy(), high.copy()
    low[dim], high[dim] = min(box[0][dim] for box in part), max(box[1][dim] for box in part)
    return _joined(part, low, high)

