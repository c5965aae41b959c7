"""How all ranks of a refit come to one decision: one compare-and-set in the store that the jobs share.

One text in the store says which version is committed: "7 2.1" is version 7, by the first refit of generation 2. To
commit version 8 is to replace exactly that text by "8 2.1", which some rank does when all have acknowledged. To give up
is to replace it by "7 2.1 aborted: REASON". Only one of the two can happen, and a rank that acknowledged waits until one
did.
"""

import time
from collections.abc import Callable

from ...errors import PeerError, UndeterminedError
from ..shared_store import SharedStore, ranks_text

_SHORTEST, _LONGEST = 0.0005, 0.02  # seconds between two looks
_PATIENCE = 1.0  # and between two of those that take longer


class Committer:
    """The versions of one refit, as one rank sees them."""

    def __init__(
        self,
        store: SharedStore,
        label: str,
        rank: int,
        world: int,
        timeout: float,
        find_gone: Callable[[list[int]], list[int]],
    ):
        """
        Args:
            label: the same on all ranks, and of no other refit in the store.
            timeout: seconds that ranks wait for each other at one point.
            find_gone: which of these ranks are gone; nobody has to wait for them.
        """
        self._find_gone = find_gone
        self._store = store
        self._label = label
        self._rank = rank
        self._world = world
        self._timeout = timeout
        self._previous = ""
        self.version = 0  # that is committed

    def begin(self) -> str:
        """What the others must know (by `follow`). Called by one rank. From here on late ranks of an earlier generation
        can neither commit nor abort."""
        before = self._store.get("committed")
        while True:
            version = before.partition(" ")[0] or "0"
            begun = f"{version} {self._label}"
            now = self._store.compare_set("committed", before, begun)
            if now == begun:
                return begun
            before = now

    def follow(self, begun: str) -> None:
        self._previous = begun
        self.version = int(begun.partition(" ")[0])

    def abort(self, reason: str) -> str:
        """Gives up the next version, on behalf of all. Returns what was decided first, if it was something else."""
        wanted = f"{self._previous} aborted: {reason[:1000]}"
        there = self._store.compare_set("committed", self._previous, wanted)
        return "" if there == wanted else there

    def acknowledge(self) -> None:
        """Says that this rank has everything. From here on it does not decide for itself any more.

        Raises:
            UndeterminedError: as decide.
        """
        try:
            self._store.set(self._key("acknowledged", self._rank), "1")
        except PeerError as error:
            raise self._undetermined(error) from None

    def decide(self) -> int:
        """Waits until all ranks have acknowledged, and the version is committed. Returns it.

        Raises:
            PeerError: it was given up, because of the ranks that it names: the old version stays everywhere.
            UndeterminedError: the store is lost: other ranks may have either version.
        """
        version = self.version + 1
        committed = f"{version} {self._label}"
        try:
            if self._store.add(self._key("count"), 1) == self._world:
                there = self._store.compare_set("committed", self._previous, committed)
            else:
                there = self._wait()
        except PeerError as error:
            raise self._undetermined(error) from None
        if not there or there == self._previous:
            raise self._undetermined("the store has lost what was in it")
        now = int(there.partition(" ")[0])
        if now == version:  # perhaps a later refit has begun since
            self._previous, self.version = committed, version
            return version
        old = "the old weights are in place"
        if now > version:
            raise PeerError(f"rank {self._rank}: the others have version {now} already, {old} here: join again")
        reason = there.partition(" aborted: ")[2] or "a later refit has begun"
        raise PeerError(f"rank {self._rank}: version {version} was given up, {old}: {reason}")

    def _undetermined(self, error: object) -> UndeterminedError:
        return UndeterminedError(
            f"rank {self._rank}: version {self.version + 1} is undetermined: this rank acknowledged, and then {error}. "
            "Others may have installed it: do not serve from this rank before the next refit"
        )

    def _wait(self) -> str:
        wait = _Wait(self._rank, self._timeout)
        while (there := self._store.get("committed")) == self._previous:
            if wait.is_over:
                self._end(f"within {self._timeout:g} s")
            elif wait.asks():
                self._end("")
            wait.pause()
        return there

    def _end(self, within: str) -> None:
        """Commits if all have acknowledged: one that was to be the last may have died before it saw that. Gives up for
        those that are gone, or, where the time is over (`within`), for all that are late."""
        late = self._late("acknowledged")
        if not late:
            self._store.compare_set("committed", self._previous, f"{self.version + 1} {self._label}")
        elif within:
            self.abort(f"{ranks_text(late)} did not acknowledge {within}")
        elif gone := self._gone("acknowledged", late):
            self.abort(f"{ranks_text(gone)} did not acknowledge, and {_is_gone(gone)}")

    def finish(self) -> None:
        """Says that this rank has installed the version, and waits until all have.

        Raises:
            PeerError: ranks that have not, by number; or the store is lost. The version is installed here.
        """
        here = f"rank {self._rank}: version {self.version} is committed, and installed here"
        try:
            self._store.set(self._key("installed", self._rank), "1")
            wait = _Wait(self._rank, self._timeout)
            while not self._store.has(self._keys("installed")):
                if wait.is_over:
                    late = ranks_text(self._late("installed"))
                    raise PeerError(
                        f"{late} did not finish installing it within {self._timeout:g} s; until they do, or join again, "
                        "nothing of theirs is to be served"
                    )
                if wait.looks and (told := self._store.get(self._key("gone"))):
                    raise PeerError(told)
                if wait.asks() and (gone := self._gone("installed", self._late("installed"))):
                    told = f"{ranks_text(gone)} did not finish installing it, and {_is_gone(gone)}"
                    self._store.set(self._key("gone"), told)
                    raise PeerError(told)
                wait.pause()
        except PeerError as error:
            raise PeerError(f"{here}; {error}") from None

    def _gone(self, kind: str, late: list[int]) -> list[int]:
        """Those of the late ranks that will not do it any more."""
        gone = self._find_gone(late)
        # One may have done it before it left, since it was found to be late.
        return sorted(set(gone) & set(self._late(kind))) if gone else []

    def _late(self, kind: str) -> list[int]:
        keys = self._keys(kind)
        return [keys.index(key) for key in self._store.missing(keys)]

    def _keys(self, kind: str) -> list[str]:
        return [self._key(kind, rank) for rank in range(self._world)]

    def _key(self, kind: str, rank: int | str = "") -> str:
        # `version` is the committed one: the one before until the decision, and then this one.
        return f"{self._label}/{self.version + (kind != 'installed')}/{kind}/{rank}"


class _Wait:
    """One wait for the other ranks.

    It looks into the store again and again, every second for what takes longer. To ask whether others are still there
    takes a look for each of them, so ranks take turns: rank 0 asks every second, rank 1 every two, rank 99 every hundred.
    """

    def __init__(self, rank: int, timeout: float):
        self._rank = rank
        self._deadline = time.monotonic() + timeout
        self._next = time.monotonic() + _PATIENCE
        self._seconds = 0
        self._pause = _SHORTEST

    @property
    def is_over(self) -> bool:
        return time.monotonic() > self._deadline

    @property
    def looks(self) -> bool:
        """Whether it is time for what takes longer."""
        return time.monotonic() > self._next

    def asks(self) -> bool:
        """Whether it is this rank's turn to ask. Where `looks`, the next second begins."""
        if not self.looks:
            return False
        self._next = time.monotonic() + _PATIENCE
        self._seconds += 1
        return self._seconds % (self._rank + 1) == 0

    def pause(self) -> None:
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST)


def _is_gone(ranks: list[int]) -> str:
    return "is gone: its process has ended or left the group" if len(ranks) == 1 else "are gone: their processes have ended or left the group"
