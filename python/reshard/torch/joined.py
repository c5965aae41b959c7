"""One process group over several jobs, each of which has a default group of its own."""

import dataclasses
import json
import os
import secrets
import socket
import time

import torch.distributed as dist

from ..errors import InputError, PeerError
from .groups import Span, forget_joined_group, make_joined_group
from .private_pytorch import default_store
from .shared_store import SharedStore, default_timeout, ranks_text

_POLL = 0.02  # seconds
# A process that waits says so this often; one that has not for the longer time is gone, or stopped.
_SILENCE = 3.0


@dataclasses.dataclass(frozen=True)
class Member:
    """One rank of a joined group, as it says of itself."""

    rank: int
    host: str
    pid: int
    job: str  # the same text on all ranks of one job, and on no others
    job_rank: int  # in the default group of its job

    def __str__(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


class Joined:
    """A process group over the ranks of several jobs: `group` is what every function of reshard takes as group=.

    Its ranks are those that `join` was called with. DTensors keep the meshes of their own jobs: where this group is
    given, the ranks in them are translated.
    """

    def __init__(self, group: dist.ProcessGroup, span: Span, members: tuple[Member, ...], generation: int, rank: int):
        self.group = group
        self.members = members
        self.generation = generation  # 1 for the first group of that name in the store, and one more for each later one
        self.rank = rank
        self.span = span
        self._store: SharedStore | None = None
        self._instances = 0

    @property
    def world(self) -> int:
        return len(self.members)

    @property
    def jobs(self) -> list[list[int]]:
        """The ranks of each job, in the order of their first ones."""
        ranks: dict[str, list[int]] = {}
        for member in self.members:
            ranks.setdefault(member.job, []).append(member.rank)
        return list(ranks.values())

    def leave(self) -> None:
        """Ends the group on this rank; others that use it find this one gone. Local."""
        if self._store is not None:
            forget_joined_group(self.span.name)
            self._store.close()
            self._store = None

    def __enter__(self) -> "Joined":
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<reshard.Joined: rank {self.rank} of {self.world}, jobs {self.jobs}, generation {self.generation}>"


def join(store: dist.Store, rank: int, world: int, *, name: str = "jobs", timeout: float | None = None) -> Joined:
    """Makes one process group over the ranks of several jobs. Their default groups stay as they are.

        store = dist.TCPStore(host, port, is_master=False)      # the same server for both jobs
        joined = reshard.join(store, rank=4 + dist.get_rank(), world=6)
        refit = reshard.Refit(target=engine, group=joined)

    Gloo carries what is in host memory and, where both PyTorch and the machine have it, NCCL what is on GPUs.

    Collective: every rank of every job calls it. Ranks may come back: after one was lost, or left, all call `join`
        again, those of restarted processes too, and meet in a new group (`generation`).

    Args:
        store: a c10d store that all jobs reach: a TCPStore whose server is not a rank that may be restarted, or a
            FileStore.
        rank: the number of this process in the new group, whatever it is in its job: no two have the same.
        world: how many ranks there are in all jobs together.
        name: other groups in the same store have other names.
        timeout: seconds to wait for the others; None means RESHARD_TIMEOUT_MS. It is the group's own timeout, too.

    Raises:
        ValueError: no number below `world`; another process that waits has the same number; ranks that say different
            worlds (raised on all that wait).
        reshard.PeerError: ranks did not come in time, or came and left, by number; the store is lost.
    """
    timeout = default_timeout() if timeout is None else float(timeout)
    if not 0 <= rank < world:
        raise InputError(f"rank {rank} of {world}: a rank is at least 0 and less than the world")
    shared = SharedStore(store, f"reshard/join/{name}", timeout)
    try:
        job, job_rank = _job(timeout)
        own = Member(rank, socket.gethostname(), os.getpid(), job, job_rank)
        generation, members = _Meeting(shared, own, world, timeout).meet()
        ranks = tuple(m.job_rank if m.job == job else -1 - m.rank for m in members)
        span = Span(f"reshard:{name}:{generation}:{rank}", ranks)
        try:
            own_store = dist.PrefixStore(f"reshard/group/{name}/{generation}", store)
            group = make_joined_group(own_store, rank, span, timeout)
        except Exception as error:
            late = [m for m in members if m.rank != rank and shared.missing([f"{generation}/connected/{m.rank}"])]
            named = ", ".join(map(str, late)) or "none that is known"
            reason = str(error)[:200]
            raise PeerError(f"rank {rank} could not connect; not connected either: {named} ({reason})") from None
        shared.set(f"{generation}/connected/{rank}", "1")
    except BaseException:
        shared.close()
        raise
    joined = Joined(group, span, members, generation, rank)
    joined._store = shared
    return joined


def _job(timeout: float) -> tuple[str, int]:
    """What identifies the job of this process, and its rank there."""
    token = secrets.token_hex(8)
    if not dist.is_initialized():
        return token, 0
    store = SharedStore(default_store(), "reshard", timeout)
    try:
        return store.compare_set("job", "", token), dist.get_rank()
    finally:
        store.close()


class _Meeting:
    """How ranks find each other in a store.

    There is a row of generations. In each, a rank claims its number, and waits until all numbers are claimed; then one
    compare-and-set on the state of the generation completes it for everybody. The same compare-and-set abandons it
    where a rank has waited too long, or a claimant is gone and its successor is here: everybody goes on to the next
    generation. A claim says that a rank was here; so all then say that they have stayed, and that is settled likewise.
    """

    def __init__(self, store: SharedStore, own: Member, world: int, timeout: float):
        self._store = store
        self._own = own
        self._world = world
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._before = ""  # why the first generation was abandoned that this rank waited in
        self._record = json.dumps(dataclasses.asdict(own) | {"token": secrets.token_hex(8)})

    def meet(self) -> tuple[int, tuple[Member, ...]]:
        generation = int(self._store.get("latest") or 1)
        while not (self._come(generation) and self._stay(generation)):
            generation += 1
        members = [json.loads(self._store.get(key)) for key in self._keys(generation, "claim")]
        for member in members:
            del member["token"]
        return generation, tuple(Member(**member) for member in members)

    def _keys(self, generation: int, kind: str) -> list[str]:
        return [f"{generation}/{kind}/{rank}" for rank in range(self._world)]

    def _settle(self, generation: int, state: str, phase: str = "state") -> str:
        """Ends the wait of everybody in a generation; what was first counts, and is returned."""
        state = self._store.compare_set(f"{generation}/{phase}", "", state)
        self._store.set("latest", str(generation))
        return state

    def _late(self, generation: int, kind: str) -> str:
        return ranks_text(int(key.rpartition("/")[2]) for key in self._store.missing(self._keys(generation, kind)))

    def _come(self, generation: int) -> bool:
        """False: this generation is over, without this process."""
        if self._store.get(f"{generation}/state"):
            return False
        world = self._store.compare_set(f"{generation}/world", "", str(self._world))
        if world != str(self._world):
            refused = f"refused: {self._own} says that there are {self._world} ranks, but others here say {world}"
            self._settle(generation, refused)
            raise InputError(refused.removeprefix("refused: "))
        there = self._store.compare_set(f"{generation}/claim/{self._own.rank}", "", self._record)
        if there != self._record:
            self._replace(generation, json.loads(there))
            return False
        return self._wait(generation)

    def _replace(self, generation: int, other: dict) -> None:
        """Another process has the number. Refuses this one if that one still waits; otherwise ends its generation."""
        beat = f"{generation}/beat/{self._own.rank}"
        before = self._store.get(beat)
        until = time.monotonic() + min(_SILENCE, self._timeout / 2)
        where = f"process {other['pid']} on {other['host']}"
        while time.monotonic() < until:
            if self._store.get(f"{generation}/state"):
                return
            if self._store.get(beat) != before:
                raise InputError(
                    f"two processes are rank {self._own.rank}: {where}, which waits for the others, and this one, "
                    f"process {self._own.pid} on {self._own.host}"
                )
            time.sleep(_POLL)
        self._settle(generation, f"abandoned: rank {self._own.rank}, {where}, came and went")

    def _wait(self, generation: int) -> bool:
        claims = self._keys(generation, "claim")
        while True:
            state = self._store.get(f"{generation}/state")
            if not state and self._store.has(claims):
                state = self._settle(generation, "complete")
            if not state and time.monotonic() > self._deadline:
                late = f"{self._late(generation, 'claim')} of {self._world} did not join within {self._timeout:g} s"
                state = self._settle(generation, f"abandoned: {late}")
                if state != "complete":
                    raise PeerError(f"rank {self._own.rank}: {self._before or late} (generation {generation})")
            if state == "complete":
                return True
            if state.startswith("refused: "):
                raise InputError(state.removeprefix("refused: "))
            if state:
                return self._go_on(state)
            self._store.add(f"{generation}/beat/{self._own.rank}", 1)
            time.sleep(_POLL)

    def _stay(self, generation: int) -> bool:
        self._store.set(f"{generation}/here/{self._own.rank}", "1")
        here = self._keys(generation, "here")
        deadline = time.monotonic() + min(self._timeout, _SILENCE)
        while True:
            state = self._store.get(f"{generation}/stayed")
            if not state and self._store.has(here):
                state = self._settle(generation, "complete", "stayed")
            if not state and time.monotonic() > deadline:
                late = f"{self._late(generation, 'here')} came and did not stay"
                state = self._settle(generation, f"abandoned: {late}", "stayed")
            if state == "complete":
                return True
            if state:
                return self._go_on(state)
            time.sleep(_POLL)

    def _go_on(self, state: str) -> bool:
        """To the next generation; where nobody comes there, this is why."""
        self._before = self._before or state.removeprefix("abandoned: ")
        if time.monotonic() > self._deadline:
            raise PeerError(f"rank {self._own.rank}: {self._before}")
        return False
