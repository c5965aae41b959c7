"""Views of memory, as PyTorch has them (offset, sizes, strides), and what they are of the array that lies there.

The array is dense and row-major. A dimension of a view is a loop over the array with a step; of each dimension of the
array a view has loops within loops.

    array 6 x 4, view of offset 4, sizes [2, 4], strides [8, 1]:
        dimension 0: begins at 1, one loop of 2 with step 2;  dimension 1: one loop of 4 with step 1
    as an expression: rows 1 to 4 as [2, 2, 4], index 0 of the middle dimension
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from .expressions import Expression, Fill, Shape, concatenate, narrow, permute, repeated, reshape, resized, window

# Into more parts than this no write is cut: what is beyond it is not boxes of a tensor.
_MOST_PARTS = 1 << 12


class View(NamedTuple):
    """Elements of an array."""

    offset: int
    sizes: Shape
    strides: Shape


class _Loop(NamedTuple):
    count: int
    step: int  # in its dimension of the array
    axis: int  # of the view


class _Placed(NamedTuple):
    start: list[int]  # for each dimension of the array, where the view begins
    loops: list[list[_Loop]]  # for each dimension of the array, the outer ones first; one inside does not reach the next


def dense_shape(view: View, elements: int) -> Shape:
    """The shape of an array of so many elements of whose dimensions such a view is parts: (elements,) if there is none."""
    loops = [(size, stride) for size, stride in zip(view.sizes, view.strides) if size > 1 and stride > 0]
    loops.sort(key=lambda loop: -loop[1])
    steps: list[int] = []
    reach = 0
    for size, stride in reversed(loops):
        if stride != reach:  # else it continues the loop within it, and is one with that
            steps.append(stride)
        reach = size * stride
    shape: list[int] = []
    room = elements
    for step in reversed(steps):
        if room % step:
            return (elements,)
        shape.append(room // step)
        room = step
    return (*shape, room)


def array_strides(shape: Sequence[int]) -> list[int]:
    strides = [1] * len(shape)
    for dim in reversed(range(len(shape) - 1)):
        strides[dim] = strides[dim + 1] * shape[dim + 1]
    return strides


def read(array: Expression, view: View) -> Expression | None:
    """The elements of a view, in its shape. None: no recipe says them."""
    if math.prod(view.sizes) == 0:
        return Fill(view.sizes, array.dtype)
    if 0 in view.strides:
        return _expanded(array, view)
    if _is_run(view):
        run = window(reshape(array, [math.prod(array.shape)]), [view.offset], [math.prod(view.sizes)])
        return reshape(run, view.sizes)
    placed = _place(array.shape, view)
    if placed is None:
        array = reshape(array, dense_shape(view, math.prod(array.shape)))
        placed = _place(array.shape, view)
    if placed is None:
        return None
    taken = array
    factors: list[int] = []  # of the dimensions of the array, cut into loops
    begins: list[int] = []
    sizes: list[int] = []
    order: list[tuple[int, int, int]] = []  # of each factor that is a loop: axis, - step, place
    strides = array_strides(array.shape)
    for dim, loops in enumerate(placed.loops):
        start, size = placed.start[dim], array.shape[dim]
        if not loops:
            taken = narrow(taken, dim, start, 1)
            factors, begins, sizes = [*factors, 1], [*begins, 0], [*sizes, 1]
            continue
        length = loops[0].count * loops[0].step
        rest = start + length - size  # by which the last round reaches over the end
        if rest > 0 and (start < rest or not _fits(loops, rest)):
            padding = Fill(resized(taken.shape, dim, rest), array.dtype)
            taken, rest = concatenate([taken, padding], dim), 0
        rest = max(rest, 0)
        taken = narrow(taken, dim, start - rest, length)
        steps = [loop.step for loop in loops] + [1]
        for place, loop in enumerate(loops):
            factors.append(loop.count if place == 0 else steps[place - 1] // loop.step)
            begins.append(0 if place == 0 else rest // loop.step)
            sizes.append(loop.count)
            order.append((loop.axis, -loop.step * strides[dim], len(factors) - 1))
            rest %= loop.step
        if steps[-2] > 1:
            factors, begins, sizes = [*factors, steps[-2]], [*begins, rest], [*sizes, 1]
    taken = window(reshape(taken, factors), begins, sizes)
    places = [place for _, _, place in sorted(order)]
    others = [place for place in range(len(factors)) if place not in places]
    return reshape(permute(taken, others + places), view.sizes)


def write(shape: Shape, view: View, value: Expression) -> list[tuple[Shape, Expression]] | None:
    """The boxes of the array that a value of the view's shape fills: where each begins, and what it is. None: the view
    has an element twice, or these are too many boxes."""
    if math.prod(view.sizes) == 0:
        return []
    placed = None if 0 in view.strides else _place(shape, view)
    if placed is None:
        return None
    strides = array_strides(shape)
    in_axes = sorted(
        ((loop.axis, -loop.step * strides[dim]), dim, loop) for dim, loops in enumerate(placed.loops) for loop in loops
    )
    value = reshape(value, [loop.count for _, _, loop in in_axes])
    places = sorted(range(len(in_axes)), key=lambda place: (in_axes[place][1], -in_axes[place][2].step))
    value = permute(value, places)
    boxes: list[tuple[Shape, Expression]] = []
    todo = [(placed.start, placed.loops, value)]
    while todo:
        start, loops, value = todo.pop()
        split = next((dim for dim, of_dim in enumerate(loops) if not _is_interval(of_dim)), None)
        if split is None:
            sizes = [math.prod(loop.count for loop in of_dim) for of_dim in loops]
            boxes.append((tuple(start), reshape(value, sizes)))
            continue
        outer = loops[split][0]
        if len(boxes) + len(todo) + outer.count > _MOST_PARTS:
            return None
        rest = [of_dim[1:] if dim == split else of_dim for dim, of_dim in enumerate(loops)]
        at = sum(map(len, loops[:split]))
        for i in range(outer.count):
            moved = [*start]
            moved[split] += i * outer.step
            one = narrow(value, at, i, 1)
            todo.append((moved, rest, reshape(one, one.shape[:at] + one.shape[at + 1 :])))
    return boxes


def _is_run(view: View) -> bool:
    """Whether the elements lie one behind the other, in order."""
    wanted = array_strides(view.sizes)
    return all(size == 1 or stride == want for size, stride, want in zip(view.sizes, view.strides, wanted))


def _expanded(array: Expression, view: View) -> Expression | None:
    once = View(view.offset, tuple(1 if s == 0 else n for n, s in zip(view.sizes, view.strides)), tuple(s or 1 for s in view.strides))
    expression = read(array, once)
    for dim, (size, one) in enumerate(zip(view.sizes, once.sizes)):
        if expression is None or size == one:
            continue
        if size > _MOST_PARTS:
            return None
        expression = repeated(expression, dim, size)
    return expression


def _is_interval(loops: list[_Loop]) -> bool:
    if not loops:
        return True
    steps = [loop.count * loop.step for loop in loops[1:]] + [1]
    return all(loop.step == step for loop, step in zip(loops, steps))


def _fits(loops: list[_Loop], rest: int) -> bool:
    """Whether every loop but the first one, begun so much later, stays within one round of the loop around it."""
    for outer, inner in zip(loops, loops[1:]):
        if rest % outer.step // inner.step + inner.count > outer.step // inner.step:
            return False
    return rest < loops[0].step


def _place(shape: Shape, view: View) -> _Placed | None:
    strides = array_strides(shape)
    start = [view.offset // stride % size for stride, size in zip(strides, shape)]
    loops: list[list[_Loop]] = [[] for _ in shape]
    for axis, (size, stride) in enumerate(zip(view.sizes, view.strides)):
        if size > 1 and not _add_loop(shape, strides, start, loops, axis, size, stride):
            return None
    for dim, of_dim in enumerate(loops):
        of_dim.sort(key=lambda loop: -loop.step)
        reach = start[dim]
        for place, loop in enumerate(of_dim):
            inside = sum((inner.count - 1) * inner.step for inner in of_dim[place + 1 :])
            if inside >= loop.step or any(loop.step % inner.step for inner in of_dim[place + 1 :]):
                return None
            reach += (loop.count - 1) * loop.step
        if reach >= shape[dim]:
            return None
    return _Placed(start, loops)


def _add_loop(
    shape: Shape, strides: list[int], start: list[int], loops: list[list[_Loop]], axis: int, count: int, stride: int
) -> bool:
    """A loop over an array may run over several of its dimensions: it is one in each."""
    fitting = [dim for dim, of_dim in enumerate(strides) if shape[dim] > 1 and stride % of_dim == 0 and stride >= of_dim]
    if not fitting:
        return False
    dim = max(fitting, key=lambda d: strides[d])
    step = stride // strides[dim]
    room = -(-(shape[dim] - start[dim]) // step)
    if count <= room:
        loops[dim].append(_Loop(count, step, axis))
        return True
    if start[dim] >= step or shape[dim] % step or count % room:
        return False
    if room > 1:
        loops[dim].append(_Loop(room, step, axis))
    return _add_loop(shape, strides, start, loops, axis, count // room, stride * room)
