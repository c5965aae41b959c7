"""Meshes as text: over given ranks, and of one tensor that several of them have."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def mesh_of(axes: list[tuple[str, int]], ids: list[int]) -> str:
    """The text of a mesh over these devices, in row-major order."""
    text = "{" + ",".join(f"{name}:{size}" for name, size in axes) + "}"
    if ids == list(range(ids[0], ids[0] + len(ids))):
        return f"{text}@{ids[0]}" if ids[0] else text
    return f"{text}@[{','.join(map(str, ids))}]"


def alike(answers: Sequence[T]) -> list[tuple[list[int], T]]:
    """What ranks say, once for all that share the object, as `gathered` of entries.py returns it: these ranks, ascending,
    and the object.
    """
    ranks: dict[int, tuple[list[int], T]] = {}
    for rank, answer in enumerate(answers):
        ranks.setdefault(id(answer), ([], answer))[0].append(rank)
    return list(ranks.values())


def merged(
    described: list[list[list[Any]]],
    replicas: str,
    differ: Callable[[str, int, tuple[Any, ...], int, tuple[Any, ...]], str],
) -> dict[str, tuple[Any, ...]]:
    """What all ranks together have of each tensor, in the order in which they have them: (mesh, *rest) by name.

    A tensor may be on several meshes, each of which has all of it, such as the slices of a larger mesh: FSDP2 leaves a
    parameter that tensor parallelism does not shard on the slice of its rank.

    Args:
        described: for each rank, [name, mesh, *rest] for each of its tensors; a mesh of None is a tensor that is whole
            on each of the ranks that have it.
        replicas: the axis of the mesh of those ranks.
        differ: makes the message from a name, a rank and what it has of it, and another rank and what that has.

    Raises:
        ValueError: ranks that have different tensors under one name; meshes that overlap.
    """
    first: dict[str, tuple[int, tuple[Any, ...]]] = {}
    holders: dict[str, list[int]] = {}
    meshes: dict[str, list[str]] = {}
    for ranks, tensors in alike(described):
        for name, mesh, *rest in tensors:
            before, (known_mesh, *known) = first.setdefault(name, (ranks[0], (mesh, *rest)))
            if known != rest or not _of_same_axes(mesh, known_mesh):
                raise ValueError(differ(name, before, (known_mesh, *known), ranks[0], (mesh, *rest)))
            holders.setdefault(name, []).extend(ranks)
            if mesh and mesh not in meshes.setdefault(name, []):
                meshes[name].append(mesh)
    result = {}
    for name, (_, (mesh, *rest)) in first.items():
        if mesh is None:
            together = mesh_of([(replicas, len(holders[name]))], sorted(holders[name]))
        else:
            together = _together(name, meshes[name])
        result[name] = (together, *rest)
    return result


def _of_same_axes(mesh: str | None, other: str | None) -> bool:
    """Whether both are meshes of the same axes, or neither is one."""
    return mesh == other or bool(mesh and other and _axes(mesh) == _axes(other))


def _together(name: str, meshes: list[str]) -> str:
    """Meshes with the same axes, of which each has all of a tensor, as one with one axis more."""
    if len(meshes) == 1:
        return meshes[0]
    ids: list[int] = []
    for mesh in meshes:
        ids += torch.ops.reshard._shards(mesh, "[]")  # of a tensor without dimensions, just the devices
    if len(set(ids)) < len(ids):
        raise ValueError(f"{name}: ranks have it on meshes that overlap: {', '.join(meshes)}")
    return f"{{copies_:{len(meshes)},{_axes(meshes[0])[1:]}}}@[{','.join(map(str, ids))}]"


def _axes(mesh: str) -> str:
    return mesh.partition("}")[0]
