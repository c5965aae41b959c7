"""Redistribution of DTensors, including between layouts and meshes that DTensor itself does not support."""

from typing import Any, NamedTuple, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate

from ..arguments import byte_count
from .fragments import Fragment
from .groups import Group, Span, span_of_group, span_of_meshes
from .layouts import (
    layout_of_rule,
    mesh_text,
    normalized_placements,
    normalized_shard_order,
    placements_of_text,
    spec_texts,
)
from .private_pytorch import DTensorSpec, ShardOrder, StridedShard, TensorMeta, disable_dynamo, local_of, spec_of

# One placement per mesh dimension, or a layout as text: "[<dp>8, <tp>4]", or "[<dp>, <tp>]" for any sizes.
Placements = Sequence[Placement] | str


@disable_dynamo  # compiled functions call it between graphs; within one, use torch.ops.reshard.redistribute
def redistribute(
    dtensor: DTensor | Fragment,
    mesh: DeviceMesh | Placements | None = None,
    placements: Placements | None = None,
    shard_order: ShardOrder | None = None,
    *,
    device_mesh: DeviceMesh | None = None,
    group: Group = None,
) -> DTensor | Fragment:
    """Returns the same tensor in another layout. It is moved by a single plan, whatever the two layouts are.

        reshard.redistribute(x, [Shard(1)])
        reshard.redistribute(x, "[<tp,dp>, ...]")
        reshard.redistribute(x, other_mesh, [Shard(0), Replicate()])

    Args:
        dtensor: any DTensor: sharded evenly or unevenly, in any shard order, strided, or partial. Or a `Fragment`.
        mesh: the mesh of the result; None means that of the tensor. It may have another shape, and share all, some or
            no ranks with the tensor's mesh. `device_mesh` is the same argument by its name in DTensor.redistribute.
            Without a mesh, the placements may come here.
        placements: one per mesh dimension, or a layout as text, whose axes are the names of the mesh's dimensions (d0,
            d1, ... where it has none) and which says the shard order, too. None takes them from shard_order.
        shard_order: in PyTorch's form, ((tensor dimension, (mesh dimensions, in the order of application)), ...).
            Dimensions that it does not mention are split left to right.
        group: a process group that contains both meshes. By default the group of exactly their ranks, which is the
            default group if they cover it; other ranks need not call, and get their empty result immediately.

    Returns:
        A DTensor with new contiguous memory, never a view of the argument; a `Fragment` where a layout as text flattens
        dimensions, has explicit sizes, or cannot be a DTensor's for another reason. A rank outside `mesh` gets one whose
        local tensor is empty, just as a rank outside the tensor's mesh passes one.
        A shard order other than left to right is stored in the result's spec (`_spec.shard_order`).
        DTensor.full_tensor, DTensor.redistribute and this function respect it, but the operators of PyTorch 2.11, such
        as clone and detach, drop it unless `install` was called: compute on to_local(), or redistribute back first.

    Differentiable, also more than once (which DTensor.to_local is not): the gradient is redistributed back by a single
    plan. If the tensor is partial, its gradient is replicated, as in DTensor; for a partial average it is divided by
    the number of terms.

    Raises:
        TypeError: neither a DTensor nor a Fragment; two meshes, or two placements.
        ValueError: placements, shard order and mesh do not fit each other or the tensor.
        NotImplementedError: a placement that no layout can express, or a result that is partial where the tensor is
            not; in the backward pass, a partial minimum, maximum or product.
        RuntimeError: ranks disagree, or a rank was lost.
    """
    if mesh is not None and not isinstance(mesh, DeviceMesh):
        if placements is not None:
            raise TypeError(f"placements twice: {mesh!r} and {placements!r}")
        mesh, placements = None, mesh
    if device_mesh is not None:
        if mesh is not None:
            raise TypeError("mesh and device_mesh are the same argument")
        mesh = device_mesh
    target = _target(dtensor, mesh, placements, shard_order)
    source = _described(dtensor)
    span = _span(source, target, group)
    if span is None:
        return _from_local(_to_local(dtensor), target)  # in neither mesh
    source_mesh, source_layout, target_mesh, target_layout = _problem(source, target, span)
    local = _to_local(dtensor)
    if source_mesh == target_mesh:
        target_mesh = None
    out = torch.ops.reshard.redistribute(local, source_mesh, source_layout, target_layout, span.name, target_mesh)
    return _from_local(out, target)


@disable_dynamo
def redistribute_all(
    dtensors: Sequence[DTensor | Fragment],
    mesh: DeviceMesh | None | Sequence[DeviceMesh | None],
    placements: Placements | Sequence[Placements],
    shard_orders: Sequence[ShardOrder | None] | None = None,
    *,
    group: Group = None,
    memory_limit: int | str | None = None,
) -> list[DTensor | Fragment]:
    """`redistribute` for many tensors, such as a whole model, with far fewer and larger messages.

    Tensors share exchanges, whatever meshes they are on and go to, if these together have the same ranks; with
    `group`, all do. Their gradients share exchanges, too.

    Args:
        mesh: the mesh for all results, or a list with one per tensor; None means that of the tensor.
        placements: the placements for all tensors, or a list with those for each tensor; also as text.
        shard_orders: None, or one per tensor.
        group: a process group that contains all meshes, whose ranks all make the same call. By default, tensors are
            moved by the group of exactly the ranks of their two meshes, as in `redistribute`.
        memory_limit: the most that a device may need at once for the sources, results and staging of the tensors of
            one exchange: bytes, or text such as "256MiB". A batch that needs more takes several exchanges. The same on all
            ranks. None: exchanges of at most 256 MiB per rank.

    Returns and raises the same as `redistribute`, ValueError if the lists differ in length, and torch.OutOfMemoryError
    for a single tensor that needs more than the limit.
    """
    limit = byte_count(memory_limit)
    meshes = [mesh] * len(dtensors) if mesh is None or isinstance(mesh, DeviceMesh) else list(mesh)
    if isinstance(placements, str) or len(placements) == 0 or isinstance(placements[0], Placement):
        placements = [placements] * len(dtensors)
    if shard_orders is None:
        shard_orders = [None] * len(dtensors)
    if not len(dtensors) == len(meshes) == len(placements) == len(shard_orders):
        raise ValueError(
            f"{len(dtensors)} tensors, {len(meshes)} meshes, {len(placements)} placements, "
            f"{len(shard_orders)} shard orders"
        )
    results: list[Any] = [None] * len(dtensors)
    # By group and kind of device: position, and texts of both meshes and layouts.
    batches: dict[tuple[str, str], list[tuple[int, str, str, str, str]]] = {}
    targets = [_target(*tensor) for tensor in zip(dtensors, meshes, placements, shard_orders)]
    for index, (dtensor, target) in enumerate(zip(dtensors, targets)):
        source = _described(dtensor)
        span = _span(source, target, group)
        if span is None:  # in neither mesh
            results[index] = _from_local(_to_local(dtensor), target)
            continue
        batch = batches.setdefault((span.name, source.mesh.device_type), [])
        batch.append((index, *_problem(source, target, span, f"tensor {index}")))
    for (group_name, _), batch in batches.items():
        indices, sources, source_layouts, target_meshes, target_layouts = (list(column) for column in zip(*batch))
        outs = torch.ops.reshard.redistribute_batch(
            [_to_local(dtensors[index]) for index in indices],
            sources,
            source_layouts,
            target_layouts,
            group_name,
            target_meshes,
            limit,
        )
        for index, out in zip(indices, outs):
            results[index] = _from_local(out, targets[index])
    return results


class _FragmentSpec(NamedTuple):
    """A fragment without its memory."""

    mesh: DeviceMesh
    layout: str
    shape: torch.Size


def _described(tensor: DTensor | Fragment) -> DTensorSpec | _FragmentSpec:
    if isinstance(tensor, Fragment):
        return _FragmentSpec(tensor.mesh, tensor.layout, tensor.shape)
    if not isinstance(tensor, DTensor):
        raise TypeError(
            f"a DTensor or a Fragment is needed, not {type(tensor).__name__}; for local tensors, torch.ops.reshard"
        )
    return spec_of(tensor)


def _target(
    tensor: DTensor | Fragment,
    mesh: DeviceMesh | None,
    placements: Placements | None,
    shard_order: ShardOrder | None,
) -> DTensorSpec | _FragmentSpec:
    """Like `target_spec`, but also for a fragment, and for a layout that only a fragment can have."""
    source = _described(tensor)
    mesh = source.mesh if mesh is None else mesh
    shape = source.shape if isinstance(source, _FragmentSpec) else source.tensor_meta.shape
    if isinstance(placements, str) and not shard_order:
        layout = layout_of_rule(mesh, placements, shape)
        try:
            placements, shard_order = placements_of_text(mesh, layout, shape)
        except NotImplementedError:
            return _FragmentSpec(mesh, layout, shape)
    return spec_in(mesh, placements, shard_order, shape, tensor.dtype)


def target_spec(
    dtensor: DTensor,
    mesh: DeviceMesh | None,
    placements: Placements | None,
    shard_order: ShardOrder | None,
) -> DTensorSpec:
    """What a DTensor would be in another layout; arguments and errors are those of `redistribute`."""
    if not isinstance(dtensor, DTensor):
        raise TypeError(f"a DTensor is needed, not {type(dtensor).__name__}; for local tensors, torch.ops.reshard")
    mesh = spec_of(dtensor).mesh if mesh is None else mesh
    meta = spec_of(dtensor).tensor_meta
    return spec_in(mesh, placements, shard_order, meta.shape, meta.dtype)


def spec_in(
    mesh: DeviceMesh,
    placements: Placements | None,
    shard_order: ShardOrder | None,
    shape: torch.Size,
    dtype: torch.dtype,
) -> DTensorSpec:
    """What a DTensor of this shape and dtype is in a layout; arguments and errors are those of `redistribute`."""
    if isinstance(placements, str):
        if shard_order:
            raise ValueError(f"{placements!r} says the shard order already; {shard_order} cannot be given too")
        placements, shard_order = placements_of_text(mesh, placements, shape)
    placements = normalized_placements(mesh, placements, shard_order, len(shape))
    meta = TensorMeta(shape, _contiguous_stride(shape), dtype)
    if any(isinstance(placement, StridedShard) for placement in placements):
        if shard_order:
            raise ValueError(f"_StridedShard says the shard order already; {shard_order} cannot be given too")
        return DTensorSpec(mesh, placements, tensor_meta=meta)
    order = normalized_shard_order(placements, shard_order, len(shape))
    return DTensorSpec(mesh, placements, tensor_meta=meta, shard_order=order)


def _contiguous_stride(shape: torch.Size) -> tuple[int, ...]:
    strides, stride = [], 1
    for size in reversed(shape):
        strides.append(stride)
        stride *= max(size, 1)
    return tuple(reversed(strides))


def _span(source: DTensorSpec | _FragmentSpec, target: DTensorSpec | _FragmentSpec, group: Group) -> Span | None:
    return span_of_meshes(source.mesh, target.mesh) if group is None else span_of_group(group)


def _problem(
    source: DTensorSpec | _FragmentSpec, target: DTensorSpec | _FragmentSpec, span: Span, name: str = ""
) -> tuple[str, str, str, str]:
    def texts(spec: DTensorSpec | _FragmentSpec) -> tuple[str, str]:
        if isinstance(spec, _FragmentSpec):
            return mesh_text(spec.mesh, span), spec.layout
        return spec_texts(spec, span, name)

    return *texts(source), *texts(target)


def _outside(local: torch.Tensor, spec: DTensorSpec) -> torch.Tensor:
    """What a rank outside the mesh holds: no elements, but as many dimensions as the tensor has, since the backward of
    DTensor.to_local looks up their sizes."""
    return local.flatten()[:0].view([0] * max(1, len(spec.tensor_meta.shape)))


def _to_local(dtensor: DTensor | Fragment) -> torch.Tensor:
    if isinstance(dtensor, Fragment):
        return dtensor.local
    if torch.is_grad_enabled() and dtensor.requires_grad:
        return _ToLocal.apply(dtensor)
    return local_of(dtensor)


def _from_local(local: torch.Tensor, spec: DTensorSpec | _FragmentSpec) -> Any:
    if isinstance(spec, _FragmentSpec):
        return Fragment(local, spec.mesh, spec.layout)
    if spec.mesh.get_coordinate() is None:
        local = _outside(local, spec)
    if torch.is_grad_enabled() and local.requires_grad:
        return _FromLocal.apply(local, spec)
    return DTensor(local, spec, requires_grad=False)


def _gradient_spec(spec: DTensorSpec) -> DTensorSpec:
    """The gradient is replicated where the tensor is partial."""
    if not any(isinstance(placement, Partial) for placement in spec.placements):
        return spec
    placements = tuple(Replicate() if isinstance(p, Partial) else p for p in spec.placements)
    order = None if spec.use_strided_shard_as_shard_order else spec.shard_order
    return DTensorSpec(spec.mesh, placements, tensor_meta=spec.tensor_meta, shard_order=order)


# DTensor.to_local and DTensor.from_local ignore shard orders. These two keep them, and each is the other's gradient.
class _ToLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtensor: DTensor) -> torch.Tensor:
        ctx.spec = spec_of(dtensor)
        local = local_of(dtensor)
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> DTensor:
        return _from_local(grad, _gradient_spec(ctx.spec))


class _FromLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: torch.Tensor, spec: DTensorSpec) -> DTensor:
        ctx.spec = spec
        return DTensor(local.view_as(local), spec, requires_grad=local.requires_grad)

    @staticmethod
    def backward(ctx: Any, grad: DTensor) -> tuple[torch.Tensor, None]:
        wanted = _gradient_spec(ctx.spec)
        if not _holds(spec_of(grad), wanted):
            grad = redistribute(grad, wanted.mesh, wanted.placements, wanted.shard_order)
        return _to_local(grad), None


def _holds(grad: DTensorSpec, wanted: DTensorSpec) -> bool:
    if grad.mesh != wanted.mesh or grad.placements != wanted.placements:
        return False
    if grad.shard_order == wanted.shard_order:
        return True
    # The backward of DTensor.to_local drops the shard order, but leaves the elements where they are, if a stride of the
    # whole tensor differs from what it computes from the local one as if all shards were equal. So the strides tell.
    return grad.tensor_meta.stride != wanted.tensor_meta.stride
