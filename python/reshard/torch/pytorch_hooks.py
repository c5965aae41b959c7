"""Every private part of PyTorch that `reshard.install` calls or replaces, and whether this PyTorch has it."""

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.distributed.tensor import DTensor, _api, _dispatch, _redistribute


class Part(NamedTuple):
    """One name that has to be there. `parameters`: of a function, those that it is called with."""

    owner: object
    name: str
    parameters: tuple[str, ...] = ()


_CALL = ("local_tensor", "current_spec", "target_spec", "async_op", "use_graph_based_transform", "is_explicit")
_PLAN = ("src_spec", "dst_spec", "use_graph_based_transform")

# Where DTensor looks redistribute_local_tensor up: in DTensor.redistribute, in the gradients of from_local and to_local
# and in front of an operator.
_CALLERS = (_redistribute, _api, _dispatch)

PARTS = (
    *(Part(module, "redistribute_local_tensor", _CALL) for module in _CALLERS),
    Part(_redistribute, "_gen_transform_infos_non_cached", _PLAN),
    Part(_redistribute, "_get_flattened_mesh_by_layout", ("mesh", "mesh_dims")),
    Part(_redistribute, "_are_we_tracing"),
    Part(_redistribute, "_TransformInfo", ("mesh_dim", "src_dst_placements")),
    Part(torch.distributed.device_mesh.DeviceMesh, "_get_root_mesh"),
    Part(_redistribute, "_FORCE_MIN_COST_REDISTRIBUTION_PLAN"),
    Part(_redistribute, "_DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION"),
    Part(DTensor, "_op_dispatcher"),
    Part(getattr(DTensor, "_op_dispatcher", None), "sharding_propagator"),
    Part(
        getattr(getattr(DTensor, "_op_dispatcher", None), "sharding_propagator", None),
        "propagate_op_sharding_non_cached",
        ("op_schema",),
    ),
    Part(getattr(getattr(DTensor, "_op_dispatcher", None), "sharding_propagator", None), "propagate_op_sharding"),
    Part(torch._C, "_clear_DTensor_sharding_propagator_cache"),
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
    owner = getattr(part.owner, "__name__", None) or type(part.owner).__name__
    if not hasattr(part.owner, part.name):
        return f"{owner}.{part.name}"
    if not part.parameters:
        return ""
    there = inspect.signature(getattr(part.owner, part.name)).parameters
    gone = [parameter for parameter in part.parameters if parameter not in there]
    return f"the parameter {', '.join(gone)} of {owner}.{part.name}" if gone else ""


class Redistribution:
    """DTensor's redistribution of a local tensor, which can be replaced and put back."""

    def __init__(self) -> None:
        self.own: Callable[..., torch.Tensor] = _redistribute.redistribute_local_tensor
        self._before: list[Any] = []

    def replace(self, function: Callable[..., torch.Tensor]) -> None:
        self.own = _redistribute.redistribute_local_tensor
        self._before = [module.redistribute_local_tensor for module in _CALLERS]
        for module in _CALLERS:
            module.redistribute_local_tensor = function

    def put_back(self) -> None:
        for module, before in zip(_CALLERS, self._before):
            module.redistribute_local_tensor = before


class Propagation:
    """What DTensor decides of an operator's inputs and outputs, which can be replaced and put back.

    PyTorch remembers these decisions, also in C++, for each thread. Both memories are emptied on the calling thread.
    """

    def replace(self, around: Callable[[Callable[[Any], Any], Any], Any]) -> None:
        """From now on a decision is around(PyTorch's own function, schema)."""
        propagator = DTensor._op_dispatcher.sharding_propagator
        own, self._remembered = propagator.propagate_op_sharding_non_cached, propagator.propagate_op_sharding

        def decide(op_schema: Any) -> Any:
            return around(own, op_schema)

        propagator.propagate_op_sharding_non_cached = decide
        propagator.propagate_op_sharding = type(self._remembered)(decide)
        torch._C._clear_DTensor_sharding_propagator_cache()

    def put_back(self) -> None:
        propagator = DTensor._op_dispatcher.sharding_propagator
        del propagator.propagate_op_sharding_non_cached  # the class's own is seen again
        propagator.propagate_op_sharding = self._remembered
        torch._C._clear_DTensor_sharding_propagator_cache()


def traced() -> bool:
    """Whether DTensor runs to be compiled or traced: sizes may then be symbols, and nothing may be decided by them."""
    return _redistribute._are_we_tracing()


def planning_mode(mesh: torch.distributed.device_mesh.DeviceMesh) -> tuple[Any, ...]:
    """All that DTensor's plan between two specs depends on beside them."""
    return (
        _redistribute._FORCE_MIN_COST_REDISTRIBUTION_PLAN,
        _redistribute._DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION,
        len(mesh._get_root_mesh()._flatten_mapping),
    )


def own_steps(source: Any, target: Any) -> list[tuple[int, Any, Any]] | None:
    """DTensor's plan as (mesh dimension, placement before, after); None where it has none."""
    try:
        steps = _redistribute._gen_transform_infos_non_cached(source, target)
    except Exception:  # assertions, ValueError, NotImplementedError and RuntimeError, by what is refused
        return None
    return [(step.mesh_dim, *step.src_dst_placements) for step in steps]


def merges(mesh: torch.distributed.device_mesh.DeviceMesh, mesh_dims: tuple[int, ...]) -> bool:
    """Whether there is a flattened mesh over which DTensor merges collectives over these (ascending) dimensions."""
    return (
        not _redistribute._DISABLE_REDISTRIBUTE_TRANSFORM_OPTIMIZATION
        and _redistribute._get_flattened_mesh_by_layout(mesh, mesh_dims) is not None
    )
