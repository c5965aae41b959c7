"""What each side of a refit has: every rank learns it of all others."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from ..entries import entries_of
from ..fragments import Fragment
from ..groups import Span
from ..mesh_texts import merged


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


class Row(NamedTuple):
    """What the parameters of some ranks are made of: one row of a target tensor."""

    target: str
    row: int  # -1: all of it
    boxes: str  # of the source: JSON, as Made.boxes
    text: str  # what it is made of, for people


class Agreed(NamedTuple):
    """What all ranks know after discovery."""

    source: Side
    target: Side
    recipe: str  # as JSON; "" where there is none
    memory_limit: int | None  # bytes, of the rank that gives the least
    on_gpus: bool  # any tensor of any rank
    rows: list[Row] | None = None  # where loaders say what the target is made of
    kept: list[int] | None = None  # bytes, by rank, beside the tensors and what is staged


def describe(tensors: Mapping[str, torch.Tensor | Fragment], span: Span) -> tuple[dict[str, torch.Tensor], list[list[Any]]]:
    """This rank's shards, and what the other ranks must know of them.

    Raises:
        ValueError: a tensor that is not plain memory; a mesh with a rank that is not in the group.
        NotImplementedError: placements that are not a layout.
    """
    shards: dict[str, torch.Tensor] = {}
    described: list[list[Any]] = []
    for name, entry in entries_of(dict(tensors), span).items():
        local = entry.local
        if local.layout != torch.strided or local.is_conj() or local.is_neg():
            raise ValueError(f"{name}: only plain strided tensors are moved")
        if "(" in entry.layout and not local.is_contiguous():
            raise ValueError(f"{name}: what a fragment has of flattened dimensions is one run of memory")
        shards[name] = local
        described.append([name, entry.mesh, entry.layout, entry.dtype, list(tensors[name].shape)])
    return shards, described


def merge(descriptions: list[list[list[Any]]], side: str) -> dict[str, Spec]:
    """The tensors of all ranks of one side, by name, in the order in which the ranks have them.

    Raises:
        ValueError: ranks that have different tensors under one name.
    """

    def differ(name: str, rank: int, has: tuple, other: int, its: tuple) -> str:
        return f"{name}: {side} ranks have different tensors: rank {rank} {list(has)}, rank {other} {list(its)}"

    return {
        name: Spec(name, mesh, layout, dtype, tuple(shape))
        for name, (mesh, layout, dtype, shape) in merged(descriptions, "r", differ).items()
    }
