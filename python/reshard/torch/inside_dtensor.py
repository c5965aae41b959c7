"""Lets DTensor itself redistribute by reshard's plans."""

import contextlib
import threading
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.distributed.device_mesh import DeviceMesh

from . import pytorch_hooks
from .dtensor_steps import own_way
from .groups import Span, mesh_ranks, span_of_meshes
from .layouts import spec_texts
from .private_pytorch import DTensorSpec
from .shard_orders import in_usual_order, propagate


@contextlib.contextmanager
def dtensor_redistribution() -> Iterator[None]:
    """Within it, DTensor redistributes by reshard's plans where that is cheaper, or where its own result is wrong.

        with reshard.dtensor_redistribution():
            y = x.redistribute(placements=[Shard(1), Replicate()])
            loss = model(batch)

    This holds for DTensor.redistribute and full_tensor, for what operators do to their inputs, and for the backward
    pass of all these. A plan is taken if a device receives fewer bytes with it (DTensor's include padding); or equally
    many, in fewer collectives; or if DTensor has no way, or loses elements on its way (as it does with uneven shards
    once a mesh is flattened). Values, gradients and specs of the result are the same; in a reduction the order of the
    terms may differ, and a result that moved is contiguous.

    PyTorch's own way is kept for async_op, for what is traced or compiled, for fake and meta tensors and other
    subclasses as local tensors, for devices other than host and CUDA, on a rank outside the mesh, between meshes, for a
    result that is partial where the tensor is not, and for placements that no layout expresses (masked and norm
    partials). The specs alone decide, the same on every rank. A local tensor that is not what its spec says, as some
    operators of PyTorch 2.11 make them, is an error in a plan, where DTensor computes something.

    All ranks of a mesh enter it at the same point of the program, like the context managers of DTensor: it holds for
    the process, on all threads. It nests. The first plan on a mesh that is a part of the job may create a process
    group. `recent_operations` shows what ran; CommDebugMode does not see it.

    Raises:
        RuntimeError: this PyTorch lacks what it hooks into; the text says what.
    """
    _enter()
    try:
        yield
    finally:
        _leave()


def install() -> None:
    """`dtensor_redistribution` for the rest of the program, and operators that respect shard orders.

    Call it on every rank before DTensors are used. PyTorch 2.11 drops a shard order other than left to right: after
    clone, detach or an addition the spec says that elements are in the usual order, which they are not. From now on

    - operators on single elements (clone, detach, casts, arithmetic, in place or not, those on lists, fused optimizers)
      keep the order; where inputs differ, they are moved to the order of the first ordered one, or of the one that is
      written;
    - all other operators, views included, get their inputs moved to the usual order; such views are then copies;
    - what cannot be done raises: an operator that writes into an ordered tensor in another way, or into several tensors
      whose orders differ, as fused optimizers may where a gradient does not have the order of its parameter.

    DTensor.to_local, from_local and their gradients still have no order. Calls nest: each is undone by one `uninstall`.

    Raises:
        RuntimeError: this PyTorch lacks what it hooks into; the text says what. Nothing is changed then.
    """
    global _installed
    _enter()
    with _lock:
        _installed += 1
        if _installed == 1:
            _propagation.replace(propagate, in_usual_order)


def uninstall() -> None:
    """Undoes one call of `install`.

    Raises:
        RuntimeError: there was none.
    """
    global _installed
    with _lock:
        if _installed == 0:
            raise RuntimeError("reshard.uninstall without reshard.install")
        _installed -= 1
        if _installed == 0:
            _propagation.put_back()
    _leave()


_lock = threading.Lock()  # guards the counts, and what they stand for
_uses = 0
_installed = 0
_redistribution = pytorch_hooks.Redistribution()
_propagation = pytorch_hooks.Propagation()


def _enter() -> None:
    global _uses
    with _lock:
        if _uses == 0:
            pytorch_hooks.require()
            _redistribution.replace(_redistribute)
        _uses += 1


def _leave() -> None:
    global _uses
    with _lock:
        _uses -= 1
        if _uses == 0:
            _redistribution.put_back()


class _Way(NamedTuple):
    """What torch.ops.reshard.redistribute takes."""

    mesh: str
    source: str
    target: str


def _redistribute(
    local_tensor: torch.Tensor,
    current_spec: DTensorSpec,
    target_spec: DTensorSpec,
    *,
    async_op: bool = False,
    use_graph_based_transform: bool | None = None,
    is_explicit: bool = False,
) -> torch.Tensor:
    if not (async_op or pytorch_hooks.traced() or not pytorch_hooks.is_plain(local_tensor)):
        way, span = _way(current_spec, target_spec)
        if way is not None:
            return torch.ops.reshard.redistribute(local_tensor, way.mesh, way.source, way.target, span.name)
    return _redistribution.own(
        local_tensor,
        current_spec,
        target_spec,
        async_op=async_op,
        use_graph_based_transform=use_graph_based_transform,
        is_explicit=is_explicit,
    )


# By mesh, without keeping it alive: a mesh keeps process groups, and these their threads.
_ways: weakref.WeakKeyDictionary[DeviceMesh, dict[tuple[Any, ...], _Way | None]] = weakref.WeakKeyDictionary()
_LONGEST = 65536  # ways of one mesh


def _way(source: DTensorSpec, target: DTensorSpec) -> tuple[_Way | None, Span]:
    """The way by a plan, and the group that takes it; None: take DTensor's own way."""
    nobody = Span("", ())
    mesh, meta = source.mesh, source.tensor_meta
    if mesh != target.mesh or meta is None or mesh.get_coordinate() is None:
        return None, nobody
    ways = _ways.get(mesh)
    if ways is None:
        ways = _ways.setdefault(mesh, {})
    key = (
        source.placements,
        source.shard_order,
        target.placements,
        target.shard_order,
        meta.shape,
        meta.dtype,
        pytorch_hooks.planning_mode(mesh),
    )
    if key in ways:
        way = ways[key]
    else:
        if len(ways) >= _LONGEST:
            ways.clear()
        way = ways[key] = _decide(source, target)
    if way is None:
        return None, nobody
    span = span_of_meshes(mesh, mesh)
    assert span is not None  # this rank is in the mesh
    return way, span


def _decide(source: DTensorSpec, target: DTensorSpec) -> _Way | None:
    target = _like(target, source)
    # As in any group of these ranks; it is made only if it is needed.
    ranks = Span("", tuple(sorted(mesh_ranks(source.mesh))))
    try:
        mesh, before = spec_texts(source, ranks)
        _, after = spec_texts(target, ranks)
        received, steps = torch.ops.reshard._plan_figures(mesh, before, after, str(source.tensor_meta.dtype))
    except (NotImplementedError, ValueError):
        return None  # no layout, no plan or no such reduction
    own = own_way(source, target)
    if own is not None and not own.wrong:
        if own.bytes == 0 or (received, steps) >= (own.bytes, own.collectives):
            return None
    span = span_of_meshes(source.mesh, source.mesh)
    assert span is not None
    return _Way(*spec_texts(source, span), spec_texts(target, span)[1])


def _like(target: DTensorSpec, source: DTensorSpec) -> DTensorSpec:
    """The target with the tensor's own sizes: PyTorch leaves them out, or keeps those of another dtype."""
    if target.tensor_meta == source.tensor_meta:
        return target
    order = None if target.use_strided_shard_as_shard_order else target.shard_order
    return DTensorSpec(target.mesh, target.placements, tensor_meta=source.tensor_meta, shard_order=order)
