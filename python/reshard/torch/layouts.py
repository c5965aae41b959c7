"""Converts PyTorch's meshes and placements to the text form of meshes and layouts."""

import functools
import re
import weakref
from typing import Any, Callable, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from .groups import Span
from .private_pytorch import DTensorSpec, ShardOrder, ShardOrderEntry, StridedShard

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*", re.ASCII)
# As the library writes them: S(0), S(0)[1] with its place in the shard order, _S(0, 2), R, P(sum).
_PLACEMENT = re.compile(r"S\((\d+)\)(?:\[(\d+)\])?|_S\((\d+), (\d+)\)|(R)|P\((\w+)\)")


def _remembered(function: Callable[..., str]) -> Callable[..., str]:
    """Remembers what a function of a mesh and other arguments returns, as long as the mesh lives.

    functools.lru_cache would keep the mesh alive, and a mesh keeps process groups: their threads would then still run
    when the interpreter ends, long after torch.distributed.destroy_process_group.
    """
    longest = 65536  # texts of one mesh
    texts: weakref.WeakKeyDictionary[DeviceMesh, dict[tuple, str]] = weakref.WeakKeyDictionary()

    @functools.wraps(function)
    def remembered(mesh: DeviceMesh, *arguments: Any) -> str:
        known = texts.get(mesh)
        if known is None:
            known = texts.setdefault(mesh, {})
        text = known.get(arguments)
        if text is None:
            text = function(mesh, *arguments)
            if len(known) >= longest:
                known.clear()
            known[arguments] = text
        return text

    return remembered


def axis_names(mesh: DeviceMesh) -> tuple[str, ...]:
    """The names of a mesh's axes: those of its dimensions if all are valid, else d0, d1, ..."""
    names = mesh.mesh_dim_names or ()
    if not names or len(set(names)) < len(names) or not all(_NAME.fullmatch(name) for name in names):
        return tuple(f"d{dim}" for dim in range(mesh.ndim))
    return tuple(names)


@_remembered
def axes_text(mesh: DeviceMesh) -> str:
    """The text of a mesh without its devices."""
    return "{" + ",".join(f"{name}:{size}" for name, size in zip(axis_names(mesh), mesh.shape)) + "}"


@_remembered
def mesh_text(mesh: DeviceMesh, span: Span) -> str:
    """The text of a mesh over the ranks of a group."""
    axes = axes_text(mesh)
    ids = span.device_ids(mesh)
    if ids == tuple(range(ids[0], ids[0] + len(ids))):
        return f"{axes}@{ids[0]}" if ids[0] else axes
    return f"{axes}@[{','.join(map(str, ids))}]"


@_remembered
def layout_text(
    mesh: DeviceMesh,
    placements: tuple[Placement, ...],
    shard_order: ShardOrder | None,
    shape: torch.Size,
    span: Span,
) -> str:
    """The text of the layout of a DTensor.

    Raises:
        NotImplementedError: a placement that no layout can express: partial values other than reductions, and nested
            strided shards that do not divide evenly and whose split factors give no order of the mesh dimensions.
    """
    text = _placements_text(placements, shard_order)
    return torch.ops.reshard._layout_from_dtensor(text, mesh_text(mesh, span), list(shape))


def spec_texts(spec: DTensorSpec, span: Span, name: str = "") -> tuple[str, str]:
    """The texts of a DTensor's mesh and layout.

    Args:
        name: of the tensor, where it has one, for errors.

    Raises:
        NotImplementedError: a placement that no layout can express.
    """
    shape = spec.tensor_meta.shape
    try:
        layout = layout_text(spec.mesh, spec.placements, spec.shard_order, shape, span)
    except NotImplementedError as error:
        which = name or "a DTensor"
        raise NotImplementedError(f"{which} of shape {list(shape)} over {axes_text(spec.mesh)}: {error}") from error
    return mesh_text(spec.mesh, span), layout


def _placements_text(placements: tuple[Placement, ...], shard_order: ShardOrder | None) -> str:
    # Strided shards come without an order, because their split factors say one. A spec in which they do not
    # (use_strided_shard_as_shard_order is False) has an order, in which they are then split one by one.
    position = {}
    for entry in shard_order or ():
        if len(entry.mesh_dims) > 1:
            position.update({mesh_dim: index for index, mesh_dim in enumerate(entry.mesh_dims)})
    texts = []
    for mesh_dim, placement in enumerate(placements):
        if isinstance(placement, StridedShard):
            text = f"_S({placement.dim}, {placement.split_factor})"
        elif isinstance(placement, Shard):
            text = f"S({placement.dim})"
        elif isinstance(placement, Replicate):
            text = "R"
        elif type(placement).__name__ in ("RaggedShard", "_StridedRaggedShard"):  # of another package, such as veScale
            text = repr(placement)
        elif type(placement) is Partial:  # its subclasses interpret their values differently
            text = f"P({placement.reduce_op})"
        else:
            raise NotImplementedError(
                f"{placement!r} of mesh dimension {mesh_dim} is not a layout; redistribute it to Replicate first"
            )
        texts.append(f"{text}[{position[mesh_dim]}]" if mesh_dim in position else text)
    return "".join(texts)


def placements_of_text(
    mesh: DeviceMesh, layout: str, shape: torch.Size
) -> tuple[tuple[Placement, ...], ShardOrder | None]:
    """The placements and shard order of a layout, or of a layout rule for a tensor of this shape: "[<dp>8, <tp>4]",
    "[<tp,dp>, ...]". Axes are the mesh's names, or d0, d1, ... where it has none.

    Raises:
        ValueError: text that does not parse, or does not fit the mesh or the shape.
        NotImplementedError: a layout that no placements express.
    """
    placements: list[Placement] = []
    order: dict[int, list[tuple[int, int]]] = {}  # of each tensor dimension: place in the order, mesh dimension
    text = _dtensor_text(mesh, layout, shape)
    if "RaggedShard" in text:
        raise NotImplementedError(f"{layout} is {text}, which this PyTorch does not have")
    for mesh_dim, match in enumerate(_PLACEMENT.finditer(text)):
        sharded, place, strided, factor, replicated, op = match.groups()
        if sharded is not None:
            placements.append(Shard(int(sharded)))
            order.setdefault(int(sharded), []).append((int(place or 0), mesh_dim))
        elif strided is not None:
            placements.append(StridedShard(int(strided), split_factor=int(factor)))
        else:
            placements.append(Replicate() if replicated else Partial(op))
    entries = [ShardOrderEntry(dim, tuple(at for _, at in sorted(splits))) for dim, splits in sorted(order.items())]
    if any(isinstance(placement, StridedShard) for placement in placements):
        return tuple(placements), None  # the library writes no shard order beside strided shards
    return tuple(placements), tuple(entries)


@_remembered
def layout_of_rule(mesh: DeviceMesh, rule: str, shape: torch.Size) -> str:
    """The layout that a layout rule gives for a tensor of this shape.

    Raises:
        ValueError: text that does not parse, or does not fit the mesh or the shape.
    """
    return torch.ops.reshard._layout_of_rule(rule, axes_text(mesh), list(shape))


@_remembered
def _dtensor_text(mesh: DeviceMesh, layout: str, shape: torch.Size) -> str:
    return torch.ops.reshard._layout_to_dtensor(layout, axes_text(mesh), list(shape))


def normalized_placements(
    mesh: DeviceMesh, placements: Sequence[Placement] | None, shard_order: ShardOrder | None, ndim: int
) -> tuple[Placement, ...]:
    """One placement per mesh dimension, with non-negative tensor dimensions; None takes them from shard_order.

    Raises:
        ValueError: not one placement per mesh dimension, or a tensor dimension that does not exist.
    """
    if placements is None:
        if shard_order is None:
            raise ValueError("placements are needed, or a shard_order to take them from")
        placements = [Replicate()] * mesh.ndim
        for tensor_dim, mesh_dims in shard_order:
            for mesh_dim in mesh_dims:
                if not 0 <= mesh_dim < mesh.ndim:
                    raise ValueError(f"shard_order {shard_order}: there is no mesh dimension {mesh_dim}")
                placements[mesh_dim] = Shard(tensor_dim)
    if len(placements) != mesh.ndim:
        raise ValueError(f"{len(placements)} placements for a mesh of {mesh.ndim} dimensions")
    normalized = []
    for placement in placements:
        if isinstance(placement, (Shard, StridedShard)):
            dim = placement.dim + ndim if placement.dim < 0 else placement.dim
            if not 0 <= dim < ndim:
                raise ValueError(f"{placement}: the tensor has {ndim} dimensions")
            if isinstance(placement, StridedShard):
                placement = StridedShard(dim, split_factor=placement.split_factor)
            else:
                placement = Shard(dim)
        normalized.append(placement)
    return tuple(normalized)


def normalized_shard_order(placements: tuple[Placement, ...], shard_order: ShardOrder | None, ndim: int) -> ShardOrder:
    """The shard order in PyTorch's form, sorted and complete: a tensor dimension that it does not mention is split left
    to right.

    Raises:
        ValueError: it does not name exactly the mesh dimensions that shard a tensor dimension, each once.
    """
    order = {entry.tensor_dim: entry for entry in DTensorSpec.compute_default_shard_order(placements)}
    for tensor_dim, mesh_dims in shard_order or ():
        dim = tensor_dim + ndim if tensor_dim < 0 else tensor_dim
        expected = order[dim].mesh_dims if dim in order else ()
        if sorted(mesh_dims) != list(expected):
            raise ValueError(
                f"shard_order splits tensor dimension {tensor_dim} by mesh dimensions {tuple(mesh_dims)}, "
                f"but the placements {placements} by {expected}"
            )
        order[dim] = ShardOrderEntry(dim, tuple(mesh_dims))
    return tuple(order[dim] for dim in sorted(order))
