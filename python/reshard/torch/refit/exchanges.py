"""The bound batches of a refit: those that move everything, and those of what has changed lately."""

from collections import OrderedDict

from ...errors import LimitError
from ..bound import BoundBatch
from .schedule import Move, Rounds, Schedule
from .stage import Stage

# Sets of moves that stay bound. They share the buffers of the whole schedule; what each has of its own is a plan.
_KEPT = 16


class Exchanges:
    """All ranks ask for the same sets, one after the other."""

    def __init__(self, schedule: Schedule, stage: Stage, group: str):
        """Binds everything. Collective over the group; raises as reshard.bind."""
        self._schedule = schedule
        self._stage = stage
        self._group = group
        self._all = (schedule.all, stage.bind(schedule.all, group))
        self._some: OrderedDict[tuple[int, ...], tuple[Rounds, list[BoundBatch]]] = OrderedDict()

    def of(self, moves: list[Move]) -> tuple[Rounds, list[BoundBatch]]:
        """What moves at least these; all, where only that fits the memory limit (of fewer moves other ranks may be the
        senders). Collective over the group where they are new; raises as reshard.bind."""
        if len(moves) == len(self._schedule.moves):
            return self._all
        key = tuple(move.place for move in moves)
        if key not in self._some:
            self._some[key] = self._bound(moves)
            if len(self._some) > _KEPT:
                self._some.popitem(last=False)
        self._some.move_to_end(key)
        return self._some[key]

    def _bound(self, moves: list[Move]) -> tuple[Rounds, list[BoundBatch]]:
        try:
            rounds = self._schedule.rounds_of(moves)
        except LimitError:
            return self._all
        return rounds, self._stage.bind(rounds, self._group)
