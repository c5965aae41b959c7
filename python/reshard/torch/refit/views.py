"""What the tensors of the target are made of, as boxes of those of the source."""

import itertools
from typing import NamedTuple

import torch

from ..entries import dtype_of
from ..record.strided import array_strides
from .boxes import Kind, Table, made_by, table_of
from .specs import Row, Spec

class Loop(NamedTuple):
    """`count` elements, each `source_step` further in a dimension of the source, `target_step` in one of the target."""

    count: int
    source_dim: int
    source_step: int
    target_dim: int
    target_step: int


class View(NamedTuple):
    """Elements of a source tensor that become elements of a target tensor: those at the starts and, for all values of
    all loops, that many steps further."""

    source: str
    target: str
    source_start: tuple[int, ...]
    target_start: tuple[int, ...]
    loops: tuple[Loop, ...]
    casts: tuple[torch.dtype, ...]  # one after the other, the target's own last, where they change anything
    text: str  # what the target is made of, for people; "" where it is the source

    def covers(self, source: Spec, target: Spec) -> bool:
        """Whether both tensors are the same elements in the same places."""
        if source.shape != target.shape or any(self.source_start) or any(self.target_start):
            return False
        wanted = [Loop(size, dim, 1, dim, 1) for dim, size in enumerate(source.shape) if size > 1]
        return sorted(self.loops, key=lambda loop: loop.source_dim) == wanted


def views_of(sources: dict[str, Spec], targets: dict[str, Spec], recipe: str) -> list[View]:
    """In the order of the targets; of empty tensors there are none.

    Raises:
        ValueError: names that only one side has, another shape, a dtype that is not cast, or a malformed recipe or
            does not fit.
        NotImplementedError: what a recipe makes that is not boxes of the source, such as padding.
    """
    made = made_by(sources, recipe)
    for missing, there, where in (
        (targets.keys() - made.keys(), made, "what the recipe makes of the source" if recipe else "the source"),
        (made.keys() - targets.keys(), targets, "the target"),
    ):
        if missing:
            raise ValueError(torch.ops.reshard._missing_names(sorted(missing), sorted(there), where))
    maker = _ViewMaker(sources)
    views = []
    for target in targets.values():
        new = made[target.name]
        if new.shape != target.shape:
            raise ValueError(
                f"{target.name}: the target's shape is {list(target.shape)}, the source's {list(new.shape)}"
                + (f" (it is {new.text})" if new.text else "")
            )
        views += maker.views(target, new.text, target.shape, [(-1, new.boxes)])
    return views


def views_of_rows(sources: dict[str, Spec], targets: dict[str, Spec], rows: list[Row]) -> list[View]:
    """Where loaders say what each row of the targets is made of. Rows that are the same box of a source, each so much
    further, are one view.

    Raises:
        ValueError, NotImplementedError: as views_of.
    """
    by_target: dict[str, list[Row]] = {}
    for row in rows:
        by_target.setdefault(row.target, []).append(row)
    maker = _ViewMaker(sources)
    views: list[View] = []
    for name, of_target in by_target.items():
        target = targets[name]
        shape = target.shape if of_target[0].row < 0 else target.shape[1:]
        views += maker.views(target, of_target[0].text, shape, [(row.row, row.boxes) for row in of_target])
    return views


class _InTarget(NamedTuple):
    """What boxes of one kind have alike that begin at one element of a target."""

    start: tuple[int, ...]  # in the target
    loops: tuple[Loop, ...]
    casts: tuple[torch.dtype, ...]


class _ViewMaker:
    """Makes views of tables of boxes. A model has very many boxes, and those of its layers are alike: what is alike is
    found once."""

    def __init__(self, sources: dict[str, Spec]):
        self._specs = list(sources.values())
        # By shape, row, and dtype of the target; then by kind, beginning, and dtype of the source.
        self._known: dict[tuple, dict[tuple, _InTarget]] = {}
        self._kinds: dict[Kind, int] = {}

    def views(self, target: Spec, text: str, shape: tuple[int, ...], rows: list[tuple[int, str]]) -> list[View]:
        """
        Args:
            shape: of a row, or of the target where it has none.
            rows: which one, or -1, and its table as JSON.
        """
        tables = [table_of(boxes) for _, boxes in rows]
        numbers = [row for row, _ in rows]
        if len(rows) > 1 and numbers == list(range(len(rows))) and all(table[:4] == tables[0][:4] for table in tables):
            steps = _even_steps([table.starts for table in tables])
            if steps is not None:
                return _joined(self._rows_of_table(target, text, shape, tables[0], len(rows), steps))
        of_rows = [_joined(self._of_table(target, text, shape, row, table)) for row, table in zip(numbers, tables)]
        return of_rows[0] if len(of_rows) == 1 else _joined(list(itertools.chain.from_iterable(of_rows)))

    def _of_table(self, target: Spec, text: str, shape: tuple[int, ...], row: int, table: Table) -> list[View]:
        """
        Args:
            row: where it is in the target; -1: it is all of that.
        """
        known = self._known.setdefault((shape, row, target.dtype), {})
        kinds = [self._kinds.setdefault(kind, len(self._kinds)) for kind in table.kinds]
        views: list[View] = []
        at = 0
        for kind, number, to in zip(table.kind_of, table.source_of, table.to):
            source = self._specs[number]
            key = (kinds[kind], to, source.dtype)
            if key not in known:
                known[key] = _in_target(table.kinds[kind], to, shape, row, source, target, text)
            end = at + len(source.shape)
            views.append(View(source.name, target.name, tuple(table.starts[at:end]), *known[key], text))
            at = end
        return views

    def _rows_of_table(
        self, target: Spec, text: str, shape: tuple[int, ...], table: Table, rows: int, steps: list[int]
    ) -> list[View]:
        """
        Args:
            table: of the first row.
            steps: how much further each row begins in the source than the one before it, in the order of the starts.
        """
        views: list[View] = []
        at = 0
        for view in self._of_table(target, text, shape, 0, table):
            end = at + len(view.source_start)
            moved = [(dim, step) for dim, step in enumerate(steps[at:end]) if step]
            if len(moved) == 1 and moved[0][1] > 0:
                loops = (Loop(rows, *moved[0], 0, 1), *view.loops)
                views.append(View(view.source, target.name, view.source_start, view.target_start, loops, view.casts, text))
            else:
                for row in range(rows):
                    start = tuple([first + row * step for first, step in zip(view.source_start, steps[at:end])])
                    views.append(view._replace(source_start=start, target_start=(row, *view.target_start[1:])))
            at = end
        return views


def _even_steps(starts: list[list[int]]) -> list[int] | None:
    """How much further each list is than the one before it, element by element, where that is always the same."""
    steps = [second - first for first, second in zip(starts[0], starts[1])]
    for before, after in itertools.pairwise(starts):
        if [second - first for first, second in zip(before, after)] != steps:
            return None
    return steps


def _joined(views: list[View]) -> list[View]:
    """Views at equal distances, in one dimension of the source and one of the target, are one with a loop more: those
    that blocks leave, of which a layout knows no more than of the whole."""
    if len({view.source for view in views}) == len(views):
        return views
    alike: dict[tuple, list[View]] = {}
    for view in views:
        key = (view.source, view.target, view.loops, view.casts, view.text)
        alike.setdefault(key, []).append(view)
    joined: list[View] = []
    for group in alike.values():
        loop = _loop_over(group)
        joined += [group[0]._replace(loops=(loop, *group[0].loops))] if loop else group
    return joined


def _loop_over(views: list[View]) -> Loop | None:
    if len(views) < 2:
        return None
    source = _one_step([view.source_start for view in views])
    target = _one_step([view.target_start for view in views])
    return Loop(len(views), *source, *target) if source and target else None


def _one_step(starts: list[tuple[int, ...]]) -> tuple[int, int] | None:
    """The dimension in which they are at equal distances, and the distance."""
    moved = [dim for dim, (first, second) in enumerate(zip(*starts[:2])) if first != second]
    if len(moved) != 1:
        return None
    (dim,) = moved
    step = starts[1][dim] - starts[0][dim]
    wanted = [starts[0][:dim] + (starts[0][dim] + i * step,) + starts[0][dim + 1 :] for i in range(len(starts))]
    return (dim, step) if step > 0 and starts == wanted else None


def _in_target(
    kind: Kind, to: int, shape: tuple[int, ...], row: int, source: Spec, target: Spec, text: str
) -> _InTarget:
    """Of a box that begins at that element of a row of such a shape; of the whole target, where the row is -1."""
    casts = [cast for cast in kind.casts if cast is not None]
    last = casts[-1] if casts else dtype_of(source.dtype)
    final = dtype_of(target.dtype)
    if len(casts) != len(kind.casts) or (last != final and not (last.is_floating_point and final.is_floating_point)):
        raise ValueError(f"{target.name}: the target is {target.dtype}, what comes is {last}, which is not cast")
    if last != final:
        casts.append(final)
    strides = array_strides(shape)
    start = tuple([to // stride % size for stride, size in zip(strides, shape)])
    loops: list[Loop] = []
    for dim, count, step, by in kind.loops:
        loops += _within_dimensions(shape, target.name, strides, start, dim, count, step, by)
    for dim, size in enumerate(shape):
        if start[dim] + sum((l.count - 1) * l.target_step for l in loops if l.target_dim == dim) >= size:
            raise NotImplementedError(f"{target.name}: {text} is not boxes of the target")
    if row >= 0:
        start = (row, *start)
        loops = [loop._replace(target_dim=loop.target_dim + 1) for loop in loops]
    return _InTarget(start, tuple(loops), tuple(casts))


def _within_dimensions(
    shape: tuple[int, ...],
    name: str,
    strides: list[int],
    start: tuple[int, ...],
    source_dim: int,
    count: int,
    step: int,
    to: int,
) -> list[Loop]:
    """A loop over the target's elements in row-major order as loops of which each stays in one dimension: a reshape
    lets one run over several."""
    dim = max((d for d, stride in enumerate(strides) if to % stride == 0 and to >= stride), key=lambda d: strides[d])
    target_step = to // strides[dim]
    room = -(-(shape[dim] - start[dim]) // target_step)
    if count <= room:
        return [Loop(count, source_dim, step, dim, target_step)]
    if dim == 0 or start[dim] or shape[dim] % target_step or count % room:
        raise NotImplementedError(f"{name}: a reshape that cuts rows is not boxes of the target")
    outer = _within_dimensions(shape, name, strides, start, source_dim, count // room, step * room, to * room)
    if room == 1:
        return outer
    return [*outer, Loop(room, source_dim, step, dim, target_step)]
