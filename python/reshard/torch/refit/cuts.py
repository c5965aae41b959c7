"""From a view to what is moved: tensors with a layout on either side, each of which one plan moves.

The elements of a view are a tensor of their own, whose dimensions are the loops. What the ranks hold of it, and what
they need, is a layout in most cases: that of q in a fused qkv, or that of one expert in a stack of them. Where it is
none, the tensor is cut along all edges of shards, and each cell goes from the ranks that have it whole to those that
need it. What a rank holds of flattened dimensions is several boxes one behind the other: a part of the tensor each.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ...layouts import Layout
from ..mesh_texts import mesh_of
from .views import Loop

Interval = tuple[int, int]  # of iterations of a loop, or of indices of a dimension
Box = tuple[Interval, ...]  # one interval for each loop
Steps = list[tuple[int, int]]  # dimension and step of each loop, in the source or in the target
Held = dict[int, tuple[tuple[Interval, ...], ...]]  # by rank, the intervals of each dimension, or of each loop
Where = tuple[tuple[int, ...], Steps, Box]  # where the loops begin in a tensor, and their iterations
Extent = tuple[tuple[int, ...], tuple[int, ...]]  # offset and size
# More than this of one tensor is not a view of shards any more.
_MOST_CUTS = 1 << 14


class Placed(NamedTuple):
    """A tensor of one side: who holds what of it. Keys of caches."""

    mesh: str
    layout: str


class Cut(NamedTuple):
    """One tensor that is moved: boxes of the view's iterations, by rank, and as layouts."""

    source_start: tuple[int, ...]
    target_start: tuple[int, ...]
    loops: tuple[Loop, ...]
    source_boxes: dict[int, Box]
    target_boxes: dict[int, Box]
    source: Placed
    target: Placed
    source_elements: dict[int, int]  # of the boxes, by rank
    target_elements: dict[int, int]
    source_part: int  # of parts()
    target_part: int

    def in_source(self, rank: int) -> Where:
        """What a rank gives of it, for part_of."""
        return self.source_start, [(loop.source_dim, loop.source_step) for loop in self.loops], self.source_boxes[rank]

    def in_target(self, rank: int) -> Where:
        """What a rank gets of it, for part_of."""
        return self.target_start, [(loop.target_dim, loop.target_step) for loop in self.loops], self.target_boxes[rank]


class Part(NamedTuple):
    """What ranks hold of a part of a tensor: a product of intervals."""

    held: Held
    begins: dict[int, int] | None  # by rank, where it begins in what the rank holds; None: it is all of that

    def of(self, local: torch.Tensor, rank: int) -> torch.Tensor:
        """It, in the memory of what the rank holds."""
        if self.begins is None:
            return local
        sizes = [end - begin for ((begin, end),) in self.held[rank]]
        return local.view(-1).narrow(0, self.begins[rank], math.prod(sizes)).view(sizes)


@functools.lru_cache(maxsize=4096)
def shards(placed: Placed, dims: int) -> Held:
    """For each device, the intervals that it holds along each dimension."""
    numbers = iter(torch.ops.reshard._shards(placed.mesh, placed.layout))
    held = {}
    for device in numbers:
        intervals = []
        for _ in range(dims):
            intervals.append(tuple((next(numbers), next(numbers)) for _ in range(next(numbers))))
        held[device] = tuple(intervals)
    return held


@functools.lru_cache(maxsize=4096)
def parts(placed: Placed, dims: int) -> tuple[Part, ...]:
    """The parts of a tensor, disjoint; one, where no dimensions are flattened.

    Example: {dp:2}, [<dp=[5,7]>(3, 4)]: row 0 and a quarter of row 1 on device 0, the rest of row 1 and row 2 on device 1:
    four parts.

    Raises:
        NotImplementedError: what is flattened is not the first dimensions.
    """
    if "(" not in placed.layout:
        return (Part(shards(placed, dims), None),)
    layout = Layout(placed.mesh, placed.layout)
    found: dict[tuple, Part] = {}
    for device in layout.devices:
        boxes, behind = _merged_boxes(layout.boxes(device)), layout.local_shape(device)[1:]
        begin = 0
        for offset, size in boxes:
            if len(boxes) > 1 and size[len(size) - len(behind) :] != behind:
                raise NotImplementedError(f"{placed.layout}: where a tensor goes in parts, only its first dimensions are flattened")
            part = found.setdefault((offset, size), Part({}, {}))
            assert part.begins is not None
            part.held[device] = tuple([((first, first + length),) for first, length in zip(offset, size)])
            part.begins[device] = begin
            begin += math.prod(size)
    return tuple(found.values())


def _merged_boxes(boxes: Sequence[Extent]) -> list[Extent]:
    """Rows of equal width, one below the other, as one box."""
    merged: list[Extent] = []
    for offset, size in boxes:
        if 0 in size:
            continue
        if merged:
            first, before = merged[-1]
            if offset[1:] == first[1:] and size[1:] == before[1:] and offset[0] == first[0] + before[0]:
                merged[-1] = (first, (before[0] + size[0], *size[1:]))
                continue
        merged.append((offset, size))
    return merged


@functools.lru_cache(maxsize=4096)
def shard_shapes(mesh: str, layout: str) -> dict[int, list[int]]:
    """What shape each device's shard has, also of values that are partial."""
    placed = Layout(mesh, layout)
    return {device: list(placed.local_shape(device)) for device in placed.devices}


@functools.lru_cache(maxsize=65536)
def cuts_of(
    source: Placed,
    target: Placed,
    source_start: tuple[int, ...],
    target_start: tuple[int, ...],
    loops: tuple[Loop, ...],
) -> tuple[Cut, ...]:
    """What is moved so that all target shards get what the view gives them.

    Raises:
        NotImplementedError: too many pieces; a part of what expert slots hold is to be written; as parts().
    """
    if "{" in target.layout:
        raise NotImplementedError(f"{target.layout}: expert slots are only written whole")
    from_parts, to_parts = parts(source, len(source_start)), parts(target, len(target_start))
    cuts: list[Cut] = []
    for own, wanted in itertools.product(range(len(from_parts)), range(len(to_parts))):
        cut = _cuts_between(from_parts[own].held, to_parts[wanted].held, source_start, target_start, loops)
        cuts += [one._replace(source_part=own, target_part=wanted) for one in cut]
        if len(cuts) > _MOST_CUTS:
            raise NotImplementedError(f"more than {_MOST_CUTS} pieces of one tensor; its shards have too many edges")
    return tuple(cuts)


def _cuts_between(
    own: Held, wanted: Held, source_start: tuple[int, ...], target_start: tuple[int, ...], loops: tuple[Loop, ...]
) -> list[Cut]:
    """Of one part of either side: of the first parts, as far as a Cut says so."""
    cuts: list[Cut] = []
    todo = [(source_start, target_start, loops)]
    while todo:
        start, to, these = todo.pop()
        if len(cuts) + len(todo) > _MOST_CUTS:
            raise NotImplementedError(f"more than {_MOST_CUTS} pieces of one tensor; blocks or a reshape cut its shards")
        before = [(loop.source_dim, loop.source_step) for loop in these]
        after = [(loop.target_dim, loop.target_step) for loop in these]
        split = _loop_to_split(own, start, these, before)
        if split is None:
            split = _loop_to_split(wanted, to, these, after)
        if split is not None:
            loop, rest = these[split], these[:split] + these[split + 1 :]
            for i in range(loop.count):
                todo.append((
                    _moved(start, loop.source_dim, i * loop.source_step),
                    _moved(to, loop.target_dim, i * loop.target_step),
                    rest,
                ))
            continue
        counts = [loop.count for loop in these]
        holders = _held(own, start, these, before)
        needers = _held(wanted, to, these, after)
        if not holders or not needers:
            continue  # in another part
        left, right = _as_layout(holders, counts), _as_layout(needers, counts)
        if left and right:
            boxes = [{rank: tuple(i for (i,) in parts) for rank, parts in held.items()} for held in (holders, needers)]
            cuts.append(_cut(start, to, these, *boxes, left, right))
        else:
            cuts += _cells(start, to, these, holders, needers)
    return cuts


def _cut(
    start: tuple[int, ...],
    to: tuple[int, ...],
    loops: tuple[Loop, ...],
    have: dict[int, Box],
    need: dict[int, Box],
    left: Placed,
    right: Placed,
) -> Cut:
    elements = [
        {rank: math.prod([high - low for low, high in box]) for rank, box in boxes.items()} for boxes in (have, need)
    ]
    return Cut(start, to, loops, have, need, left, right, *elements, 0, 0)


def _moved(start: tuple[int, ...], dim: int, by: int) -> tuple[int, ...]:
    return start[:dim] + (start[dim] + by,) + start[dim + 1 :]


def _by_dim(loops: tuple[Loop, ...], steps: Steps) -> dict[int, list[int]]:
    """The loops of each dimension, the one with the longest steps first."""
    of_dim: dict[int, list[int]] = {}
    for index in sorted(range(len(loops)), key=lambda index: -steps[index][1]):
        of_dim.setdefault(steps[index][0], []).append(index)
    return of_dim


def _loop_to_split(held: Held, start: tuple[int, ...], loops: tuple[Loop, ...], steps: Steps) -> int | None:
    """A loop of which shards hold iterations in part, those of a loop within it being along the same dimension."""
    for dim, indices in _by_dim(loops, steps).items():
        if len(indices) < 2:
            continue
        outer = indices[0]
        reach = sum((loops[i].count - 1) * steps[i][1] for i in indices[1:])
        for intervals in {per_dim[dim] for per_dim in held.values()}:
            for i in range(loops[outer].count):
                first = start[dim] + i * steps[outer][1]
                whole = any(begin <= first and first + reach < end for begin, end in intervals)
                none = all(first + reach < begin or end <= first for begin, end in intervals)
                if not whole and not none:
                    return outer
    return None


def _held(held: Held, start: tuple[int, ...], loops: tuple[Loop, ...], steps: Steps) -> Held:
    """For each rank that holds any, the iterations of each loop: all combinations of them are held."""
    of_dim = _by_dim(loops, steps)
    result: Held = {}
    for rank, per_dim in held.items():
        parts: list[tuple[Interval, ...]] = [((0, loop.count),) for loop in loops]
        for dim, intervals in enumerate(per_dim):
            if dim not in of_dim:
                if not any(begin <= start[dim] < end for begin, end in intervals):
                    break
                continue
            outer = of_dim[dim][0]
            step, count = steps[outer][1], loops[outer].count
            found = []
            for begin, end in intervals:
                low = max(0, -(-(begin - start[dim]) // step))
                high = min(count, -(-(end - start[dim]) // step))
                if low < high:
                    found.append((low, high))
            if not found:
                break
            parts[outer] = tuple(found)
        else:
            result[rank] = tuple(parts)
    return result


def _as_layout(held: Held, counts: list[int]) -> Placed | None:
    """A mesh of exactly these ranks and the layout that they hold, if there is one."""
    if any(len(intervals) > 1 for parts in held.values() for intervals in parts):
        return None
    rows = []
    for index, count in enumerate(counts):
        row = sorted({parts[index][0] for parts in held.values()})
        edges = [0, *(end for _, end in row)]
        if [begin for begin, _ in row] != edges[:-1] or edges[-1] != count:
            return None  # they overlap
        rows.append(row)
    holders: dict[tuple, list[int]] = {}
    for rank in sorted(held):
        holders.setdefault(tuple(intervals[0] for intervals in held[rank]), []).append(rank)
    combinations = list(itertools.product(*rows))
    replicas = len(next(iter(holders.values())))
    if len(holders) != len(combinations) or any(len(ranks) != replicas for ranks in holders.values()):
        return None
    axes, dims = [], []
    for row, count in zip(rows, counts):
        if len(row) == 1:
            dims.append(str(count))
            continue
        axis = f"x{len(axes)}"
        axes.append((axis, len(row)))
        sizes = [end - begin for begin, end in row]
        even = "" if len(set(sizes)) == 1 else f"=[{','.join(map(str, sizes))}]"
        dims.append(f"<{axis}{even}>{count}")
    if replicas > 1 or not axes:
        axes.append((f"x{len(axes)}", replicas))
    ids = [rank for combination in combinations for rank in holders[combination]]
    return Placed(mesh_of(axes, ids), f"[{', '.join(dims)}]")


def _cells(
    start: tuple[int, ...], to: tuple[int, ...], loops: tuple[Loop, ...], holders: Held, needers: Held
) -> list[Cut]:
    ranges = []
    for index, loop in enumerate(loops):
        edges = {0, loop.count}
        for parts in (*holders.values(), *needers.values()):
            edges.update(itertools.chain.from_iterable(parts[index]))
        ranges.append(list(itertools.pairwise(sorted(edges))))
    if math.prod(map(len, ranges)) > _MOST_CUTS:
        raise NotImplementedError(f"more than {_MOST_CUTS} pieces of one tensor; its shards have too many edges")
    cells = []
    for box in itertools.product(*ranges):
        have, need = _ranks_with(holders, box), _ranks_with(needers, box)
        if not need or not have:
            continue  # between the intervals of the target's shards, or in another part of the source
        whole = f"[{', '.join(str(end - begin) for begin, end in box)}]"
        left, right = (Placed(mesh_of([("x0", len(ranks))], ranks), whole) for ranks in (have, need))
        cells.append(_cut(start, to, loops, dict.fromkeys(have, box), dict.fromkeys(need, box), left, right))
    return cells


def _ranks_with(held: Held, box: Box) -> list[int]:
    def has(parts: tuple[tuple[Interval, ...], ...]) -> bool:
        return all(
            any(begin <= low and high <= end for begin, end in intervals) for intervals, (low, high) in zip(parts, box)
        )

    return sorted(rank for rank, parts in held.items() if has(parts))


def part_of(
    local: torch.Tensor,
    held: tuple[tuple[Interval, ...], ...],
    start: tuple[int, ...],
    steps: Steps,
    box: Box,
) -> torch.Tensor:
    """The iterations of a box in a rank's shard, in place: `held` are the intervals of the shard."""
    first = list(start)
    for (dim, step), (low, _) in zip(steps, box):
        first[dim] += low * step
    offset = local.storage_offset()
    for dim, index in enumerate(first):
        position = 0
        for begin, end in held[dim]:
            if begin <= index < end:
                position += index - begin
                break
            position += end - begin
        offset += position * local.stride(dim)
    sizes = [high - low for low, high in box]
    return local.as_strided(sizes, [step * local.stride(dim) for dim, step in steps], offset)
