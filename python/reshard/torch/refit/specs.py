"""What each side of a refit has: every rank learns it of all others."""

import json
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.tensor import DTensor

from ..groups import Span
from ..layouts import spec_texts
from ..problems import Tensors, named


class Spec(NamedTuple):
    """One tensor of one side, wherever its shards are. Device ids are ranks of the joined group."""

    name: str
    mesh: str
    layout: str
    dtype: str  # "torch.float32"
    shape: tuple[int, ...]


class Side(NamedTuple):
    """What this rank passed of one side, and what all its ranks together have."""

    tensors: dict[str, torch.Tensor]  # of this rank: its shards, detached
    specs: dict[str, Spec]


class Agreed(NamedTuple):
    """What all ranks know after discovery."""

    source: Side
    target: Side
    recipe: str  # as JSON; "" where there is none
    memory_limit: int | None  # bytes, of the rank that gives the least


def flat(state: Tensors | None) -> dict[str, torch.Tensor]:
    """The tensors of a model, of a dict (also a nested one), or of a list, by name."""
    if state is None:
        return {}
    if isinstance(state, Mapping):
        state = flatten_state_dict(dict(state))[0]
    return named(state)


def describe(tensors: dict[str, torch.Tensor], span: Span) -> tuple[dict[str, torch.Tensor], list[list[Any]]]:
    """This rank's shards, and what the other ranks must know of them.

    Raises:
        ValueError: a tensor that is not plain memory; a mesh with a rank that is not in the group.
        NotImplementedError: placements that are no layout.
    """
    shards: dict[str, torch.Tensor] = {}
    described: list[list[Any]] = []
    for name, tensor in tensors.items():
        mesh: str | None = None
        if isinstance(tensor, DTensor):
            mesh, layout = spec_texts(tensor._spec, span)
            local, shape = tensor._local_tensor.detach(), list(tensor._spec.tensor_meta.shape)
        else:
            layout = "[" + ", ".join(map(str, tensor.shape)) + "]"
            local, shape = tensor.detach(), list(tensor.shape)
        if local.layout != torch.strided or local.is_conj() or local.is_neg():
            raise ValueError(f"{name}: only plain strided tensors are moved")
        shards[name] = local
        described.append([name, mesh, layout, str(tensor.dtype), shape])
    return shards, described


def merge(descriptions: list[list[list[Any]]], side: str) -> dict[str, Spec]:
    """The tensors of all ranks of one side, by name, in the order in which the ranks have them.

    Raises:
        ValueError: ranks that have different tensors under one name.
    """
    first: dict[str, tuple[int, list[Any]]] = {}
    holders: dict[str, list[int]] = {}
    for rank, described in enumerate(descriptions):
        for entry in described:
            name = entry[0]
            before, known = first.setdefault(name, (rank, entry))
            if known != entry:
                raise ValueError(
                    f"{name}: {side} ranks have different tensors: rank {before} {known[1:]}, rank {rank} {entry[1:]}"
                )
            holders.setdefault(name, []).append(rank)
    specs = {}
    for name, (_, (_, mesh, layout, dtype, shape)) in first.items():
        if mesh is None:  # whole on each of the ranks that passed it
            mesh = mesh_of([("r", len(holders[name]))], holders[name])
        specs[name] = Spec(name, mesh, layout, dtype, tuple(shape))
    return specs


def mesh_of(axes: list[tuple[str, int]], ids: list[int]) -> str:
    """The text of a mesh over these devices, in row-major order."""
    text = "{" + ",".join(f"{name}:{size}" for name, size in axes) + "}"
    if ids == list(range(ids[0], ids[0] + len(ids))):
        return f"{text}@{ids[0]}" if ids[0] else text
    return f"{text}@[{','.join(map(str, ids))}]"


def recipe_text(recipe: str | os.PathLike | Mapping[str, Any] | None) -> str:
    if recipe is None:
        return ""
    if isinstance(recipe, Mapping):
        return json.dumps(recipe)
    with open(recipe, encoding="utf-8") as file:
        return file.read()


def dtype_of(text: str) -> torch.dtype:
    return getattr(torch, text.removeprefix("torch."))
