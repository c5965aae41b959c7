"""One process group over several jobs, each of which has a default group of its own."""

import os
import secrets
import socket

import torch.distributed as dist

from ..errors import InputError
from .groups import Span, SpanningGroup, forget_joined_group, use_joined_group
from .meeting import Meeting, Member
from .private_pytorch import connect_group, default_store
from .shared_store import SharedStore, clone_of, default_timeout


class Joined(SpanningGroup):
    """A process group over the ranks of several jobs: `group` is what every function of reshard takes as group=.

    Its ranks are those that `join` was called with. DTensors keep the meshes of their own jobs: where this group is
    given, the ranks in them are translated.
    """

    def __init__(self, group: dist.ProcessGroup, span: Span, members: tuple[Member, ...], generation: int, rank: int, store: dist.Store):
        self.group = group
        self.members = members
        self.generation = generation  # 1 for the first group of that name in the store, and one more for each later one
        self.rank = rank
        self.span = span
        self.store = store  # in which the jobs meet
        self._store: SharedStore | None = None
        self._instances = 0

    @property
    def world(self) -> int:
        return len(self.members)

    @property
    def jobs(self) -> list[list[int]]:
        """The ranks of each job; jobs are in the order of their first ranks."""
        ranks: dict[str, list[int]] = {}
        for member in self.members:
            ranks.setdefault(member.job, []).append(member.rank)
        return list(ranks.values())

    def leave(self) -> None:
        """Ends the group on this rank; other ranks that use it find this one gone. Local."""
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

    Gloo carries what is in host memory; NCCL, where both PyTorch and the machine have it, carries what is on GPUs.

    Collective: every rank of every job calls it. Ranks may come back: after one was lost, or left, all call `join`
        again, including those of restarted processes, and meet in a new group (`generation`).

    Args:
        store: a c10d store that all jobs reach: a TCPStore whose server is not a rank that may be restarted, or a
            FileStore.
        rank: the rank of this process in the new group, whatever it is in its job; no two processes have the same.
        world: how many ranks there are in all jobs together.
        name: of the group; other groups in the same store need other names.
        timeout: seconds to wait for the others; None means RESHARD_TIMEOUT_MS. It is the group's own timeout, too.

    Raises:
        ValueError: a rank that is not below `world`; another waiting process has the same rank; ranks that say
            different worlds (raised on all that wait).
        reshard.PeerError: ranks did not come or connect in time, or came and left, by number; the store is lost.
    """
    timeout = default_timeout() if timeout is None else float(timeout)
    if not 0 <= rank < world:
        raise InputError(f"rank {rank} of {world}: a rank is at least 0 and less than the world")
    shared = SharedStore(store, f"reshard/join/{name}", timeout)
    try:
        job, job_rank = _job(timeout)
        own = Member(rank, socket.gethostname(), os.getpid(), job, job_rank)

        def connect(generation: int) -> dist.ProcessGroup:
            own_store = dist.PrefixStore(f"reshard/group/{name}/{generation}", clone_of(store))
            return connect_group(own_store, rank, world, timeout)

        generation, members, group = Meeting(shared, own, world, timeout).meet(connect)
        ranks = tuple(m.job_rank if m.job == job else -1 - m.rank for m in members)
        span = Span(f"reshard:{name}:{generation}:{rank}", ranks)
        use_joined_group(group, span)
    except BaseException:
        shared.close()
        raise
    joined = Joined(group, span, members, generation, rank, store)
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
