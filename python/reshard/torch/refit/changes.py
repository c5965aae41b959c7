"""Which moves a call leaves out: those of which every shard, on either side, is as the last call left it.

Every rank looks at its own shards alone, whole, whatever layout they are a part of; one exchange of a bit for each move
then tells all ranks which moves any of them needs.
"""

from collections.abc import Sequence

import torch

from ...errors import InputError
from ..shared_store import ranks_text
from .schedule import Move, Schedule
from .specs import Side

_FAILED, _ALL, _CHANGED = range(3)  # what a rank says first

Key = tuple[bool, str]  # of the source, name
Fingerprint = tuple[int, int]


class Changes:
    """What this rank's shards contained when the last version was installed here."""

    def __init__(self, schedule: Schedule, source: Side, target: Side, rank: int):
        self._moves = schedule.moves
        self._world = schedule.world
        self._rank = rank
        self._shards: dict[Key, torch.Tensor] = {(True, name): shard for name, shard in source.tensors.items()}
        self._shards |= {(False, name): shard for name, shard in target.tensors.items()}
        self._installed: dict[Key, Fingerprint] = {}
        self._now: dict[Key, Fingerprint] = {}

    def look(self) -> int:
        """The moves that this rank needs: bit i is move i. Reads all shards once."""
        self._now = self._fingerprints(list(self._shards))
        changed = {key for key, now in self._now.items() if self._installed.get(key) != now}
        needed = 0
        for move in self._moves:
            gives = self._rank in move.source_elements and (True, move.view.source) in changed
            takes = self._rank in move.target_elements and (False, move.view.target) in changed
            needed |= (gives or takes) << move.place
        return needed

    def agree(self, changed_only: bool, needed: int | None, group: str) -> list[Move] | None:
        """The moves of this call: all, or those that any rank needs; None where a rank has failed. Collective over the
        group.

        Args:
            needed: of this rank; None: it has failed.

        Raises:
            ValueError: ranks that differ in `changed_only`, by number.
            torch.distributed.DistBackendError: another rank is gone, is late or calls something else.
        """
        word = _FAILED if needed is None else _CHANGED if changed_only else _ALL
        bits = (needed or 0).to_bytes(-(-len(self._moves) // 8), "little")
        own = torch.frombuffer(bytearray([word, *bits]), dtype=torch.uint8)
        rows = torch.ops.reshard.all_gather(own, 0, group).view(self._world, -1)
        ranks: list[list[int]] = [[], [], []]
        for rank, said in enumerate(rows[:, 0].tolist()):
            ranks[said].append(rank)
        if ranks[_FAILED]:
            return None
        if ranks[_ALL] and ranks[_CHANGED]:
            raise InputError(
                f"changed_only is True on {ranks_text(ranks[_CHANGED])} and False on {ranks_text(ranks[_ALL])}; it is "
                "the same on all ranks of a call"
            )
        if not changed_only:
            return self._moves
        together = 0
        for row in rows:
            together |= int.from_bytes(row[1:].numpy().tobytes(), "little")
        return [move for move in self._moves if together >> move.place & 1]

    def installed(self, moves: Sequence[Move]) -> None:
        """What `look` saw is the last version from now on, and what these moves have written."""
        written = {(False, move.view.target) for move in moves} & self._shards.keys()
        self._installed = self._now | self._fingerprints(list(written))

    def forget(self) -> None:
        """The next call needs all moves."""
        self._installed = {}

    def _fingerprints(self, keys: list[Key]) -> dict[Key, Fingerprint]:
        sums = torch.ops.reshard._local_fingerprints([self._shards[key] for key in keys]).tolist()
        return {key: (low, high) for key, (low, high) in zip(keys, sums)}
