"""Every private part of PyTorch that `reshard.install` calls or replaces, and whether this PyTorch has it.

Importing this needs none of them.
"""

import importlib
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.utils import _pytree as pytree


class Part(NamedTuple):
    """One name that has to be there. `parameters`: of a function, those that it is called with."""

    owner: str  # a module, or what is in one
    name: str
    parameters: tuple[str, ...] = ()


_REDISTRIBUTE = "torch.distributed.tensor._redistribute"
_DISPATCHER = "torch.distributed.tensor.DTensor._op_dispatcher"
_PROPAGATOR = f"{_DISPATCHER}.sharding_propagator"
# Where DTensor looks redistribute_local_tensor up: in DTensor.redistribute, in the gradients of from_local and to_local
# and in front of an operator.
_CALLERS = (_REDISTRIBUTE, "torch.distributed.tensor._api", "torch.distributed.tensor._dispatch")
_CALL = ("local_tensor", "current_spec", "target_spec", "async_op", "use_graph_based_transform", "is_explicit")

PARTS = (
    *(Part(module, "redistribute_local_tensor", _CALL) for module in _CALLERS),
    Part(_REDISTRIBUTE, "_gen_transform_infos_non_cached", ("src_spec", "dst_spec")),
    Part(_REDISTRIBUTE, "_TransformInfo", ("mesh_dim", "src_dst_placements")),
    Part(_REDISTRIBUTE, "_get_flattened_mesh_by_layout", ("mesh", "mesh_dims")),
    Part(_REDISTRIBUTE, "_are_we_tracing"),
    Part(_REDISTRIBUTE, "_FORCE_MIN_COST_REDISTRIBUTION_PLAN"),
    Part(_REDISTRIBUTE, "_DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION"),
    Part("torch.distributed._functional_collectives", "AsyncCollectiveTensor"),
    Part("torch.distributed.device_mesh.DeviceMesh", "_get_root_mesh"),
    Part(_PROPAGATOR, "propagate_op_sharding_non_cached", ("op_schema",)),
    Part(_PROPAGATOR, "propagate_op_sharding"),
    Part(_DISPATCHER, "_custom_op_handlers"),
    Part("torch._C", "_clear_DTensor_sharding_propagator_cache"),
)


def require(parts: tuple[Part, ...] = PARTS) -> None:
    """Raises:
    RuntimeError: this PyTorch lacks one of the parts; all that it lacks are named.
    """
    lacking = [why for part in parts if (why := _lacking(part))]
    if lacking:
        raise RuntimeError(
            f"reshard cannot be installed into DTensor of PyTorch {torch.__version__}, which lacks "
            f"{', '.join(lacking)}; call reshard.redistribute on the tensors instead"
        )


def _lacking(part: Part) -> str:
    whole = f"{part.owner}.{part.name}"
    try:
        found = getattr(_found(part.owner), part.name)
    except (AttributeError, ImportError):
        return whole
    if not part.parameters:
        return ""
    there = inspect.signature(found).parameters
    gone = [parameter for parameter in part.parameters if parameter not in there]
    return f"the parameter {', '.join(gone)} of {whole}" if gone else ""


def _found(name: str) -> Any:
    """Raises:
    AttributeError, ImportError: nothing is called so.
    """
    outer, _, inner = name.rpartition(".")
    if not outer:
        return importlib.import_module(name)
    there = _found(outer)
    if not hasattr(there, inner) and inspect.ismodule(there):
        return importlib.import_module(name)
    return getattr(there, inner)


class Redistribution:
    """DTensor's redistribution of a local tensor, which can be replaced and put back."""

    own: Callable[..., torch.Tensor]  # while it is replaced

    def replace(self, function: Callable[..., torch.Tensor]) -> None:
        self.own = _found(_REDISTRIBUTE).redistribute_local_tensor
        self._before = [(module, module.redistribute_local_tensor) for module in map(_found, _CALLERS)]
        for module, _ in self._before:
            module.redistribute_local_tensor = function

    def put_back(self) -> None:
        for module, before in self._before:
            module.redistribute_local_tensor = before


_PLACE_BY_PLACE = (
    torch.ops.aten.argmax.default,
    torch.ops.aten.argmin.default,
    torch.ops.aten.max.dim,
    torch.ops.aten.min.dim,
    torch.ops.aten.convolution.default,
    torch.ops.aten.convolution_backward.default,
)


def _prepared(handler: Callable[..., Any], prepare: Callable[[Any], Any]) -> Callable[..., Any]:
    def handle(op_call: Any, args: Any, kwargs: Any) -> Any:
        return handler(op_call, *pytree.tree_map(prepare, (args, kwargs)))

    return handle


class Propagation:
    """What DTensor decides about an operator's inputs and outputs, which can be replaced and put back.

    PyTorch caches these decisions, also in C++, for each thread. Both caches are cleared on the calling thread.
    """

    def replace(self, around: Callable[[Callable[[Any], Any], Any], Any], prepare: Callable[[Any], Any]) -> None:
        """From now on a decision is around(PyTorch's own function, schema). What is computed without one, because
        places are known from placements, is computed from prepare(argument) for each argument."""
        propagator = _found(_PROPAGATOR)
        own, self._remembered = propagator.propagate_op_sharding_non_cached, propagator.propagate_op_sharding

        def decide(op_schema: Any) -> Any:
            return around(own, op_schema)

        propagator.propagate_op_sharding_non_cached = decide
        propagator.propagate_op_sharding = type(self._remembered)(decide)
        handlers = _found(_DISPATCHER)._custom_op_handlers
        self._handlers = {op: handlers[op] for op in _PLACE_BY_PLACE if op in handlers}
        for op, handler in self._handlers.items():
            handlers[op] = _prepared(handler, prepare)
        torch._C._clear_DTensor_sharding_propagator_cache()

    def put_back(self) -> None:
        propagator = _found(_PROPAGATOR)
        del propagator.propagate_op_sharding_non_cached  # the class's own is seen again
        propagator.propagate_op_sharding = self._remembered
        _found(_DISPATCHER)._custom_op_handlers.update(self._handlers)
        torch._C._clear_DTensor_sharding_propagator_cache()


def traced() -> bool:
    """Whether DTensor runs to be compiled or traced: sizes may then be symbols, and nothing may be decided by them."""
    from torch.distributed.tensor import _redistribute

    return _redistribute._are_we_tracing()


def is_plain(local: torch.Tensor) -> bool:
    """Whether a local tensor holds values in memory, or will when a collective under way is done."""
    from torch.distributed._functional_collectives import AsyncCollectiveTensor

    kinds = (torch.Tensor, torch.nn.Parameter, AsyncCollectiveTensor)
    return type(local) in kinds and local.device.type in ("cpu", "cuda") and local.layout == torch.strided


def planning_mode(mesh: DeviceMesh) -> tuple[Any, ...]:
    """All that DTensor's plan between two specs depends on beside them."""
    from torch.distributed.tensor import _redistribute

    return (
        _redistribute._FORCE_MIN_COST_REDISTRIBUTION_PLAN,
        _redistribute._DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION,
        len(mesh._get_root_mesh()._flatten_mapping),
    )


def own_steps(source: Any, target: Any) -> list[tuple[int, Any, Any]] | None:
    """DTensor's plan as (mesh dimension, placement before, after); None where it has none."""
    from torch.distributed.tensor import _redistribute

    try:
        steps = _redistribute._gen_transform_infos_non_cached(source, target)
    except Exception:  # assertions, ValueError, NotImplementedError and RuntimeError, by what is refused
        return None
    return [(step.mesh_dim, *step.src_dst_placements) for step in steps]


def merges(mesh: DeviceMesh, mesh_dims: tuple[int, ...]) -> bool:
    """Whether there is a flattened mesh over which DTensor merges collectives over these (ascending) dimensions."""
    from torch.distributed.tensor import _redistribute

    return (
        not _redistribute._DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION
        and _redistribute._get_flattened_mesh_by_layout(mesh, mesh_dims) is not None
    )
