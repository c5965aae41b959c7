"""What Megatron-core's distributed optimizer keeps, as fragments."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from ..errors import InputError
from ..flat import flat_layouts
from .fragments import Fragment


def megatron_fragments(
    optimizer: Any, model: torch.nn.Module | Sequence[torch.nn.Module], state: str = "param"
) -> dict[str, Fragment]:
    """The main parameters of Megatron-core's distributed optimizer, or its moments, each as this rank's part.

        main = reshard.megatron_fragments(optimizer, model)
        moments = reshard.megatron_fragments(optimizer, model, "exp_avg")
        reshard.save("step-1000", main)             # an ordinary checkpoint, whatever the parallelism
        reshard.load("step-1000", main)             # in place, also in a job with other tensor or data parallelism

    Nothing is copied: a fragment's memory is the optimizer's. Its mesh has the dimension dp, over the ranks that share
    the buffers, and tp, where tensor parallelism cuts parameters. Pipeline stages have different parameters: pass each
    stage's fragments with the group of its ranks (get_tensor_and_data_parallel_group). Layers have their numbers in the
    whole model, and gate and up of a gated MLP are cut each on its own, so that the whole tensor is the same under any
    parallelism.

    Args:
        optimizer: what get_megatron_optimizer returns with use_distributed_optimizer.
        model: the module, or the list of chunks, that it optimizes; wrapped or not. It gives the names.
        state: "param" for the main parameters, or what the optimizer keeps for each: "exp_avg", "exp_avg_sq".

    Returns:
        Fragments by name in the whole model.

    Raises:
        InputError: another optimizer, or one that has no such state (before its first step); expert parallelism, several
            instances of an optimizer, custom FSDP or use_precision_aware_optimizer, which are not supported.
    """
    names = dict(_names_of(model))
    found: dict[str, Fragment] = {}
    meshes: dict[Any, DeviceMesh] = {}
    for one in getattr(optimizer, "chained_optimizers", [optimizer]):
        if getattr(one, "is_stub_optimizer", False):  # this rank has no parameters of its kind
            continue
        _check(one)
        for buffer in one.buffers:
            for parameter, (start, _, bucket_id) in buffer.param_index_map.items():
                if parameter not in names:
                    raise InputError(f"the optimizer has a parameter of shape {tuple(parameter.shape)} that the model lacks")
                name, blocks = names[parameter]
                groups = (buffer.data_parallel_group, _tensor_group(name, parameter))
                if groups not in meshes:
                    meshes[groups] = _mesh_of(*groups, parameter.device.type)
                mesh = meshes[groups]
                bucket = buffer.buckets[bucket_id]
                layout = flat_layouts(
                    [tuple(parameter.shape) or (1,)],
                    mesh.size(0),
                    offsets=[start - bucket.offset],
                    shard=bucket.grad_data.numel() // mesh.size(0),
                    dims=[_dims_of(name, parameter, blocks, mesh)],
                )[0]
                found[name] = Fragment(_part_of(one, parameter, state, name), mesh, layout)
    if not found:
        raise InputError("the optimizer has no parameters; use_distributed_optimizer makes one that has")
    return found


def _check(optimizer: Any) -> None:
    if not hasattr(optimizer, "buffers") or not hasattr(optimizer, "model_param_group_index_map"):
        raise InputError(f"{type(optimizer).__name__} is not Megatron's DistributedOptimizer (use_distributed_optimizer)")
    for name in ("use_custom_fsdp", "use_megatron_fsdp"):
        if getattr(optimizer.ddp_config, name, False):
            raise InputError(f"{name}: its parameters are not in the buffers of the distributed optimizer")
    if getattr(optimizer.ddp_config, "num_distributed_optimizer_instances", 1) > 1:
        raise InputError("several instances of the optimizer have copies of the same states, which is not supported")
    if getattr(optimizer.config, "use_precision_aware_optimizer", False):
        raise InputError("use_precision_aware_optimizer keeps scaled states, which are not tensors of the model's values")


def _names_of(model: torch.nn.Module | Sequence[torch.nn.Module]) -> Iterator[tuple[torch.nn.Parameter, tuple[str, int]]]:
    """Of each parameter its name in the whole model, and of how many blocks its first dimension is made."""
    for chunk in [model] if isinstance(model, torch.nn.Module) else model:
        while isinstance(getattr(chunk, "module", None), torch.nn.Module):
            chunk = chunk.module
        gated = getattr(getattr(chunk, "config", None), "gated_linear_unit", False)
        numbered = {}  # "decoder.layers.0": "decoder.layers.8"
        for place, part in chunk.named_modules():
            above, _, last = place.rpartition(".")
            if last.isdigit() and hasattr(part, "layer_number"):
                numbered[f"{place}."] = f"{above}.{part.layer_number - 1}."
        for name, parameter in chunk.named_parameters():
            of_gate_and_up = gated and name.rpartition(".")[0].endswith("linear_fc1")
            place = next((place for place in numbered if name.startswith(place)), "")
            yield parameter, (numbered.get(place, "") + name.removeprefix(place), 2 if of_gate_and_up else 1)


def _tensor_group(name: str, parameter: torch.nn.Parameter) -> dist.ProcessGroup:
    """The ranks among which tensor parallelism cuts the parameter."""
    from megatron.core import parallel_state

    if getattr(parameter, "allreduce", True):
        return parallel_state.get_tensor_model_parallel_group()
    if parallel_state.get_expert_model_parallel_world_size() > 1:
        raise InputError(f"{name}: with expert parallelism, ranks have different parameters of this name")
    return parallel_state.get_expert_tensor_parallel_group()


def _mesh_of(shards: dist.ProcessGroup, tensor: dist.ProcessGroup, device: str) -> DeviceMesh:
    """Megatron places ranks so that the distance to the next one along an axis is the same everywhere."""
    dp, tp = dist.get_process_group_ranks(shards), dist.get_process_group_ranks(tensor)
    if len(tp) == 1:
        return DeviceMesh.from_group(shards, device, mesh_dim_names=("dp",))
    grid = [[across + along - dist.get_rank() for along in tp] for across in dp]
    return DeviceMesh.from_group([shards, tensor], device, mesh=grid, mesh_dim_names=("dp", "tp"))


def _dims_of(name: str, parameter: torch.nn.Parameter, blocks: int, mesh: DeviceMesh) -> str:
    """The dimensions of the whole parameter: "<tp>128, 64", or "<2,tp>128, 64" of two blocks."""
    sizes = list(map(str, parameter.shape)) or ["1"]
    cut = getattr(parameter, "partition_dim", -1)
    if mesh.ndim > 1 and getattr(parameter, "tensor_model_parallel", False) and cut >= 0:
        if getattr(parameter, "partition_stride", 1) != 1:
            raise InputError(f"{name}: a partition_stride of {parameter.partition_stride} is not supported")
        factor = f"<{blocks},tp>" if blocks > 1 and cut == 0 else "<tp>"
        sizes[cut] = f"{factor}{parameter.shape[cut] * mesh.size(1)}"
    return ", ".join(sizes)


def _part_of(optimizer: Any, parameter: torch.nn.Parameter, state: str, name: str) -> torch.Tensor:
    """What this rank has of it; an empty tensor where others have it all."""
    if parameter not in optimizer.model_param_group_index_map:
        return torch.empty(0, dtype=torch.float32, device=parameter.device)
    group, order = optimizer.model_param_group_index_map[parameter]
    main = optimizer.optimizer.param_groups[group]["params"][order]
    if state == "param":
        return main.detach().view(-1)
    kept = optimizer.optimizer.state.get(main, {})
    if not isinstance(kept.get(state), torch.Tensor) or kept[state].numel() != main.numel():
        raise InputError(f'{name}: the optimizer keeps no "{state}", only {", ".join(kept) or "nothing before its first step"}')
    return kept[state].view(-1)
