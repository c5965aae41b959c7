"""What the tensors of the target are made of, as boxes of those of the source."""

import json
from typing import NamedTuple

import torch

from ..entries import RECIPE_DTYPES, dtype_of
from ..record.strided import array_strides
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
    made = _made(sources, recipe)
    for missing, there, where in (
        (targets.keys() - made.keys(), made, "what the recipe makes of the source" if recipe else "the source"),
        (made.keys() - targets.keys(), targets, "the target"),
    ):
        if missing:
            raise ValueError(torch.ops.reshard._missing_names(sorted(missing), sorted(there), where))
    views = []
    for target in targets.values():
        new = made[target.name]
        if tuple(new["shape"]) != target.shape:
            raise ValueError(
                f"{target.name}: the target's shape is {list(target.shape)}, the source's {list(new['shape'])}"
                + (f" (it is {new['text']})" if new["text"] else "")
            )
        views += _joined([_view(box, sources[box["tensor"]], target, new["text"]) for box in new["boxes"]])
    return views


def views_of_rows(sources: dict[str, Spec], targets: dict[str, Spec], rows: list[Row]) -> list[View]:
    """Where loaders say what each row of the targets is made of. Rows that are the same box of a source, each so much
    further, are one view.

    Raises:
        ValueError, NotImplementedError: as views_of.
    """
    numbers = {made_of: str(number) for number, made_of in enumerate(dict.fromkeys(row.made_of for row in rows))}
    rules = [{"to": number, "from": json.loads(made_of)} for made_of, number in numbers.items()]
    made = _made(sources, json.dumps({"schema": "reshard.recipe/1", "tensors": rules, "drop": ["*"]})) if rules else {}
    by_target: dict[str, list[Row]] = {}
    for row in rows:
        by_target.setdefault(row.target, []).append(row)
    views: list[View] = []
    for name, of_target in by_target.items():
        target = targets[name]
        text = made[numbers[of_target[0].made_of]]["text"]
        of_rows: list[View] = []
        for row in of_target:
            new = made[numbers[row.made_of]]
            if row.row < 0:
                of_rows += [_view(box, sources[box["tensor"]], target, text) for box in new["boxes"]]
                continue
            one = target._replace(shape=target.shape[1:])
            boxes = _joined([_view(box, sources[box["tensor"]], one, text) for box in new["boxes"]])
            of_rows += [_in_row(view, row.row) for view in boxes]
        views += _joined(of_rows)
    return views


def _in_row(view: View, row: int) -> View:
    source, target, start, to, loops, casts, text = view
    loops = tuple([Loop(count, dim, step, target_dim + 1, by) for count, dim, step, target_dim, by in loops])
    return View(source, target, start, (row, *to), loops, casts, text)


def _joined(views: list[View]) -> list[View]:
    """Views at equal distances, in one dimension of the source and one of the target, are one with a loop more: those
    that blocks leave, of which a layout knows no more than of the whole."""
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


def _made(sources: dict[str, Spec], recipe: str) -> dict[str, dict]:
    text = recipe or json.dumps({"schema": "reshard.recipe/1"})
    specs = list(sources.values())
    sizes = [size for spec in specs for size in spec.shape]
    names = [spec.name for spec in specs]
    dtypes = [spec.dtype for spec in specs]
    made = torch.ops.reshard._recipe_views(names, dtypes, [len(spec.shape) for spec in specs], sizes, text)
    return {new["name"]: new for new in json.loads(made)}


def _view(box: dict, source: Spec, target: Spec, text: str) -> View:
    casts = [getattr(torch, RECIPE_DTYPES[name]) for name in box["casts"] if name in RECIPE_DTYPES]
    last = casts[-1] if casts else dtype_of(source.dtype)
    final = dtype_of(target.dtype)
    if len(casts) != len(box["casts"]) or (last != final and not (last.is_floating_point and final.is_floating_point)):
        raise ValueError(f"{target.name}: the target is {target.dtype}, what comes is {last}, which is not cast")
    if last != final:
        casts.append(final)
    strides = array_strides(target.shape)
    start = tuple(box["to"] // stride % size for stride, size in zip(strides, target.shape))
    loops: list[Loop] = []
    for dim, count, step, to in box["loops"]:
        loops += _within_dimensions(target, strides, start, dim, count, step, to)
    for dim, size in enumerate(target.shape):
        if start[dim] + sum((l.count - 1) * l.target_step for l in loops if l.target_dim == dim) >= size:
            raise NotImplementedError(f"{target.name}: {text} is not boxes of the target")
    return View(source.name, target.name, tuple(box["at"]), start, tuple(loops), tuple(casts), text)


def _within_dimensions(
    target: Spec, strides: list[int], start: tuple[int, ...], source_dim: int, count: int, step: int, to: int
) -> list[Loop]:
    """A loop over the target's elements in row-major order as loops of which each stays in one dimension: a reshape
    lets one run over several."""
    dim = max((d for d, stride in enumerate(strides) if to % stride == 0 and to >= stride), key=lambda d: strides[d])
    target_step = to // strides[dim]
    room = -(-(target.shape[dim] - start[dim]) // target_step)
    if count <= room:
        return [Loop(count, source_dim, step, dim, target_step)]
    if dim == 0 or start[dim] or target.shape[dim] % target_step or count % room:
        raise NotImplementedError(f"{target.name}: a reshape that cuts rows is not boxes of the target")
    outer = _within_dimensions(target, strides, start, source_dim, count // room, step * room, to * room)
    if room == 1:
        return outer
    return [*outer, Loop(room, source_dim, step, dim, target_step)]
