"""What is to move between two sets of DTensors: the texts that planning and binding take."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement

from .dtensors import Placements, spec_in, target_spec
from .fragments import Fragment
from .groups import Span, mesh_ranks
from .layouts import mesh_text, placements_of_text, spec_texts
from .private_pytorch import DTensorSpec, ShardOrder, spec_of
from .state import nested

# A model, its state dict, or a list whose names are 0, 1, ...
Tensors = torch.nn.Module | Mapping[str, torch.Tensor | Fragment] | Sequence[torch.Tensor | Fragment]


class Problem(NamedTuple):
    """One tensor: where it is and where it goes."""

    name: str
    source: DTensor | Fragment
    target: DTensor | Fragment
    mesh: str
    source_layout: str
    target_mesh: str
    target_layout: str


def named(tensors: Tensors) -> dict[str, Any]:
    """The tensors by name, as they are: not detached, which would lose their shard orders."""
    if isinstance(tensors, torch.nn.Module):
        tensors = tensors.state_dict(keep_vars=True)
    if isinstance(tensors, Mapping):
        return {name: value for name, value in tensors.items() if isinstance(value, torch.Tensor | Fragment)}
    return {str(index): value for index, value in enumerate(tensors)}


def flat(state: Tensors | None) -> dict[str, Any]:
    """The tensors of a model, of a dict (also a nested one), or of a list, by name."""
    if state is None:
        return {}
    if isinstance(state, Mapping):
        state = nested.flat(state)
    return named(state)


def problems_of(sources: Tensors, targets: Tensors, span: Span | None = None) -> list[Problem]:
    """One for each name, in the order of the targets.

    Args:
        span: the group whose ranks are the device ids in the texts of meshes; None: device ids are global ranks.

    Raises:
        ValueError: names that only one side has; another shape or dtype; a tensor that does not say where it is.
    """
    source, target = named(sources), named(targets)
    for missing, there, where in (
        (target.keys() - source.keys(), source, "the source"),
        (source.keys() - target.keys(), target, "the target"),
    ):
        if missing:
            raise ValueError(torch.ops.reshard._missing_names(sorted(missing), sorted(there), where))
    plain = [name for name in target for side in (source, target) if not isinstance(side[name], DTensor | Fragment)]
    if plain:
        raise ValueError(
            f"{', '.join(dict.fromkeys(plain))}: only DTensors and Fragments say where they are; give the other tensors in a call of "
            "their own, with mesh and layouts as text"
        )
    problems = []
    seen = set()
    for name in target:
        pair = (id(source[name]), id(target[name]))
        if pair in seen:
            continue  # tied: one tensor under two names, on both sides
        seen.add(pair)
        before, after = source[name], target[name]
        if before.shape != after.shape or before.dtype != after.dtype:
            raise ValueError(
                f"{name}: the source is {before.dtype} {list(before.shape)}, the target {after.dtype} {list(after.shape)}"
            )
        texts = *_texts_in(before, span, name), *_texts_in(after, span, name)
        problems.append(Problem(name, source[name], target[name], *texts))
    return problems


def batch_lines(sources: Tensors, targets: Tensors) -> list[dict[str, str]]:
    """The problems as `reshard.plan_batch` reads them."""
    return [
        {
            "id": problem.name,
            "mesh": problem.mesh,
            "from": problem.source_layout,
            "to_mesh": problem.target_mesh,
            "to": problem.target_layout,
            "dtype": str(problem.source.dtype),
        }
        for problem in problems_of(sources, targets)
    ]


def plan_texts(
    dtensor: DTensor, target: DTensor | Placements, mesh: DeviceMesh | None
) -> tuple[str, str, str, str, torch.dtype]:
    """Mesh and layout of a DTensor, mesh and layout that it is to have, and its dtype."""
    if not isinstance(dtensor, DTensor):
        raise TypeError(f"a mesh as text or a DTensor is needed, not {type(dtensor).__name__}; for models, plan_batch")
    if isinstance(target, DTensor):
        (problem,) = problems_of([dtensor], [target])
        return *problem[3:], dtensor.dtype
    spec = target_spec(dtensor, mesh, target, None)
    return *_texts(spec_of(dtensor), None), *_texts(spec, None), dtensor.dtype


def texts_of(tensor: DTensor | Fragment) -> tuple[str, str]:
    """Mesh and layout, over global ranks."""
    if not isinstance(tensor, DTensor | Fragment):
        raise TypeError(f"a DTensor or a Fragment is needed, not {type(tensor).__name__}")
    return _texts_in(tensor, None)


def texts_of_placements(
    mesh: DeviceMesh, placements: Placements | None, shape: Sequence[int], shard_order: ShardOrder | None
) -> tuple[str, str]:
    """Mesh and layout of a DTensor with these placements, over global ranks."""
    return _texts(spec_in(mesh, placements, shard_order, torch.Size(shape), torch.uint8), None)


def placements_in(
    mesh: DeviceMesh, mesh_of_layout: str, layout: str, shape: Sequence[int]
) -> tuple[tuple[Placement, ...], ShardOrder | None]:
    """The placements and shard order of a layout over this mesh, whose global ranks are the layout's devices."""
    text = mesh_text(mesh, _global_ranks(mesh))
    if text != mesh_of_layout:
        raise ValueError(f"the layout is over {mesh_of_layout}, the DeviceMesh is {text}")
    return placements_of_text(mesh, layout, torch.Size(shape))


def _global_ranks(mesh: DeviceMesh) -> Span:
    return Span("", tuple(range(1 + max(mesh_ranks(mesh)))))


def _texts_in(tensor: DTensor | Fragment, span: Span | None, name: str = "") -> tuple[str, str]:
    if isinstance(tensor, Fragment):
        return tensor.texts(_global_ranks(tensor.mesh) if span is None else span)
    return _texts(spec_of(tensor), span, name)


def _texts(spec: DTensorSpec, span: Span | None, name: str = "") -> tuple[str, str]:
    return spec_texts(spec, _global_ranks(spec.mesh) if span is None else span, name)
