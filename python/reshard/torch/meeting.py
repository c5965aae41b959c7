"""How the ranks of several jobs find each other in a store, and connect."""

import dataclasses
import json
import secrets
import threading
import time
from concurrent.futures import Future
from typing import Any, Callable

from ..errors import InputError, PeerError
from .shared_store import SharedStore, ranks_text

_POLL = 0.02  # seconds
# A waiting process says so every _POLL; one that has been silent for _SILENCE is gone, or stopped.
_SILENCE = 3.0
# How often ranks try to connect. Seen with Gloo on a busy machine: a connection is closed while it is made, and the
# others hang beyond their timeout.
_ATTEMPTS = 3

_COMPLETE = "complete"
_ABANDONED = "abandoned: "
_REFUSED = "refused: "
# The phases that all ranks go through in a generation, in this order, and what to say of a rank that does not.
_PHASES = {"come": "did not join", "stay": "came and did not stay", "connect": "did not connect"}


@dataclasses.dataclass(frozen=True)
class Member:
    """One rank of a joined group, as it describes itself."""

    rank: int
    host: str
    pid: int
    job: str  # the same text on all ranks of one job, and on no others
    job_rank: int  # in the default group of its job

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


class Meeting:
    """One call of `join`, on one rank.

    There is a sequence of generations, each with three phases: a rank comes, which claims its number; it stays, since a
    claim says only that it was here; it connects. In each phase a rank waits until all have done so; then one
    compare-and-set on the phase completes it for all. The same compare-and-set abandons it where a rank has waited too
    long, could not connect, or is gone and its successor is here: all then go on to the next generation.
    """

    def __init__(self, store: SharedStore, own: Member, world: int, timeout: float):
        self._store = store
        self._own = own
        self._world = world
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._before = ""  # why the first generation that this rank waited in was abandoned
        self._record = json.dumps(dataclasses.asdict(own) | {"token": secrets.token_hex(8)})

    def meet(self, connect: Callable[[int], Any]) -> tuple[int, tuple[Member, ...], Any]:
        """The generation in which all are present, their identities, and what connect(generation) returned on this rank.

        `connect` runs on a thread of its own, which is left behind where it does not return in time.

        Raises:
            InputError: two processes with one number; ranks that say different worlds.
            PeerError: ranks did not come, stay or connect in time; the store is lost.
        """
        generation = int(self._store.get("latest") or 1)
        attempts = 0
        while True:
            if self._come(generation) and self._stay(generation):
                link = _start(connect, generation)
                if self._connect(generation, link):
                    return generation, self._members(generation), link.result()
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise PeerError(f"rank {self._own.rank}: {self._before} (and {attempts - 1} times again)")
            generation += 1

    def _members(self, generation: int) -> tuple[Member, ...]:
        records = [json.loads(self._store.get(key)) for key in self._keys(generation, "come")]
        for record in records:
            del record["token"]
        return tuple(Member(**record) for record in records)

    def _keys(self, generation: int, phase: str) -> list[str]:
        return [f"{generation}/{phase}/{rank}" for rank in range(self._world)]

    def _settle(self, generation: int, phase: str, state: str) -> str:
        """Ends the wait of all ranks in a phase. The first state that is set counts, and is returned."""
        state = self._store.compare_set(f"{generation}/{phase}", "", state)
        self._store.set("latest", str(generation))
        return state

    def _late(self, generation: int, phase: str) -> str:
        return ranks_text(int(key.rpartition("/")[2]) for key in self._store.missing(self._keys(generation, phase)))

    def _silent(self, generation: int) -> list[int]:
        """The ranks that have not connected and do not say that they wait. Watches them for some seconds, unless this
        generation is settled before."""
        beats = {rank: self._store.get(f"{generation}/beat/{rank}") for rank in range(self._world)}
        beats.pop(self._own.rank)
        until = time.monotonic() + min(_SILENCE, self._timeout / 2)
        while beats and time.monotonic() < until and not self._store.get(f"{generation}/connect"):
            self._store.add(f"{generation}/beat/{self._own.rank}", 1)  # others may be looking, too
            time.sleep(_POLL)
            beats = {rank: beat for rank, beat in beats.items() if self._store.get(f"{generation}/beat/{rank}") == beat}
        return [rank for rank in beats if self._store.missing([f"{generation}/connect/{rank}"])]

    def _come(self, generation: int) -> bool:
        """False: this generation is over, without this process."""
        if self._store.get(f"{generation}/come"):
            there = self._store.get(f"{generation}/come/{self._own.rank}")
            if there:
                self._replace(generation, json.loads(there))
            return False
        world = self._store.compare_set(f"{generation}/world", "", str(self._world))
        if world != str(self._world):
            reason = f"{self._own} says that there are {self._world} ranks, but others here say {world}"
            self._settle(generation, "come", _REFUSED + reason)
            raise InputError(reason)
        there = self._store.compare_set(f"{generation}/come/{self._own.rank}", "", self._record)
        if there != self._record:
            self._replace(generation, json.loads(there))
            return False
        return self._wait(generation, "come", self._deadline)

    def _replace(self, generation: int, other: dict) -> None:
        """Another process has the number. If it is gone, abandons its generation, in which the others would wait for it.
        Raises if it waits, as this one would.
        """
        beat = f"{generation}/beat/{self._own.rank}"
        before = self._store.get(beat)
        until = time.monotonic() + min(_SILENCE, self._timeout / 2)
        where = f"process {other['pid']} on {other['host']}"
        while True:
            phase = self._phase(generation)
            if phase is None:
                return
            if self._store.get(beat) != before:
                if phase != "come":
                    return
                raise InputError(
                    f"two processes are rank {self._own.rank}: {where}, which waits for the others, and this one, "
                    f"process {self._own.pid} on {self._own.host}"
                )
            if time.monotonic() > until:
                break
            time.sleep(_POLL)
        self._settle(generation, phase, f"{_ABANDONED}rank {self._own.rank}, {where}, came and went")

    def _phase(self, generation: int) -> str | None:
        """The phase that ranks wait in; None: the generation is over."""
        for phase in _PHASES:
            state = self._store.get(f"{generation}/{phase}")
            if not state:
                return phase
            if state != _COMPLETE:
                return None
        return None

    def _stay(self, generation: int) -> bool:
        self._store.set(f"{generation}/stay/{self._own.rank}", "1")
        return self._wait(generation, "stay", time.monotonic() + min(self._timeout, _SILENCE))

    def _connect(self, generation: int, link: Future) -> bool:
        said = False

        def say() -> None:
            nonlocal said
            if said or not link.done():
                return
            said = True
            error = link.exception()
            if error is None:
                self._store.set(f"{generation}/connect/{self._own.rank}", "1")
                return
            silent = self._silent(generation)
            late = f"{self._late(generation, 'connect')} had not yet either"
            if silent:
                late = f"{ranks_text(silent)} ended or stopped meanwhile"
            reason = f"rank {self._own.rank} could not connect ({str(error)[:200]}); {late}"
            self._settle(generation, "connect", _ABANDONED + reason)

        return self._wait(generation, "connect", time.monotonic() + self._timeout, say)

    def _wait(self, generation: int, phase: str, deadline: float, step: Callable[[], None] = lambda: None) -> bool:
        """Waits until all ranks have done what the phase asks for, calling `step` meanwhile. False: it is abandoned."""
        marks = self._keys(generation, phase)
        while True:
            step()
            state = self._store.get(f"{generation}/{phase}")
            if not state and self._store.has(marks):
                state = self._settle(generation, phase, _COMPLETE)
            if not state and time.monotonic() > deadline:
                # If one rank is gone while all connect, no rank has connected, but the others are still here.
                silent = self._silent(generation) if phase == "connect" else []
                late = ranks_text(silent) if silent else self._late(generation, phase)
                late = f"{late} of {self._world} {_PHASES[phase]} within {self._timeout:g} s"
                if silent:
                    late += " and ended or stopped meanwhile"
                state = self._settle(generation, phase, _ABANDONED + late)
            if state == _COMPLETE:
                return True
            if state.startswith(_REFUSED):
                raise InputError(state.removeprefix(_REFUSED))
            if state:
                self._before = self._before or state.removeprefix(_ABANDONED)
                if time.monotonic() > self._deadline:
                    raise PeerError(f"rank {self._own.rank}: {self._before} (generation {generation})")
                return False
            self._store.add(f"{generation}/beat/{self._own.rank}", 1)
            time.sleep(_POLL)


def _start(connect: Callable[[int], Any], generation: int) -> Future:
    link: Future = Future()

    def run() -> None:
        try:
            link.set_result(connect(generation))
        except Exception as error:
            link.set_exception(error)

    threading.Thread(target=run, name="reshard connect", daemon=True).start()
    return link
