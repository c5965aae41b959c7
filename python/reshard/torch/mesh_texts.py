"""Meshes as text: over given ranks, and of one tensor that several of them have."""

import torch


def mesh_of(axes: list[tuple[str, int]], ids: list[int]) -> str:
    """The text of a mesh over these devices, in row-major order."""
    text = "{" + ",".join(f"{name}:{size}" for name, size in axes) + "}"
    if ids == list(range(ids[0], ids[0] + len(ids))):
        return f"{text}@{ids[0]}" if ids[0] else text
    return f"{text}@[{','.join(map(str, ids))}]"


def alike(mesh: str | None, other: str | None) -> bool:
    """Whether both are meshes of the same axes, or neither is one. FSDP2 leaves a parameter that tensor parallelism does
    not shard on the slice of its rank: each slice has all of it."""
    return mesh == other or bool(mesh and other and _axes(mesh) == _axes(other))


def together(name: str, meshes: list[str]) -> str:
    """Meshes with the same axes, of which each has all of a tensor, as one with one axis more.

    Raises:
        ValueError: they overlap.
    """
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
