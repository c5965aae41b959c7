"""This rank's part of a schedule: its buffers, the exchanges bound to them, and the way from them into the target."""

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..bound import BoundBatch
from .cuts import Cut, Placed, part_of, parts, shard_shapes
from .schedule import Move, Rounds, Schedule
from .specs import Side, Spec


class _Cast(NamedTuple):
    shard: torch.Tensor
    copy: torch.Tensor
    casts: tuple[torch.dtype, ...]


class Stage:
    """Prepares everything that `run` and `install` do, so that these only move."""

    def __init__(self, schedule: Schedule, source: Side, target: Side, rank: int):
        """Takes the memory. Local.

        Raises:
            ValueError: a tensor of this rank has another shape than its shard.
        """
        self._rank = rank
        self._source, self._target = source, target
        for side in (source, target):
            for name, tensor in side.tensors.items():
                _check_shape(side.specs[name], tensor, rank)
        self._device = _device(source, target)
        # Sizes, strides and offset of what cuts are in shards of given strides: layers have the same ones.
        self._views: dict[tuple[int, bool, tuple[int, ...]], tuple[torch.Size, tuple[int, ...], int]] = {}
        self._empty: dict[torch.dtype, torch.Tensor] = {}
        self._casts: dict[tuple, _Cast] = {}
        # By the place of their move.
        self._casts_of: dict[int, _Cast] = {}
        self._outs: dict[int, torch.Tensor] = {}
        with torch.no_grad():
            self._given = [self._give(move) for move in schedule.moves]
            self._staged = [self._take(move) for move in schedule.moves]
        tensors = [*source.tensors.items(), *target.tensors.items()]
        self._places = [(name, tensor.untyped_storage(), _end(tensor)) for name, tensor in tensors]

    def bind(self, rounds: Rounds, group: str) -> list[BoundBatch]:
        """The exchanges of these moves. Collective over the group; raises as reshard.bind."""
        bound = []
        with torch.no_grad():
            for moves in rounds.moves:
                tensors = [self._given[move.place] for move in moves]
                outs = [self._staged[move.place] for move in moves]
                meshes = [[placed.mesh for placed in placements] for placements in _placements(moves)]
                layouts = [[placed.layout for placed in placements] for placements in _placements(moves)]
                bound.append(BoundBatch(tensors, outs, meshes[0], *layouts, group, meshes[1]))
        return bound

    def check(self) -> None:
        """Whether the memory of both sides is still there.

        Raises:
            ValueError: the storage of a tensor was freed or made smaller.
        """
        for name, storage, end in self._places:
            if storage.nbytes() < end:
                raise ValueError(f"{name}: its storage was freed or made smaller since the refit was planned")

    def cast(self, moves: Sequence[Move]) -> None:
        """Casts what is smaller then, for the next run of these moves."""
        casts = {id(cast): cast for move in moves if (cast := self._casts_of.get(move.place))}
        with torch.no_grad():
            for cast in casts.values():
                shard = cast.shard
                for dtype in cast.casts[:-1]:
                    shard = shard.to(dtype)
                cast.copy.copy_(shard)

    def wait(self) -> None:
        """Until what was staged has arrived."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()

    def install(self, moves: Sequence[Move]) -> None:
        """Copies what these moves have staged into the target's tensors, which keep their memory."""
        with torch.no_grad():
            for move in moves:
                if (out := self._outs.get(move.place)) is not None:
                    out.copy_(self._staged[move.place])

    def _give(self, move: Move) -> torch.Tensor:
        view = move.view
        shard = self._source.tensors.get(view.source)
        if shard is None or self._rank not in move.source_elements:
            return self._nothing(move.wire)
        if move.casts_first:
            key = (view.source, view.casts)
            if key not in self._casts:
                self._casts[key] = _Cast(shard, torch.empty_like(shard, dtype=move.wire), view.casts)
            self._casts_of[move.place] = self._casts[key]
            shard = self._casts[key].copy
        if move.cut is None:
            return shard
        return self._part(shard, self._source.specs[view.source], move.cut, True)

    def _take(self, move: Move) -> torch.Tensor:
        view = move.view
        out = self._target.tensors.get(view.target)
        if out is None or self._rank not in move.target_elements:
            return self._nothing(move.wire)
        if move.cut is not None:
            out = self._part(out, self._target.specs[view.target], move.cut, False)
        self._outs[move.place] = out
        return torch.empty(out.shape, dtype=move.wire, device=out.device)

    def _part(self, shard: torch.Tensor, spec: Spec, cut: Cut, of_source: bool) -> torch.Tensor:
        """What of this rank's shard a cut moves, in place."""
        key = (id(cut), of_source, shard.stride())
        if key not in self._views:
            part = parts(Placed(spec.mesh, spec.layout), len(spec.shape))[cut.source_part if of_source else cut.target_part]
            where = cut.in_source(self._rank) if of_source else cut.in_target(self._rank)
            made = part_of(part.of(shard, self._rank), part.held[self._rank], *where)
            self._views[key] = made.shape, made.stride(), made.storage_offset() - shard.storage_offset()
        sizes, strides, offset = self._views[key]
        return shard.as_strided(sizes, strides, shard.storage_offset() + offset)

    def _nothing(self, dtype: torch.dtype) -> torch.Tensor:
        """For what this rank has no part in."""
        if dtype not in self._empty:
            self._empty[dtype] = torch.empty(0, dtype=dtype, device=self._device)
        return self._empty[dtype]


def _placements(moves: list[Move]) -> tuple[list[Placed], list[Placed]]:
    return [move.source for move in moves], [move.target for move in moves]


def _check_shape(spec: Spec, tensor: torch.Tensor, rank: int) -> None:
    wanted = shard_shapes(spec.mesh, spec.layout).get(rank)
    if wanted is None:
        return  # outside the mesh of this DTensor
    if list(tensor.shape) != wanted and (tensor.numel() or 0 not in wanted):
        raise ValueError(f"{spec.name}: rank {rank} has a shard of {list(tensor.shape)}, its layout says {wanted}")


def _device(source: Side, target: Side) -> torch.device:
    for side in (target, source):
        for tensor in side.tensors.values():
            return tensor.device
    return torch.device("cpu")


def _end(tensor: torch.Tensor) -> int:
    """One byte past the last element, from the beginning of the storage."""
    if tensor.numel() == 0:
        return 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return (tensor.storage_offset() + reach + 1) * tensor.element_size()
