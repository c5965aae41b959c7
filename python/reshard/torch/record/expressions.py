"""What a tensor is made of: the operations of recipes (docs/recipes.md), with shapes and dtypes known.

The functions below build expressions and keep them small: a window reaches through everything down to the sources, and
what lies side by side in one source is one window again. So a parameter that a loader fills slice by slice ends as the
few operations that it takes.

    q, k = Source("q", (8, 4), f32), Source("k", (2, 4), f32)
    whole = concatenate([q, k], 0)                # 10 x 4
    window(whole, (6, 0), (3, 4))                 # concatenate([q[6:8], k[0:1]])
    concatenate([window(q, (0, 0), (3, 4)), window(q, (3, 0), (5, 4))], 0)   # q
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Expression:
    shape: Shape
    dtype: torch.dtype

    @property
    def inputs(self) -> tuple["Expression", ...]:
        return ()


@dataclass(frozen=True)
class Source(Expression):
    """A tensor of the source, whole."""

    name: str = ""


@dataclass(frozen=True)
class Fill(Expression):
    """One value everywhere."""

    value: float | int | bool = 0


@dataclass(frozen=True)
class Before(Expression):
    """What was in this memory before the loader ran; `name` is the parameter's, or says what memory it is."""

    name: str = ""


@dataclass(frozen=True)
class Unknown(Expression):
    """What an operation makes that does more than move elements."""

    operation: str = ""
    where: str = ""  # "file.py:12"
    reads: frozenset[str] = frozenset()  # the sources that it is made of


@dataclass(frozen=True)
class _OfOne(Expression):
    input: Expression = None  # type: ignore[assignment]

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return (self.input,)


@dataclass(frozen=True)
class Window(_OfOne):
    """Index i of dimension d is index begin[d] + i of the input."""

    begin: Shape = ()


@dataclass(frozen=True)
class Permute(_OfOne):
    """Dimension d is dimension dims[d] of the input."""

    dims: Shape = ()


@dataclass(frozen=True)
class Reshape(_OfOne):
    """The elements in row-major order."""


@dataclass(frozen=True)
class Cast(_OfOne):
    """The elements as another dtype."""


@dataclass(frozen=True)
class Bits(_OfOne):
    """The bytes of each element as an element of another dtype of that size."""


@dataclass(frozen=True)
class Concatenate(Expression):
    """Of two inputs or more, none of them empty."""

    parts: tuple[Expression, ...] = ()
    dim: int = 0

    @property
    def inputs(self) -> tuple[Expression, ...]:
        return self.parts


_PLACELESS = (Fill, Before, Unknown)  # of which every part is alike, whatever its shape


def nodes(expression: Expression) -> Iterator[Expression]:
    """It, and all that it is made of."""
    stack = [expression]
    while stack:
        one = stack.pop()
        stack.extend(reversed(one.inputs))
        yield one


def leaves(expression: Expression) -> Iterator[Expression]:
    """Those that have no inputs, in order."""
    return (one for one in nodes(expression) if not one.inputs)


def sources_of(expression: Expression) -> frozenset[str]:
    """The names of all that it is made of, by way of unknown operations too."""
    found: set[str] = set()
    for leaf in leaves(expression):
        if isinstance(leaf, Source):
            found.add(leaf.name)
        elif isinstance(leaf, Unknown):
            found |= leaf.reads
    return frozenset(found)


def window(of: Expression, begin: Sequence[int], sizes: Sequence[int]) -> Expression:
    """Requires that it lies within."""
    begin, sizes = tuple(begin), tuple(sizes)
    if sizes == of.shape:
        return of
    if 0 in sizes:
        return Fill(sizes, of.dtype)
    if isinstance(of, _PLACELESS):
        return replace(of, shape=sizes)
    if isinstance(of, Window):
        return window(of.input, [a + b for a, b in zip(of.begin, begin)], sizes)
    if isinstance(of, Concatenate):
        parts, at = [], 0
        for part in of.parts:
            low = max(begin[of.dim] - at, 0)
            high = min(begin[of.dim] + sizes[of.dim] - at, part.shape[of.dim])
            at += part.shape[of.dim]
            if low < high:
                parts.append(window(part, resized(begin, of.dim, low), resized(sizes, of.dim, high - low)))
        return concatenate(parts, of.dim)
    if isinstance(of, (Cast, Bits)):
        return replace(of, shape=sizes, input=window(of.input, begin, sizes))
    if isinstance(of, Permute):
        inner_begin, inner_sizes = list(begin), list(sizes)
        for dim, inner in enumerate(of.dims):
            inner_begin[inner], inner_sizes[inner] = begin[dim], sizes[dim]
        return permute(window(of.input, inner_begin, inner_sizes), of.dims)
    if isinstance(of, Reshape):
        inner = _within_reshape(of, begin, sizes)
        if inner is not None:
            return reshape(window(of.input, *inner), sizes)
    return Window(sizes, of.dtype, of, begin)


def narrow(of: Expression, dim: int, begin: int, size: int) -> Expression:
    """A window of one dimension."""
    begins = [0] * len(of.shape)
    begins[dim] = begin
    return window(of, begins, resized(of.shape, dim, size))


def reshape(of: Expression, shape: Sequence[int]) -> Expression:
    """Requires as many elements."""
    shape = tuple(shape)
    if shape == of.shape:
        return of
    if isinstance(of, _PLACELESS):
        return replace(of, shape=shape)
    if isinstance(of, Reshape):
        return reshape(of.input, shape)
    if isinstance(of, (Cast, Bits)):
        return replace(of, shape=shape, input=reshape(of.input, shape))
    return Reshape(shape, of.dtype, of)


def permute(of: Expression, dims: Sequence[int]) -> Expression:
    dims = tuple(dims)
    shape = tuple(of.shape[dim] for dim in dims)
    moved = [dim for dim in dims if of.shape[dim] != 1]
    if moved == sorted(moved):
        return reshape(of, shape)  # nothing but dimensions of one element changes places
    if isinstance(of, Permute):
        return permute(of.input, [of.dims[dim] for dim in dims])
    if isinstance(of, (Cast, Bits)):
        return replace(of, shape=shape, input=permute(of.input, dims))
    if isinstance(of, _PLACELESS):
        return replace(of, shape=shape)
    return Permute(shape, of.dtype, of, dims)


def concatenate(parts: Sequence[Expression], dim: int) -> Expression:
    """Requires one part at least; they differ in this dimension alone."""
    flat: list[Expression] = []
    for part in parts:
        flat += part.parts if isinstance(part, Concatenate) and part.dim == dim else [part]
    joined: list[Expression] = []
    for part in flat:
        if part.shape[dim] == 0 and (len(flat) > 1):
            continue
        side_by_side = _side_by_side(joined[-1], part, dim) if joined else None
        if side_by_side is None:
            joined.append(part)
        else:
            joined[-1] = side_by_side
    if not joined:
        return flat[0]
    first = joined[0]
    if len(joined) == 1:
        return first
    if all(type(part) is type(first) for part in joined[1:]):
        if isinstance(first, (Cast, Bits)) and len({part.input.dtype for part in joined}) == 1:  # type: ignore[attr-defined]
            inner = concatenate([part.input for part in joined], dim)  # type: ignore[attr-defined]
            return replace(first, shape=inner.shape, input=inner)
        if isinstance(first, Permute) and all(part.dims == first.dims for part in joined):  # type: ignore[attr-defined]
            return permute(concatenate([part.input for part in joined], first.dims[dim]), first.dims)  # type: ignore[attr-defined]
    size = sum(part.shape[dim] for part in joined)
    return Concatenate(resized(first.shape, dim, size), first.dtype, tuple(joined), dim)


def stack(parts: Sequence[Expression], dim: int) -> Expression:
    """Of one shape, along a new dimension."""
    return concatenate([reshape(part, part.shape[:dim] + (1,) + part.shape[dim:]) for part in parts], dim)


def cast(of: Expression, dtype: torch.dtype, where: str = "") -> Expression:
    """Where recipes have no such cast, it is unknown what comes out."""
    if of.dtype == dtype:
        return of
    if isinstance(of, Fill):
        return replace(of, dtype=dtype)
    if isinstance(of, (Before, Unknown)):
        return replace(of, dtype=dtype)
    if isinstance(of, Concatenate):
        return concatenate([cast(part, dtype, where) for part in of.parts], of.dim)
    if of.dtype.is_complex or dtype.is_complex or (of.dtype.is_floating_point and not dtype.is_floating_point):
        return Unknown(of.shape, dtype, f"a cast from {of.dtype} to {dtype}", where, sources_of(of))
    return Cast(of.shape, dtype, of)


def bits(of: Expression, dtype: torch.dtype) -> Expression:
    """Requires elements of one size."""
    if of.dtype == dtype:
        return of
    if isinstance(of, Bits):
        return bits(of.input, dtype)
    if isinstance(of, (Before, Unknown)) or (isinstance(of, Fill) and not of.value and math.copysign(1, of.value) > 0):
        return replace(of, dtype=dtype)
    if isinstance(of, Concatenate):
        return concatenate([bits(part, dtype) for part in of.parts], of.dim)
    return Bits(of.shape, dtype, of)


def repeated(of: Expression, dim: int, count: int) -> Expression:
    """So many times, one after the other."""
    if isinstance(of, _PLACELESS):
        return replace(of, shape=resized(of.shape, dim, of.shape[dim] * count))
    return concatenate([of] * count, dim)


def resized(shape: Shape, dim: int, size: int) -> Shape:
    """With another size of one dimension."""
    return shape[:dim] + (size,) + shape[dim + 1 :]


def _side_by_side(left: Expression, right: Expression, dim: int) -> Expression | None:
    """Both as one, where they are neighbors in what they are taken from."""
    size = left.shape[dim] + right.shape[dim]
    if isinstance(left, _PLACELESS) and type(left) is type(right):
        whole = replace(left, shape=resized(left.shape, dim, size))
        return whole if replace(right, shape=whole.shape) == whole and _same_zero(left, right) else None
    if isinstance(left, (Cast, Bits)) and type(left) is type(right) and left.input.dtype == right.input.dtype:  # type: ignore[attr-defined]
        inner = _side_by_side(left.input, right.input, dim)  # type: ignore[attr-defined]
        return None if inner is None else replace(left, shape=inner.shape, input=inner)
    if isinstance(left, Reshape) and isinstance(right, Reshape):
        return _reshaped_side_by_side(left, right, dim)
    if isinstance(left, Permute) and isinstance(right, Permute) and left.dims == right.dims:
        inner = _side_by_side(left.input, right.input, left.dims[dim])
        return None if inner is None else permute(inner, left.dims)
    if not isinstance(left, Window) or not isinstance(right, Window) or left.input != right.input:
        return None
    if resized(left.shape, dim, 0) != resized(right.shape, dim, 0):
        return None
    if resized(left.begin, dim, 0) != resized(right.begin, dim, 0) or left.begin[dim] + left.shape[dim] != right.begin[dim]:
        return None
    return window(left.input, left.begin, resized(left.shape, dim, size))


def _reshaped_side_by_side(left: Reshape, right: Reshape, dim: int) -> Expression | None:
    """Where the dimension is the first one of those that come from the same dimensions of the input."""
    inner, outer = next(group for group in _groups(left.input.shape, left.shape) if dim in group[1])
    if not inner or any(left.shape[d] != 1 for d in outer if d < dim):
        return None
    head = next((d for d in inner if left.input.shape[d] != 1), inner[0])
    if len(left.input.shape) != len(right.input.shape):
        return None
    if resized(left.input.shape, head, 0) != resized(right.input.shape, head, 0):
        return None
    joined = _side_by_side(left.input, right.input, head)
    shape = resized(left.shape, dim, left.shape[dim] + right.shape[dim])
    return None if joined is None else reshape(joined, shape)


def _same_zero(left: Expression, right: Expression) -> bool:
    """0.0 == -0.0, which are two values."""
    if not isinstance(left, Fill) or not isinstance(right, Fill):
        return True
    return math.copysign(1, left.value) == math.copysign(1, right.value)


def _groups(inner: Shape, outer: Shape) -> list[tuple[list[int], list[int]]]:
    """The dimensions of both shapes in as many groups as there are, each with as many elements on either side."""
    groups: list[tuple[list[int], list[int]]] = []
    i = o = 0
    while i < len(inner) or o < len(outer):
        of_inner, of_outer = [], []
        left = right = 1
        while True:
            if left <= right and i < len(inner) and (left < right or not of_inner):
                left *= inner[i]
                of_inner.append(i)
                i += 1
            elif o < len(outer) and (right < left or not of_outer):
                right *= outer[o]
                of_outer.append(o)
                o += 1
            else:
                break
            if left == right and of_inner and of_outer:
                break
        groups.append((of_inner, of_outer))
    return groups


def _within_reshape(of: Reshape, begin: Shape, sizes: Shape) -> tuple[Shape, Shape] | None:
    """The window of the input whose elements are those of this window, in order."""
    inner = of.input.shape
    inner_begin, inner_sizes = [0] * len(inner), list(inner)
    for of_inner, of_outer in _groups(inner, of.shape):
        run = _run([of.shape[d] for d in of_outer], [begin[d] for d in of_outer], [sizes[d] for d in of_outer])
        box = None if run is None else _box_of_run([inner[d] for d in of_inner], *run)
        if box is None:
            return None
        for d, (low, size) in zip(of_inner, box):
            inner_begin[d], inner_sizes[d] = low, size
    return tuple(inner_begin), tuple(inner_sizes)


def _run(shape: list[int], begin: list[int], sizes: list[int]) -> tuple[int, int] | None:
    """A window of a row-major array as a run of its elements: first one and length."""
    start, length, within = 0, 1, False
    for size, low, taken in zip(shape, begin, sizes):
        if within and taken != size:
            return None
        start, length = start * size + low, length * taken
        within = within or taken != 1
    return start, length


def _box_of_run(shape: list[int], start: int, length: int) -> list[tuple[int, int]] | None:
    """The inverse: begin and size for each dimension."""
    box: list[tuple[int, int]] = []
    for dim in range(len(shape)):
        rest = math.prod(shape[dim + 1 :])
        index = start // rest
        start -= index * rest
        if length <= rest and start + length <= rest:
            box.append((index, 1))
            continue
        if start or length % rest:
            return None
        box.append((index, length // rest))
        return box + [(0, other) for other in shape[dim + 1 :]]
    return box if length == 1 else None
