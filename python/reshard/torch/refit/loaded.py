"""The target of a refit where an engine's own loader says what its parameters are made of.

Each rank records its loader (see record) on tensors like the source's. What comes of it are boxes of the source in each
rank's own parameters, whatever the engine's parallelism is: ranks whose parameters are made alike are replicas of one
tensor, and the parameters of all ranks under one name are one tensor with a dimension more, a row for each of them.

    w of 4 x 8 on two ranks, rank 0 has rows 0, 1 and rank 1 rows 2, 3:   [<x0>2, 2, 8], of which row r is w[2r : 2r + 2]
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ..mesh_texts import mesh_of
from ..record.engine import EngineParts, for_loader
from ..record.expressions import Expression
from ..record.recipes import to_json
from .boxes import made_of
from .specs import Row, Side, Spec


class Loaded(NamedTuple):
    """A target that is described by loaders: of this rank, and what all ranks know."""

    side: Side
    rows: list[Row]
    kept: list[int]  # bytes that each rank keeps for what its loader is called on


def parts_of(sources: dict[str, Spec], engine: EngineParts) -> list[list[Any]]:
    """What other ranks have to know of this rank's parameters: of each the name, shape, dtype, its boxes of the source, and
    what it is made of, for people. Raises as made_of."""
    made = made_of(sources, [expression for *_, expression in engine.described])
    return [[name, shape, dtype, new.boxes, new.text] for (name, shape, dtype, _), new in zip(engine.described, made)]


def joined(
    sources: dict[str, Spec],
    given: Mapping[str, Expression],
    described: list[list[list[Any]]],
    reads: list[list[str]],
    engine: EngineParts,
    rank: int,
) -> Loaded:
    """The target of all ranks. The same on all of them, but for this rank's tensors.

    Args:
        described: of each rank, its parts_of.
        reads: of each rank, what its loader needs.
        engine: of this rank.
    """
    alike: dict[tuple, dict[str, list[int]]] = {}
    texts: dict[str, str] = {}
    for other, parts in enumerate(described):
        for name, shape, dtype, boxes, text in parts:
            alike.setdefault((name, tuple(shape), dtype), {}).setdefault(boxes, []).append(other)
            texts.setdefault(boxes, text)
    specs: dict[str, Spec] = {}
    rows: list[Row] = []
    own: dict[str, torch.Tensor] = {}
    for (name, shape, dtype), by_boxes in alike.items():
        by_replicas: dict[int, list[tuple[str, list[int]]]] = {}
        for boxes, ranks in by_boxes.items():
            by_replicas.setdefault(len(ranks), []).append((boxes, ranks))
        for replicas, group in by_replicas.items():
            target = _free(name, specs)
            mesh = mesh_of([("x0", len(group)), ("x1", replicas)], [r for _, ranks in group for r in ranks])
            layout = f"[{', '.join([f'<x0>{len(group)}', *map(str, shape)])}]"
            specs[target] = Spec(target, mesh, layout, dtype, (len(group), *shape))
            for row, (boxes, ranks) in enumerate(group):
                rows.append(Row(target, row, boxes, texts[boxes]))
                if rank in ranks:
                    own[target] = engine.tensors[name].unsqueeze(0)
    kept = [0] * len(described)
    needed = sorted(set().union(*reads))
    for name, new in zip(needed, made_of(sources, [json.dumps(to_json(given[name])) for name in needed])):
        ranks = [other for other, names in enumerate(reads) if name in names]
        value, target = given[name], for_loader(name)
        whole = f"[{', '.join(map(str, value.shape))}]"
        specs[target] = Spec(target, mesh_of([("x0", len(ranks))], ranks), whole, str(value.dtype), value.shape)
        rows.append(Row(target, -1, new.boxes, new.text))
        for other in ranks:
            kept[other] += math.prod(value.shape) * value.dtype.itemsize
        if rank in ranks:
            own[target] = engine.give(name, value)
    return Loaded(Side(own, specs), rows, kept)


def _free(name: str, taken: Mapping[str, Spec]) -> str:
    """The name, or with a number where ranks have different parameters under it."""
    number = 1
    while (free := name if number == 1 else f"{name} ({number})") in taken:
        number += 1
    return free
