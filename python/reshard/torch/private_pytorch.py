"""Every private part of PyTorch that this package cannot do without. What `reshard.install` replaces is in
pytorch_hooks; nothing else here names a private part (tests/runtime/pytorch/private_parts_test.py looks).

Tried with PyTorch 2.11. Where another release lacks one, importing this says which, in place of an AttributeError later.
"""

import datetime
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d
from torch.distributed.tensor import DTensor

# By owner. Groups: PyTorch makes none over the ranks of some meshes only, under a name of our own, nor any over
# the processes of several jobs. Without the others neither DTensors nor groups can be told apart from their names.
REQUIRED: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (torch, ("_disable_dynamo",)),
    (
        c10d,
        (
            "GroupName",
            "_get_default_store",
            "_get_default_timeout",
            "_new_process_group_helper",
            "_register_process_group",
            "_resolve_process_group",
            "_unregister_process_group",
            "_world",
        ),
    ),
    (dist.ProcessGroup, ("_register_backend", "_set_default_backend", "_set_group_desc", "_set_group_name")),
)


def require(parts: tuple[tuple[Any, tuple[str, ...]], ...] = REQUIRED) -> None:
    """Raises:
    ImportError: this PyTorch lacks one of the parts; all that it lacks are named.
    """
    lacking = [f"{owner.__name__}.{name}" for owner, names in parts for name in names if not hasattr(owner, name)]
    if lacking:
        raise ImportError(_lacks(", ".join(lacking)))


def _lacks(what: str) -> str:
    return f"reshard was tried with PyTorch 2.11, and this is {torch.__version__}, which lacks what it needs: {what}"


require()
try:
    # The spec of a DTensor: its mesh, placements, shard order and global sizes.
    from torch.distributed.tensor._dtensor_spec import DTensorSpec, ShardOrder, ShardOrderEntry, TensorMeta

    # Shards in an order other than left to right, as FSDP2 over tensor parallelism has them.
    from torch.distributed.tensor.placement_types import _StridedShard as StridedShard

    # Arguments of operators, nested in any way.
    from torch.utils import _pytree as pytree

    # Sees every operator that is called, below autograd.
    from torch.utils._python_dispatch import TorchDispatchMode
except ImportError as error:
    raise ImportError(_lacks(str(error))) from error

__all__ = [
    "ENDS_OF_GROUPS",
    "DTensorSpec",
    "DispatchMode",
    "FlatParameter",
    "ShardOrder",
    "ShardOrderEntry",
    "StridedShard",
    "TensorMeta",
    "connect_group",
    "default_store",
    "disable_dynamo",
    "flat_parameters_of",
    "forget_group",
    "local_of",
    "make_wrapper",
    "named_group",
    "own_tensors",
    "pytree",
    "straight_to_dispatch",
    "resolve_group",
    "schema_of",
    "spec_of",
    "storage_info",
    "storage_key",
    "storage_prefix",
    "use_group",
]

# What takes groups from the registry in which operators find them, as destroy_process_group's last step.
ENDS_OF_GROUPS = ("_unregister_process_group", "_unregister_all_process_groups")

# torch.compiler.disable would import the compiler into every program that imports this.
disable_dynamo = torch._disable_dynamo


def spec_of(dtensor: DTensor) -> DTensorSpec:
    """With the shard order, which no public attribute has."""
    return dtensor._spec


def local_of(dtensor: DTensor) -> torch.Tensor:
    """As it is: without a gradient, and without waiting for a collective."""
    return dtensor._local_tensor


def schema_of(operator: Any) -> Any:
    """An operator's arguments and results, and which of them it writes."""
    return operator._schema


class DispatchMode(TorchDispatchMode):
    """Without the compiler's wrapper, which costs more than a recorded operator, and imports the compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


# The __torch_function__ of a tensor that is only interested in operators.
straight_to_dispatch = torch._C._disabled_torch_function_impl


def make_wrapper(cls: type, like: torch.Tensor, device: torch.device) -> Any:
    """A tensor of a subclass that has no memory: with the shape, strides and dtype of `like`, on any device."""
    return torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
        cls, like.size(), strides=like.stride(), storage_offset=like.storage_offset(), dtype=like.dtype, device=device
    )


def storage_key(tensor: torch.Tensor) -> int:
    """The same for all views of one memory, as long as it exists."""
    return tensor.untyped_storage()._cdata


def own_tensors(model: torch.nn.Module, recurse: bool = True) -> list[dict[str, Any]]:
    """Parameters and buffers of each module in a model, or of the model alone, by name: the dicts in which it has them."""
    modules = model.modules() if recurse else [model]
    return [tensors for module in modules for tensors in (module._parameters, module._buffers)]


class FlatParameter(NamedTuple):
    """A flat parameter of FullyShardedDataParallel: parameters back to back, and this rank's shard of them."""

    names: list[str]  # in the whole model; tied weights have several
    shapes: list[torch.Size]
    offsets: list[int]  # of each in the flat parameter, elements
    numel: int  # of the whole flat parameter, without the padding that makes shards equal
    local: torch.Tensor
    group: dist.ProcessGroup
    mesh: Any  # the DeviceMesh that the model was given, or None


def flat_parameters_of(module: torch.nn.Module) -> list[FlatParameter]:
    """The flat parameters of all FullyShardedDataParallel modules in it.

    Raises:
        ImportError: this PyTorch lacks what flat parameters say of themselves.
    """
    from torch.distributed.fsdp import FullyShardedDataParallel

    found = []
    for prefix, part in module.named_modules():
        handle = getattr(part, "_handle", None) if isinstance(part, FullyShardedDataParallel) else None
        if handle is None:
            continue
        flat = handle.flat_param
        if not all(hasattr(flat, name) for name in ("_fqns", "_shapes", "_numels_with_padding", "_is_padding_mask")):
            raise ImportError(_lacks("what torch.distributed.fsdp's FlatParameter says of its parameters"))
        offset, offsets = 0, []
        for numel, is_padding in zip(flat._numels_with_padding, flat._is_padding_mask):
            if not is_padding:
                offsets.append(offset)
            offset += numel
        names, shapes = list(flat._fqns), list(flat._shapes)
        for shared in flat._shared_param_infos:
            first = ".".join(filter(None, (shared.prim_module_name, shared.prim_param_name)))
            index = flat._fqns.index(first)
            names.append(".".join(filter(None, (shared.module_name, shared.param_name))))
            shapes.append(shapes[index])
            offsets.append(offsets[index])
        names = [f"{prefix}.{name}".replace("_fsdp_wrapped_module.", "").lstrip(".") for name in names]
        found.append(
            FlatParameter(names, shapes, offsets, offset, flat.data, handle.process_group, part._device_mesh)
        )
    return found


def storage_info(path: str, offset: int, length: int) -> Any:
    """Where a FileSystemReader finds an item: file, first byte and length."""
    from torch.distributed.checkpoint.filesystem import _StorageInfo

    return _StorageInfo(path, offset, length)


def storage_prefix(prefix: str) -> Any:
    """What a FileSystemWriter's plan says of its files' names."""
    from torch.distributed.checkpoint.filesystem import _StoragePrefix

    return _StoragePrefix(prefix)


def default_store() -> dist.Store:
    """The store of the default group."""
    return c10d._get_default_store()


def resolve_group(name: str) -> dist.ProcessGroup:
    """
    Raises:
        RuntimeError: no group has the name.
    """
    return c10d._resolve_process_group(name)


def named_group(name: str, ranks: list[int], of_host: bool, description: str) -> None:
    """What dist.new_group(ranks, use_local_synchronization=True) does, except for the name: PyTorch 2.11 derives it from
    the number of groups that a rank knows, so that members with different other groups wait for each other under two
    names. Collective over the ranks; with the default group's backend, or Gloo where it is `of_host`."""
    backend, store = c10d._world.pg_map[dist.group.WORLD]
    backend = "gloo" if of_host else backend
    group, _ = c10d._new_process_group_helper(
        len(ranks),
        ranks.index(dist.get_rank()),
        ranks,
        c10d.Backend(backend),
        store,
        c10d.GroupName(name),
        timeout=c10d._get_default_timeout(c10d.Backend(backend)),
        group_desc=description,
    )
    c10d._world.pg_group_ranks[group] = {rank: index for index, rank in enumerate(ranks)}


def connect_group(store: dist.Store, rank: int, ranks: int, timeout: float) -> dist.ProcessGroup:
    """A group of `ranks` processes, which find each other in `store`, made without torch.distributed's own tables, whose
    ranks are those of the default group. Collective over them; `timeout` in seconds.

    Raises:
        RuntimeError: no connection. Seen: where one fails, other ranks may hang far beyond the timeout.
    """
    stall_timeout = datetime.timedelta(seconds=timeout)
    kinds = dist.ProcessGroup.BackendType
    group = dist.ProcessGroup(store, rank, ranks)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("cpu/", store), rank, ranks, timeout=stall_timeout)
    group._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
    group._set_default_backend(kinds.GLOO)
    if torch.cuda.is_available() and dist.is_nccl_available():
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = stall_timeout
        nccl = dist.ProcessGroupNCCL(dist.PrefixStore("cuda/", store), rank, ranks, options)
        group._register_backend(torch.device("cuda"), kinds.NCCL, nccl)
    return group


def use_group(name: str, group: dist.ProcessGroup) -> None:
    """From now on operators find the group by the name."""
    group._set_group_name(c10d.GroupName(name))
    group._set_group_desc("ranks of several jobs")
    c10d._register_process_group(name, group)


def forget_group(name: str) -> None:
    """Operators no longer find the group."""
    c10d._unregister_process_group(name)
