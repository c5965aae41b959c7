"""Process groups: their names, and the group that spans given meshes."""

import weakref
from typing import Callable, NamedTuple, Union

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from .private_pytorch import forget_group, named_group, resolve_group, use_group



class SpanningGroup:
    """A group that is more than a process group, with the span by which the operators know it; see joined.Joined."""

    span: "Span"


Group = Union[dist.ProcessGroup, DeviceMesh, SpanningGroup, str, None]


def group_name(group: Group) -> str:
    """The name by which the operators know a group.

    Args:
        group: a process group, also a joined one, its name, a one-dimensional mesh, or None for the default group.

    Raises:
        ValueError: a mesh with several dimensions, or a group of which this process is not a member.
        RuntimeError: `group` is None, and there is no default group yet.
    """
    if group is None:
        if not dist.is_initialized():
            raise RuntimeError("there is no default process group; call torch.distributed.init_process_group first")
        return dist.group.WORLD.group_name
    if isinstance(group, str):
        return group
    if isinstance(group, DeviceMesh):
        if group.ndim != 1:
            raise ValueError(f"a mesh of {group.ndim} dimensions is several groups; choose one: mesh[name]")
        return group.get_group().group_name
    if isinstance(group, SpanningGroup):
        return group.span.name
    if not isinstance(group, dist.ProcessGroup):
        raise ValueError(f"not a process group of which this process is a member: {group!r}")
    return group.group_name


def mesh_ranks(mesh: DeviceMesh) -> tuple[int, ...]:
    """The global ranks of a mesh in row-major order."""
    return tuple(mesh.mesh.flatten().tolist())


class Span(NamedTuple):
    """A group as the operators need it: its name, and the global rank of each of its ranks. In a joined group,
    ranks of another job have no global rank here, but a negative number of their own."""

    name: str
    ranks: tuple[int, ...]

    def device_ids(self, mesh: DeviceMesh) -> tuple[int, ...]:
        """The ranks of a mesh in row-major order, as ranks of this group.

        Raises:
            ValueError: the mesh has a rank that is not in the group.
        """
        position = {rank: index for index, rank in enumerate(self.ranks)}
        outside = [rank for rank in mesh_ranks(mesh) if rank not in position]
        if outside:
            raise ValueError(f"{mesh} has ranks {outside}, which are not in the process group {self.name!r}")
        return tuple(position[rank] for rank in mesh_ranks(mesh))


def span_of_group(group: Group) -> Span:
    name = group_name(group)
    if name in _joined:
        return _joined[name]
    members = dist.get_process_group_ranks(resolve_group(name))
    return Span(name, tuple(members))


def span_of_meshes(source: DeviceMesh, target: DeviceMesh) -> Span | None:
    """The group of exactly the ranks of both meshes; None on a rank that is in neither.

    This is the default group or a mesh's own group if one of these fits. Otherwise a group is created the first time,
    by its members only, and kept, so that the slices of a larger mesh do not wait for each other. (DeviceMesh._flatten
    would create one too, but it changes what DTensor does with the mesh from then on.)
    """
    _forget_groups_of_the_past()
    spans = _spans.get(source)
    if spans is None:
        spans = _spans.setdefault(source, weakref.WeakKeyDictionary())
    if target not in spans:
        spans[target] = _find_span(source, target)
    return spans[target]


def _forget_groups_of_the_past() -> None:
    """Forgets older groups after torch.distributed was shut down and initialized again."""
    global _default_group
    if _default_group() is not dist.group.WORLD:
        _default_group = weakref.ref(dist.group.WORLD)
        _spans.clear()
        _made.clear()


_default_group: Callable[[], dist.ProcessGroup | None] = lambda: None
# By source and target. Without keeping them alive: a mesh keeps process groups, and these their threads.
_spans: weakref.WeakKeyDictionary[DeviceMesh, weakref.WeakKeyDictionary[DeviceMesh, Span | None]] = (
    weakref.WeakKeyDictionary()
)
_made: dict[tuple, Span] = {}  # by prefix of the name, and ranks


def _find_span(source: DeviceMesh, target: DeviceMesh) -> Span | None:
    ranks = sorted({*mesh_ranks(source), *mesh_ranks(target)})
    if dist.get_rank() not in ranks:
        return None
    if len(ranks) == dist.get_world_size():
        return span_of_group(None)
    for mesh in (source, target):
        if mesh.ndim == 1 and mesh.size() == len(ranks):
            return span_of_group(mesh)
    return _made_group(ranks, "reshard")


def side_group(span: Span) -> Span:
    """A group of the same ranks, in their order, for what is communicated beside everything else. Collective over them;
    created the first time, and kept.
    """
    _forget_groups_of_the_past()
    return _made_group(list(span.ranks), f"reshard-beside:{span.name}", of_host=True)


def _made_group(ranks: list[int], prefix: str, of_host: bool = False) -> Span:
    key = (prefix, *ranks)
    if key not in _made:
        _made[key] = _make_group(ranks, prefix, of_host)
    return _made[key]


def _make_group(ranks: list[int], prefix: str, of_host: bool) -> Span:
    name = f"{prefix}:" + "_".join(map(str, ranks))
    named_group(name, ranks, of_host, "ranks of a redistribution")
    return Span(name, tuple(ranks))


_joined: dict[str, Span] = {}  # by name: groups over several jobs, of which torch.distributed knows nothing


def use_joined_group(group: dist.ProcessGroup, span: Span) -> None:
    """Makes the group known to the operators by the span's name. Local."""
    use_group(span.name, group)
    _joined[span.name] = span


def forget_joined_group(name: str) -> None:
    """Removes the group from the operators, with what the library keeps for it."""
    if _joined.pop(name, None) is not None:
        forget_group(name)
