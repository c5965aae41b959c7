"""The target of a refit where an engine's own loader says what its parameters are made of.

Each rank records its loader (see record) on tensors like the source's. What comes of it are boxes of the source in each
rank's own parameters, whatever the engine's parallelism is: ranks whose parameters are made alike are replicas of one
tensor, and the parameters of all ranks under one name are one tensor with a dimension more, a row for each of them.

    w of 4 x 8 on two ranks, rank 0 has rows 0, 1 and rank 1 rows 2, 3:   [<x0>2, 2, 8], of which row r is w[2r : 2r + 2]

What a recording cannot say is left to the loader: the tensors that it needs are moved whole, and it is called on them.
"""

import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ...errors import InputError
from ..mesh_texts import mesh_of
from ..problems import Tensors
from ..record import Loader, Recording, call, local_tensors, record_made
from ..record.expressions import Before, Concatenate, Expression, Fill, Shape, leaves, resized, sources_of
from ..record.recipes import NotInRecipes, to_json
from .specs import Row, Side, Spec


class Loaded(NamedTuple):
    """A target that is described by loaders: of this rank, and what all ranks know."""

    side: Side
    rows: list[Row]
    kept: list[int]  # bytes that each rank keeps for what its loader is called on
    finish: "Finish"


class Finish:
    """What is left to do on this rank when everything has arrived."""

    def __init__(self, recording: Recording | None, loader: Loader | None):
        self.recording = recording
        self._loader = loader
        self.fills: list[tuple[torch.Tensor, float | int | bool]] = []
        self.given: dict[str, torch.Tensor] = {}  # what the loader is called on

    def __call__(self, moved: set[str]) -> None:
        """
        Args:
            moved: names of targets into which something was moved.
        """
        with torch.no_grad():
            for part, value in self.fills:
                part.fill_(value)
            if self._loader is not None and any(_for_loader(name) in moved for name in self.given):
                call(self._loader, self.given)


class _Part(NamedTuple):
    """A box of one parameter of this rank."""

    begin: Shape
    value: Expression


def _parts(value: Expression, begin: Shape) -> list[_Part]:
    """Boxes of which each is one value everywhere, or from before, or made of the source alone, where that goes."""
    if isinstance(value, Concatenate) and not _is_moved(value):
        parts = []
        for part in value.parts:
            parts += _parts(part, begin)
            begin = resized(begin, value.dim, begin[value.dim] + part.shape[value.dim])
        return parts
    return [_Part(begin, value)]


def _is_moved(value: Expression) -> bool:
    return not any(isinstance(leaf, (Fill, Before)) for leaf in leaves(value))


def recorded(
    target: Tensors, loader: Loader, given: Mapping[str, Expression]
) -> tuple[dict[str, torch.Tensor], list[list[Any]], list[str], Finish]:
    """The parts of this rank's parameters by name; what the others must know of them; the names of what its loader is
    called on; and what is left to do when they have arrived.

    Args:
        given: what the loader is called on, made of the source.

    Raises:
        ValueError: the loader replaces a parameter by one of another shape or dtype.
        Exception: whatever the loader raises.
    """
    recording = record_made(loader, given, target=target)
    finish = Finish(recording, loader)
    parameters = local_tensors(target)
    tensors: dict[str, torch.Tensor] = {}
    described: list[list[Any]] = []
    reads = set(recording.by_value)
    for name, value in recording.expressions.items():
        parameter = parameters[name].detach()
        if tuple(parameter.shape) != value.shape or parameter.dtype != value.dtype:
            raise InputError(
                f"{name}: it is {parameter.dtype} of {list(parameter.shape)}, and the loader replaces it by {value.dtype} of "
                f"{list(value.shape)}; load the engine's weights once before the refit is made"
            )
        try:
            described += _described(name, parameter, value, tensors, finish)
        except NotInRecipes:
            reads |= sources_of(value)
    needed = [name for name, value in given.items() if sources_of(value) & reads]
    return tensors, described, needed, finish


def _described(
    name: str, parameter: torch.Tensor, value: Expression, tensors: dict[str, torch.Tensor], finish: Finish
) -> list[list[Any]]:
    """
    Raises:
        NotInRecipes: the loader itself has to do it.
    """
    made: list[list[Any]] = []
    parts: dict[str, torch.Tensor] = {}
    fills = []
    for begin, of_part in _parts(value, (0,) * len(value.shape)):
        part = parameter
        for dim, (low, size) in enumerate(zip(begin, of_part.shape)):
            part = part.narrow(dim, low, size)
        if isinstance(of_part, Fill):
            fills.append((part, of_part.value))
        elif isinstance(of_part, Before) and of_part.name == name:
            continue
        elif not _is_moved(of_part):
            raise NotInRecipes(name)
        else:
            where = name if of_part.shape == value.shape else f"{name}{list(begin)}"
            parts[where] = part.unsqueeze(0)
            made.append([where, list(of_part.shape), str(of_part.dtype), json.dumps(to_json(of_part))])
    tensors |= parts
    finish.fills += fills
    return made


def joined(
    given: Mapping[str, Expression],
    described: list[list[list[Any]]],
    reads: list[list[str]],
    tensors: dict[str, torch.Tensor],
    finish: Finish,
    rank: int,
) -> Loaded:
    """The target of all ranks. The same on all of them, but for this rank's tensors.

    Args:
        described, reads: of each rank, as `recorded` returns them.
        tensors: of this rank, by the names in its description.
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
                    own[target] = tensors[name]
    kept = [0] * len(described)
    for name in sorted(set().union(*reads)):
        ranks = [other for other, names in enumerate(reads) if name in names]
        value, target = given[name], _for_loader(name)
        whole = f"[{', '.join(map(str, value.shape))}]"
        specs[target] = Spec(target, mesh_of([("x0", len(ranks))], ranks), whole, str(value.dtype), value.shape)
        rows.append(Row(target, -1, json.dumps(to_json(value))))
        for other in ranks:
            kept[other] += math.prod(value.shape) * value.dtype.itemsize
        if rank in ranks:
            device = next((tensor.device for tensor in tensors.values()), torch.device("cpu"))
            finish.given[name] = torch.empty(value.shape, dtype=value.dtype, device=device)
            own[target] = finish.given[name]
    return Loaded(Side(own, specs), rows, kept, finish)


def _free(name: str, taken: Mapping[str, Spec]) -> str:
    """The name, or with a number where ranks have different parameters under it."""
    number = 1
    while (free := name if number == 1 else f"{name} ({number})") in taken:
        number += 1
    return free


def _for_loader(name: str) -> str:
    return f"{name} (for the loader)"
