"""What is moved in which exchange, and what that takes: the same on all ranks, made of what all have agreed on."""

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from ..._core import Problem
from ...errors import LimitError
from ...planning import Batch, problem_of_line, scheduled
from ..entries import dtype_of
from .cuts import Cut, Placed, cuts_of, shard_shapes
from .links import links_of
from .specs import Agreed, Spec
from .views import View, views_of, views_of_rows

# What bound batches exchange at once, in bytes per rank.
_BUCKET = 256 << 20


class Move(NamedTuple):
    """One tensor of the schedule."""

    place: int  # in Schedule.moves
    view: View
    cut: Cut | None  # None: the whole tensor, between the layouts that it has
    source: Placed
    target: Placed
    wire: torch.dtype
    source_elements: dict[int, int]  # that each rank gives, and stages
    target_elements: dict[int, int]

    @property
    def casts_first(self) -> bool:
        """Whether elements are cast before they are sent: where they are smaller then, or cast more than once."""
        return bool(self.view.casts) and self.wire == self.view.casts[-1]


class Rounds:
    """Moves in rounds: each is one bound batch, and the exchanges of one are over before those of the next one begin."""

    def __init__(self, rounds: list[list[Move]], topology: str):
        self._batches = [_planned(moves, topology) for moves in rounds]
        self.moves = rounds
        self.facts = [batch.to_dict() for batch in self._batches]  # what reshard.plan_batch says of each

    def messages(self, rank: int) -> int:
        """Most bytes that a rank needs at once for what it sends and receives."""
        return max((_messages(rank, facts) for facts in self.facts), default=0)

    def total(self, rank: int, fact: str) -> int:
        """Of all rounds: "recv_bytes", "recv_bytes_bound", "send_bytes" or "send_between_meshes_bytes"."""
        return sum(_of(facts, rank, fact) for facts in self.facts)

    def links(self) -> dict[tuple[int, int], int]:
        """Bytes by sender and receiver.

        Raises:
            LimitError: as links_of.
        """
        sums: Counter[tuple[int, int]] = Counter()
        for batch, facts, moves in zip(self._batches, self.facts, self.moves):
            sums.update(links_of(batch, facts, [move.wire.itemsize for move in moves]))
        return dict(sorted(sums.items()))


class Schedule:
    """Everything that is moved, and the rounds in which all of it, or some of it, is."""

    def __init__(self, agreed: Agreed, world: int):
        """
        Raises:
            ValueError, NotImplementedError: as views_of and cuts_of.
            LimitError: the memory limit is less than what has to be staged.
        """
        self._agreed = agreed
        self._topology = "flat" if agreed.on_gpus else "cpu"  # what the operators plan for
        self.world = world
        self.moves = _moves(agreed)
        self.staged = list(agreed.kept or [0] * world)
        for move in self.moves:
            for rank, elements in move.target_elements.items():
                self.staged[rank] += elements * move.wire.itemsize
        self.cast = _cast_bytes(agreed, self.moves, world)
        self.all = self.rounds_of(self.moves)

    def rounds_of(self, moves: list[Move]) -> Rounds:
        """As few as fit the memory limit.

        Raises:
            LimitError: none do.
        """
        count = 1
        while True:
            rounds = Rounds(_shares(moves, count), self._topology)
            limit = self._agreed.memory_limit
            if limit is None:
                return rounds
            needed, rank = max((self.memory(rank, rounds), -rank) for rank in range(self.world))
            if needed <= limit:
                return rounds
            if count >= len(moves):
                raise LimitError(
                    f"rank {-rank} needs {needed} bytes of memory for this refit, the limit is {limit}: it stages "
                    f"{self.staged[-rank]}, casts {self.cast[-rank]}, and the largest tensor is exchanged"
                )
            count = min(2 * count, len(moves))

    def memory(self, rank: int, rounds: Rounds) -> int:
        """Bytes that a rank takes at once beside its tensors: what it stages and casts, and the messages of a round."""
        return self.staged[rank] + self.cast[rank] + rounds.messages(rank)


def _planned(moves: list[Move], topology: str) -> Batch:
    # Thousands of moves are between few layouts.
    problems = [_problem(move.source, move.target, move.wire) for move in moves]
    names = [f"{place} {move.view.target}" for place, move in enumerate(moves)]
    return scheduled(problems, names, _BUCKET, ("time", "all", None, (topology, None), None), False)


@functools.lru_cache(maxsize=4096)
def _problem(source: Placed, target: Placed, wire: torch.dtype) -> Problem:
    return problem_of_line(
        {"mesh": source.mesh, "from": source.layout, "to_mesh": target.mesh, "to": target.layout, "dtype": str(wire)}
    )


def _messages(rank: int, facts: dict[str, Any]) -> int:
    sent_and_received = sum(_of(facts, rank, fact) for fact in ("recv_bytes", "send_bytes"))
    return min(sent_and_received, max((bucket["bytes"] for bucket in facts["buckets"]), default=0))


def _of(facts: dict[str, Any], rank: int, fact: str) -> int:
    return sum(device[fact] for device in facts["devices"] if device["device"] == rank)


def _moves(agreed: Agreed) -> list[Move]:
    sources, targets = agreed.source.specs, agreed.target.specs
    moves: list[Move] = []
    rows = agreed.rows
    for view in views_of(sources, targets, agreed.recipe) if rows is None else views_of_rows(sources, targets, rows):
        source, target = sources[view.source], targets[view.target]
        wire = dtype_of(source.dtype)
        if view.casts and (len(view.casts) > 1 or view.casts[-1].itemsize < wire.itemsize):
            wire = view.casts[-1]  # of several casts only copying does the last one without memory
        before, after = Placed(source.mesh, source.layout), Placed(target.mesh, target.layout)
        if view.covers(source, target):
            given, staged = _elements(source), _elements(target)
            moves.append(Move(len(moves), view, None, before, after, wire, given, staged))
            continue
        for cut in cuts_of(before, after, view.source_start, view.target_start, view.loops):
            given, staged = cut.source_elements, cut.target_elements
            moves.append(Move(len(moves), view, cut, cut.source, cut.target, wire, given, staged))
    return moves


def _elements(spec: Spec) -> dict[int, int]:
    return {rank: math.prod(shape) for rank, shape in shard_shapes(spec.mesh, spec.layout).items()}


def _cast_bytes(agreed: Agreed, moves: Sequence[Move], world: int) -> list[int]:
    """Of the copies of shards, cast before they are sent; a shard that several moves take from is cast once."""
    seen: set[tuple] = set()
    bytes_ = [0] * world
    for move in moves:
        key = (move.view.source, move.view.casts)
        if not move.casts_first or key in seen:
            continue
        seen.add(key)
        for rank, elements in _elements(agreed.source.specs[move.view.source]).items():
            bytes_[rank] += elements * move.wire.itemsize
    return bytes_


def _shares(moves: Sequence[Move], count: int) -> list[list[Move]]:
    """In order, with about as many bytes each."""
    sizes = [sum(move.target_elements.values()) * move.wire.itemsize for move in moves]
    total, done = max(1, sum(sizes)), 0
    shares: list[list[Move]] = [[] for _ in range(count)]
    for place, (move, size) in enumerate(zip(moves, sizes)):
        share = place if count >= len(moves) else min(count - 1, done * count // total)
        shares[share].append(move)
        done += size
    return [share for share in shares if share]
