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
from .specs import Row, Side, Spec


class Loaded(NamedTuple):
    """A target that is described by loaders: of this rank, and what all ranks know."""

    side: Side
    rows: list[Row]
    kept: list[int]  # bytes that each rank keeps for what its loader is called on


def joined(
    given: Mapping[str, Expression],
    described: list[list[list[Any]]],
    reads: list[list[str]],
    engine: EngineParts,
    rank: int,
) -> Loaded:
    """The target of all ranks. The same on all of them, but for this rank's tensors.

    Args:
        described, reads: of each rank, what its EngineParts say.
        engine: of this rank.
    """
    alike: dict[tuple, dict[str, list[int]]] = {}
    for other, parts in enumerate(described):
        for name, shape, dtype, made_of in parts:
            alike.setdefault((name, tuple(shape), dtype), {}).setdefault(made_of, []).append(other)
    specs: dict[str, Spec] = {}
    rows: list[Row] = []
    own: dict[str, torch.Tensor] = {}
    for (name, shape, dtype), by_text in alike.items():
        by_replicas: dict[int, list[tuple[str, list[int]]]] = {}
        for made_of, ranks in by_text.items():
            by_replicas.setdefault(len(ranks), []).append((made_of, ranks))
        for replicas, group in by_replicas.items():
            target = _free(name, specs)
            mesh = mesh_of([("x0", len(group)), ("x1", replicas)], [r for _, ranks in group for r in ranks])
            layout = f"[{', '.join([f'<x0>{len(group)}', *map(str, shape)])}]"
            specs[target] = Spec(target, mesh, layout, dtype, (len(group), *shape))
            for row, (made_of, ranks) in enumerate(group):
                rows.append(Row(target, row, made_of))
                if rank in ranks:
                    own[target] = engine.tensors[name].unsqueeze(0)
    kept = [0] * len(described)
    for name in sorted(set().union(*reads)):
        ranks = [other for other, names in enumerate(reads) if name in names]
        value, target = given[name], for_loader(name)
        whole = f"[{', '.join(map(str, value.shape))}]"
        specs[target] = Spec(target, mesh_of([("x0", len(ranks))], ranks), whole, str(value.dtype), value.shape)
        rows.append(Row(target, -1, json.dumps(to_json(value))))
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
