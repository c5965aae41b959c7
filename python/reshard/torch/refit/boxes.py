"""What recipes and expressions make of the source, as tables of boxes: what ranks tell each other of it."""

import json
from typing import NamedTuple

import torch

from ..entries import RECIPE_DTYPES
from .specs import Spec


class Made(NamedTuple):
    """What a recipe makes of tensors that are nowhere but in jobs."""

    shape: tuple[int, ...]
    text: str  # what it is made of, for people; "" where it is a tensor of the source
    boxes: str  # JSON of a table of boxes of the source, whose tensors are numbered in the order of their specs


class Kind(NamedTuple):
    """What many boxes have alike."""

    casts: tuple[torch.dtype | None, ...]  # None: a type that PyTorch lacks
    loops: tuple[tuple[int, int, int, int], ...]  # dimension of the source, count, step there, elements of the target


class Table(NamedTuple):
    """Boxes of the source, column by column."""

    kinds: list[Kind]
    kind_of: list[int]
    source_of: list[int]
    to: list[int]  # the element of the target at which it begins
    starts: list[int]  # the index in the source at which it begins, of one box after the other


def made_by(sources: dict[str, Spec], recipe: str) -> dict[str, Made]:
    """What a recipe makes of the sources, by name.

    Args:
        recipe: as JSON; "" is one that changes nothing.

    Raises:
        ValueError: a malformed recipe, or one that does not fit.
        NotImplementedError: what is not boxes of the source, such as padding.
    """
    text = recipe or json.dumps({"schema": "reshard.recipe/1"})
    specs = list(sources.values())
    sizes = [size for spec in specs for size in spec.shape]
    names = [spec.name for spec in specs]
    dtypes = [spec.dtype for spec in specs]
    made, tables = torch.ops.reshard._recipe_views(names, dtypes, [len(spec.shape) for spec in specs], sizes, text)
    return {new["name"]: Made(tuple(new["shape"]), new["text"], boxes) for new, boxes in zip(json.loads(made), tables)}


def made_of(sources: dict[str, Spec], expressions: list[str]) -> list[Made]:
    """What expressions (JSON of a recipe's) over the sources make; raises as made_by."""
    if not expressions:
        return []
    numbers = {expression: str(number) for number, expression in enumerate(dict.fromkeys(expressions))}
    rules = ",".join(f'{{"to":"{number}","from":{expression}}}' for expression, number in numbers.items())
    made = made_by(sources, f'{{"schema":"reshard.recipe/1","tensors":[{rules}],"drop":["*"]}}')
    return [made[numbers[expression]] for expression in expressions]


def table_of(boxes: str) -> Table:
    """What `Made.boxes` says."""
    kinds, *columns = json.loads(boxes)
    read = [
        Kind(tuple([_torch_dtype(cast) for cast in casts]), tuple([tuple(loop) for loop in loops])) for casts, loops in kinds
    ]
    return Table(read, *columns)


def _torch_dtype(name: str) -> torch.dtype | None:
    return getattr(torch, RECIPE_DTYPES[name]) if name in RECIPE_DTYPES else None
