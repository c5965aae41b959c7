"""What an engine's loader makes of the tensors that it is given, as boxes of the engine's own parameters.

What a recording cannot say is left to the loader: the tensors that it needs are moved whole, and it is called on them.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import torch

from ...errors import InputError
from ..problems import Tensors
from . import Loader, Recording, call, local_tensors, record_made
from .expressions import Before, Concatenate, Expression, Fill, Shape, leaves, resized, sources_of
from .recipes import NotInRecipes, to_json


class EngineParts(NamedTuple):
    """What this rank's loader says of its parameters."""

    recording: Recording | None  # None, with no tensors: of a rank that has no engine
    loader: Loader
    tensors: dict[str, torch.Tensor]  # by name: the parameter, or NAME[BEGIN] of a box of it
    described: list[list[Any]]  # of each: name, shape, dtype, JSON of an expression over the source
    fills: list[tuple[torch.Tensor, float | int | bool]]
    needed: list[str]  # what the loader itself is to be called on
    given: dict[str, torch.Tensor]  # that, as far as there is memory for it

    @classmethod
    def none(cls) -> "EngineParts":
        return cls(None, lambda _: None, {}, [], [], [], {})

    def give(self, name: str, value: Expression) -> torch.Tensor:
        """Memory, where the parameters are, for something that the loader will be called on."""
        device = next((tensor.device for tensor in self.tensors.values()), torch.device("cpu"))
        self.given[name] = torch.empty(value.shape, dtype=value.dtype, device=device)
        return self.given[name]

    def finish(self, moved: Collection[str]) -> None:
        """What is left to do when everything has arrived.

        Args:
            moved: names of targets into which something was moved.
        """
        with torch.no_grad():
            for part, value in self.fills:
                part.fill_(value)
            if any(for_loader(name) in moved for name in self.given):
                call(self.loader, self.given)


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


def recorded(target: Tensors, loader: Loader, given: Mapping[str, Expression]) -> EngineParts:
    """
    Args:
        given: what the loader is called on, made of the source.

    Raises:
        ValueError: the loader replaces a parameter by one of another shape or dtype.
        Exception: whatever the loader raises.
    """
    recording = record_made(loader, given, target=target)
    engine = EngineParts(recording, loader, {}, [], [], [], {})
    parameters = local_tensors(target)
    reads = set(recording.by_value)
    for name, value in recording.expressions.items():
        parameter = parameters[name].detach()
        if tuple(parameter.shape) != value.shape or parameter.dtype != value.dtype:
            raise InputError(
                f"{name}: it is {parameter.dtype} of {list(parameter.shape)}, and the loader replaces it by {value.dtype} of "
                f"{list(value.shape)}; load the engine's weights once with its own loader first"
            )
        try:
            _describe(engine, name, parameter, value)
        except NotInRecipes:
            reads |= sources_of(value)
    engine.needed.extend(name for name, value in given.items() if sources_of(value) & reads)
    return engine


def _describe(engine: EngineParts, name: str, parameter: torch.Tensor, value: Expression) -> None:
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
            parts[where] = part
            made.append([where, list(of_part.shape), str(of_part.dtype), json.dumps(to_json(of_part))])
    engine.tensors.update(parts)
    engine.fills.extend(fills)
    engine.described.extend(made)


def for_loader(name: str) -> str:
    """The target in which something of the source comes that the loader is called on."""
    return f"{name} (for the loader)"
