"""A rank's part of a tensor under a layout that no DTensor can have: flat ranges, expert slots, explicit sizes."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from ..errors import InputError
from ..flat import flat_layouts
from .groups import Span
from .layouts import axes_text, axis_names, mesh_text
from .private_pytorch import flat_parameters_of


class Fragment:
    """This rank's part of a tensor, under any layout.

        Fragment(local, mesh, "[<dp=[9,3]>(3, 4)]")

    `redistribute`, `bind`, `Refit`, `save` and `load` take fragments where they take DTensors.

    Args:
        local: what this rank holds, in the shape that the layout gives it: one dimension per dimension of the layout,
            so that flattened dimensions count as one. A rank outside the mesh has an empty tensor.
        mesh: that the layout is over.
        layout: as text, with sizes. Its axes are the names of the mesh's dimensions, or d0, d1, ... where it has none.

    Raises:
        InputError: not a layout of the mesh.
    """

    __slots__ = ("layout", "local", "mesh", "shape")

    def __init__(self, local: torch.Tensor, mesh: DeviceMesh, layout: str) -> None:
        self.local = local
        self.mesh = mesh
        self.layout = layout
        self.shape = torch.Size(torch.ops.reshard._layout_shape(layout, axes_text(mesh)))

    @property
    def dtype(self) -> torch.dtype:
        return self.local.dtype

    @property
    def device(self) -> torch.device:
        return self.local.device

    @property
    def requires_grad(self) -> bool:
        return self.local.requires_grad

    def texts(self, span: Span) -> tuple[str, str]:
        """Its mesh over the ranks of a group, and its layout."""
        return mesh_text(self.mesh, span), self.layout

    def __repr__(self) -> str:
        return f"Fragment(local={self.local}, mesh={axes_text(self.mesh)}, layout={self.layout!r})"


def fsdp1_fragments(module: torch.nn.Module, mesh: DeviceMesh | None = None) -> dict[str, Fragment]:
    """The parameters of a model in FullyShardedDataParallel, each as this rank's part of its flat parameter.

        reshard.save("step-1000", reshard.fsdp1_fragments(model))
        reshard.load("step-1000", reshard.fsdp1_fragments(model))       # written in place

    Nothing is copied: a fragment's memory is that of the flat parameter, between forward and backward passes.

    Args:
        module: has FullyShardedDataParallel modules with FULL_SHARD, SHARD_GRAD_OP or HYBRID_SHARD.
        mesh: one whose last dimension shards. None: the mesh that the model was given, or one over its process group.

    Returns:
        Fragments by name in the whole model, without the wrapper's own parts.

    Raises:
        InputError: a model without such modules, or parameters that are currently gathered.
    """
    found: dict[str, Fragment] = {}
    meshes: dict[Any, DeviceMesh] = {}
    for flat in flat_parameters_of(module):
        of_flat = mesh or flat.mesh
        if of_flat is None:
            if flat.group not in meshes:
                meshes[flat.group] = DeviceMesh.from_group(flat.group, flat.local.device.type, mesh_dim_names=("fsdp",))
            of_flat = meshes[flat.group]
        ranks = of_flat.size(of_flat.ndim - 1)
        shard = flat.local.numel()
        if shard != -(-flat.numel // ranks):
            raise InputError(f"the flat parameter of {flat.names[0]} has {shard} elements here, not a share of {flat.numel}")
        for name, offset, shape in zip(flat.names, flat.offsets, flat.shapes):
            found[name] = _in_buffer(flat.local, of_flat, shard, offset, shape)
    if not found:
        raise InputError("the model has no parameters of FullyShardedDataParallel")
    return found


def _in_buffer(local: torch.Tensor, mesh: DeviceMesh, shard: int, offset: int, shape: Sequence[int]) -> Fragment:
    """A tensor that begins at `offset` of a buffer. Each rank of the mesh's last dimension has `shard` elements of the
    buffer; this rank's are in `local`."""
    axis = mesh.ndim - 1
    first = mesh.get_local_rank(axis) * shard  # in the buffer
    whole = tuple(shape) or (1,)
    layout = flat_layouts([whole], mesh.size(axis), offsets=[offset], shard=shard, axis=axis_names(mesh)[-1])[0]
    begin = min(max(offset - first, 0), shard)
    end = min(max(offset + torch.Size(whole).numel() - first, begin), shard)
    return Fragment(local[begin:end], mesh, layout)


def zero3_fragments(module: torch.nn.Module, mesh: DeviceMesh | None = None) -> dict[str, Fragment]:
    """The parameters of a model under DeepSpeed's ZeRO 3, each as the part that this rank has.

        refit = reshard.Refit(source=reshard.zero3_fragments(engine.module), group=joined)     # nothing is gathered
        reshard.save("step-1000", reshard.zero3_fragments(engine.module))

    Nothing is copied: a fragment's memory is DeepSpeed's partition. Only read from it: of small parameters
    (stage3_param_persistence_threshold) DeepSpeed keeps whole copies, which do not follow writes.

    Args:
        module: the `module` of what deepspeed.initialize returns.
        mesh: of one dimension, over the ranks that share the parameters. None: one is made from their process group.

    Returns:
        Fragments by name.

    Raises:
        InputError: a model without such parameters; parts on NVMe, or of MiCS.
    """
    found: dict[str, Fragment] = {}
    meshes: dict[Any, DeviceMesh] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        part = getattr(parameter, "ds_tensor", None)
        if part is None:
            continue
        if hasattr(parameter, "comm"):
            raise InputError(f"{name}: MiCS shares parameters among some ranks, which is not supported")
        if part.status.name != "AVAILABLE":
            raise InputError(f"{name}: this rank's part is not in memory (offload_param to NVMe)")
        group = parameter.ds_process_group
        if mesh is None and group not in meshes:
            meshes[group] = DeviceMesh.from_group(group, part.device.type, mesh_dim_names=("zero",))
        of_part = mesh or meshes[group]
        found[name] = _in_buffer(part.detach().view(-1), of_part, int(part.ds_numel), 0, parameter.ds_shape)
    if not found:
        raise InputError("the model has no parameters of DeepSpeed's ZeRO 3; those of ZeRO 1 and 2 are whole on every rank")
    return found
