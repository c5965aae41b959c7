"""What DTensor's own way from one layout to another costs, and whether it arrives there."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from torch.distributed.tensor import Partial, Replicate, Shard

from . import pytorch_hooks
from .private_pytorch import DTensorSpec, StridedShard

_GATHER, _TRADE, _REDUCE, _SCATTER, _LOCAL, _REFUSED = range(6)


class OwnWay(NamedTuple):
    """DTensor's sequence of collectives."""

    bytes: int  # that one device receives at most, padding included
    collectives: int
    wrong: bool  # it loses or repeats elements


def own_way(source: DTensorSpec, target: DTensorSpec) -> OwnWay | None:
    """None where DTensor has no way. A function of the specs alone: each rank finds the same, because sizes are those
    of the first chunks, which are the largest."""
    steps = pytorch_hooks.own_steps(source, target)
    if steps is None or any(_kind(before, after) == _REFUSED for _, before, after in steps):
        return None
    walk = _Walk(source)
    total, collectives, wrong = 0, 0, False
    for run in _runs(steps):
        dims = [mesh_dim for mesh_dim, _, _ in run]
        kind = _kind(*run[0][1:])
        devices = math.prod(source.mesh.size(dim) for dim in dims)
        merged = len(run) > 1 and _merged(source, kind, dims, walk.size_without(run[-1][2], dims), devices)
        if merged and kind == _GATHER:
            # PyTorch issue 194457: chunks of chunks are taken for chunks of the whole.
            wrong |= walk.size_without(run[0][1], dims) % devices != 0
        if merged and kind != _GATHER:
            received = walk.received(kind, run[0][2], devices)
            for step in run:
                walk.take(*step)
            total, collectives = total + received, collectives + 1
            continue
        for mesh_dim, before, after in run:
            n = source.mesh.size(mesh_dim)
            total += walk.received(kind, after, n)
            walk.take(mesh_dim, before, after)
            collectives += kind != _LOCAL and n > 1 and not merged
        collectives += merged
    assert source.tensor_meta is not None
    return OwnWay(total * source.tensor_meta.dtype.itemsize, collectives, wrong)


def _kind(before: object, after: object) -> int:
    if isinstance(before, StridedShard):
        return _GATHER if isinstance(after, (Replicate, StridedShard)) else _REFUSED
    if isinstance(before, Shard):
        return _GATHER if isinstance(after, Replicate) else _TRADE if isinstance(after, Shard) else _REFUSED
    if isinstance(before, Partial):
        return _REDUCE if isinstance(after, Replicate) else _SCATTER if isinstance(after, Shard) else _REFUSED
    return _LOCAL


_Step = tuple[int, object, object]


def _runs(steps: list[_Step]) -> Iterator[list[_Step]]:
    """Neighbors that DTensor would merge if there is a flattened mesh for them."""
    run: list[_Step] = []
    for step in steps:
        if run and not _alike(run[0], step):
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def _alike(first: _Step, second: _Step) -> bool:
    if _kind(*first[1:]) not in (_GATHER, _REDUCE, _SCATTER) or isinstance(first[1], StridedShard):
        return False
    sums = all(isinstance(before, Partial) and before.reduce_op in ("sum", "avg") for _, before, _ in (first, second))
    return first[2] == second[2] and (first[1] == second[1] or sums)


def _merged(source: DTensorSpec, kind: int, dims: list[int], size: int, devices: int) -> bool:
    if kind == _GATHER and dims != sorted(dims, reverse=True):
        return False
    if kind == _SCATTER and (dims != sorted(dims) or size % devices != 0):
        return False
    return pytorch_hooks.merges(source.mesh, tuple(sorted(dims)))


class _Walk:
    """The first device's local sizes while steps are taken."""

    def __init__(self, spec: DTensorSpec) -> None:
        assert spec.tensor_meta is not None
        self._mesh = spec.mesh
        self._shape = spec.tensor_meta.shape
        order = spec.shard_order or DTensorSpec.compute_default_shard_order(spec.placements)
        self._cuts = {dim: list(mesh_dims) for dim, mesh_dims in order}

    def _size(self, dim: int, without: list[int]) -> int:
        size = self._shape[dim]
        for mesh_dim in self._cuts.get(dim, ()):
            if mesh_dim not in without:
                size = -(-size // self._mesh.size(mesh_dim))
        return size

    def size_without(self, placement: object, mesh_dims: list[int]) -> int:
        """The size of the dimension that a placement shards, but for the cuts of these mesh dimensions; 0 if none."""
        return self._size(placement.dim, mesh_dims) if isinstance(placement, Shard) else 0

    def received(self, kind: int, after: object, n: int) -> int:
        """Elements from the n - 1 others in one collective."""
        sizes = [self._size(dim, []) for dim in range(len(self._shape))]
        if kind == _LOCAL or n == 1:
            return 0
        if kind == _REDUCE:  # a chunk from each other, and the rest of the chunks
            whole = math.prod(sizes)
            chunk = -(-whole // n)
            return (n - 1) * chunk + whole - chunk
        # Without an all-to-all, DTensor gathers in host memory and keeps its part.
        if kind == _SCATTER or (kind == _TRADE and self._mesh.device_type != "cpu"):
            sizes[after.dim] = -(-sizes[after.dim] // n)  # type: ignore[attr-defined]
        return (n - 1) * math.prod(sizes)

    def take(self, mesh_dim: int, before: object, after: object) -> None:
        if isinstance(before, (Shard, StridedShard)):
            self._cuts[before.dim].remove(mesh_dim)
        if isinstance(after, (Shard, StridedShard)):
            self._cuts.setdefault(after.dim, []).append(mesh_dim)
