"""Redistribution of DTensors, also between layouts and meshes between which DTensor itself cannot go."""

from typing import Any, Sequence

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrder, TensorMeta
from torch.distributed.tensor.placement_types import _StridedShard

from .groups import Group, Span, span_of_group, span_of_meshes
from .layouts import layout_text, mesh_text, normalized_placements, normalized_shard_order


@torch._disable_dynamo  # a compiled function calls it between two graphs; within one, torch.ops.reshard.redistribute
def redistribute(
    dtensor: DTensor,
    mesh: DeviceMesh | None = None,
    placements: Sequence[Placement] | None = None,
    shard_order: ShardOrder | None = None,
    *,
    group: Group = None,
) -> DTensor:
    """The same tensor in another layout, moved in one plan whatever the two layouts are.

    Args:
        dtensor: any DTensor: sharded evenly or not, in any shard order, strided, with pending reductions.
        mesh: where the result lives; None for the same mesh. It may have another shape, and share all, some or no ranks
            with the tensor's.
        placements: one a mesh dimension. None takes them from shard_order.
        shard_order: PyTorch's form, ((tensor dimension, (mesh dimensions, the one applied first first)), ...).
            Dimensions that it does not mention are split left to right.
        group: a process group that contains both meshes. By default the group of exactly their ranks, which is the
            default group when they cover it; other ranks need not call, and get their empty result at once.

    Returns:
        A DTensor with fresh contiguous memory, never a view of the argument. A rank outside of `mesh` gets one whose
        local tensor is empty, just as it passes one when it is outside of the tensor's mesh.
        A shard order other than left to right is in the result's spec (`_spec.shard_order`). DTensor.full_tensor,
        DTensor.redistribute and this function go by it, but the operators of PyTorch 2.11, clone and detach among them,
        forget it: compute on to_local(), or redistribute back first.

    Differentiable, more than once too (DTensor.to_local is not): the gradient is redistributed back in one plan. Where
    the tensor has a pending reduction its gradient is replicated, as in DTensor; a pending average's is divided by the
    number of terms.

    Raises:
        TypeError: not a DTensor.
        ValueError: placements, shard order and mesh do not fit each other or the tensor.
        NotImplementedError: a placement that is no layout, a reduction pending in the result but not in the tensor; in
            the backward pass, a minimum, maximum or product.
        RuntimeError: ranks disagree; a rank was lost.
    """
    target = _target_spec(dtensor, mesh, placements, shard_order)
    span = _span(dtensor._spec, target, group)
    if span is None:
        return _from_local(_to_local(dtensor), target)  # in neither mesh
    source_mesh, source_layout, target_mesh, target_layout = _problem(dtensor._spec, target, span)
    local = _to_local(dtensor)
    if source_mesh == target_mesh:
        target_mesh = None
    out = torch.ops.reshard.redistribute(local, source_mesh, source_layout, target_layout, span.name, target_mesh)
    return _from_local(out, target)


@torch._disable_dynamo
def redistribute_all(
    dtensors: Sequence[DTensor],
    mesh: DeviceMesh | None,
    placements: Sequence[Placement] | Sequence[Sequence[Placement]],
    shard_orders: Sequence[ShardOrder | None] | None = None,
    *,
    group: Group = None,
) -> list[DTensor]:
    """`redistribute` for many tensors, a whole model say, in far fewer and larger messages.

    Tensors that stay on their mesh share their exchanges; those that change it go one by one.

    Args:
        placements: for all tensors the same, or a list with one for each.
        shard_orders: None, or one for each tensor.

    Returns and raises as `redistribute`, and ValueError where the lists are not equally long.
    """
    if len(placements) == 0 or isinstance(placements[0], Placement):
        placements = [placements] * len(dtensors)
    if shard_orders is None:
        shard_orders = [None] * len(dtensors)
    if not len(dtensors) == len(placements) == len(shard_orders):
        raise ValueError(f"{len(dtensors)} tensors, {len(placements)} placements, {len(shard_orders)} shard orders")
    results: list[Any] = [None] * len(dtensors)
    batches: dict[tuple[str, str], list[tuple[int, str, str]]] = {}  # of (mesh, group): position and two layouts
    targets = [_target_spec(*tensor) for tensor in zip(dtensors, [mesh] * len(dtensors), placements, shard_orders)]
    for index, (dtensor, target) in enumerate(zip(dtensors, targets)):
        span = _span(dtensor._spec, target, group)
        if span is None or dtensor._spec.mesh != target.mesh:
            results[index] = redistribute(dtensor, target.mesh, target.placements, target.shard_order, group=group)
            continue
        source_mesh, source_layout, _, target_layout = _problem(dtensor._spec, target, span)
        batches.setdefault((source_mesh, span.name), []).append((index, source_layout, target_layout))
    for (mesh_layout, group_name), batch in batches.items():
        indices, source_layouts, target_layouts = (list(column) for column in zip(*batch))
        outs = torch.ops.reshard.redistribute_batch(
            [_to_local(dtensors[index]) for index in indices], mesh_layout, source_layouts, target_layouts, group_name
        )
        for index, out in zip(indices, outs):
            results[index] = _from_local(out, targets[index])
    return results


def _target_spec(
    dtensor: DTensor,
    mesh: DeviceMesh | None,
    placements: Sequence[Placement] | None,
    shard_order: ShardOrder | None,
) -> DTensorSpec:
    if not isinstance(dtensor, DTensor):
        raise TypeError(f"a DTensor is needed, not {type(dtensor).__name__}; for local tensors, torch.ops.reshard")
    mesh = dtensor._spec.mesh if mesh is None else mesh
    shape = dtensor._spec.tensor_meta.shape
    placements = normalized_placements(mesh, placements, shard_order, len(shape))
    meta = TensorMeta(shape, _contiguous_stride(shape), dtensor._spec.tensor_meta.dtype)
    if any(isinstance(placement, _StridedShard) for placement in placements):
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


def _span(source: DTensorSpec, target: DTensorSpec, group: Group) -> Span | None:
    return span_of_meshes(source.mesh, target.mesh) if group is None else span_of_group(group)


def _problem(source: DTensorSpec, target: DTensorSpec, span: Span) -> tuple[str, str, str, str]:
    return tuple(
        text
        for spec in (source, target)
        for text in (
            mesh_text(spec.mesh, span),
            layout_text(spec.mesh, spec.placements, spec.shard_order, spec.tensor_meta.shape, span),
        )
    )


def _outside(local: torch.Tensor, spec: DTensorSpec) -> torch.Tensor:
    """What a rank outside of the mesh holds: nothing, in as many dimensions as the tensor has, since the backward of
    DTensor.to_local looks its sizes up."""
    return local.flatten()[:0].view([0] * max(1, len(spec.tensor_meta.shape)))


def _to_local(dtensor: DTensor) -> torch.Tensor:
    if torch.is_grad_enabled() and dtensor.requires_grad:
        return _ToLocal.apply(dtensor)
    return dtensor._local_tensor


def _from_local(local: torch.Tensor, spec: DTensorSpec) -> DTensor:
    if spec.mesh.get_coordinate() is None:
        local = _outside(local, spec)
    if torch.is_grad_enabled() and local.requires_grad:
        return _FromLocal.apply(local, spec)
    return DTensor(local, spec, requires_grad=False)


def _gradient_spec(spec: DTensorSpec) -> DTensorSpec:
    """Where a tensor has a pending reduction, its gradient is replicated."""
    if not any(isinstance(placement, Partial) for placement in spec.placements):
        return spec
    placements = tuple(Replicate() if isinstance(p, Partial) else p for p in spec.placements)
    order = None if spec.use_strided_shard_as_shard_order else spec.shard_order
    return DTensorSpec(spec.mesh, placements, tensor_meta=spec.tensor_meta, shard_order=order)


# DTensor.to_local and DTensor.from_local know nothing of shard orders. These two do, and each is the other's gradient.
class _ToLocal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, dtensor: DTensor) -> torch.Tensor:
        ctx.spec = dtensor._spec
        return dtensor._local_tensor.view_as(dtensor._local_tensor)

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
        if not _holds(grad._spec, wanted):
            grad = redistribute(grad, wanted.mesh, wanted.placements, wanted.shard_order)
        return _to_local(grad), None


def _holds(grad: DTensorSpec, wanted: DTensorSpec) -> bool:
    if grad.mesh != wanted.mesh or grad.placements != wanted.placements:
        return False
    if grad.shard_order == wanted.shard_order:
        return True
    # DTensor.to_local's backward drops the shard order, but leaves the elements where they are, whenever a stride of
    # the whole tensor is not what it computes from the local one as if all shards were equal. Those strides tell.
    return grad.tensor_meta.stride != wanted.tensor_meta.stride
