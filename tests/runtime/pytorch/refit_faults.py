"""One refit that comes to harm, in processes of its own, and what must be true afterwards.

    fault = Fault(harm="kill", step="wire", victim=0, sizes=(1, 2))
    complaints = judge(fault, run(fault))

Rank 0 and on train, those after them serve. All weights have the number of their version as their value, but for one
that never changes. Where the harm is "restart", one more process takes the place of the victim when that is dead.
"""

import os
import select
import signal
import time
from typing import NamedTuple

import torch

import jobs
from refit_test import D0, D1, R, mesh_of, sharded

STEPS = ("discover", "plan", "compare", "wire", "acknowledge", "commit", "install", "finish")
BEFORE_COMMIT = STEPS[:5]
HARMS = ("kill", "restart", "stop", "stop for long", "exception", "store")
SLOW_ANSWER = 0.06  # seconds, of the store, where a process is stopped in one of its calls
TIMEOUT_MS = 1500
HANG = 60  # seconds in which a fault has ended


class Fault(NamedTuple):
    harm: str  # of HARMS
    step: str  # right before which it happens
    victim: int
    sizes: tuple[int, int]  # ranks of either job
    calls: int = 1  # refits before it
    changed_only: bool = False
    store_call: int = 0  # of "stop in a store call": which one of the refit, counted from 1

    @property
    def world(self):
        return sum(self.sizes)

    @property
    def plain(self):
        """A process that is started anew has no mesh of its job."""
        return self.harm == "restart"


class Weights:
    """A rank's tensors."""

    def __init__(self, fault, rank):
        self.trains = rank < fault.sizes[0]
        mesh = None
        if not fault.plain:
            mesh = mesh_of(torch.arange(fault.sizes[not self.trains]), ("x",))
        self.tensors = {
            "rows": sharded(torch.zeros(12, 10), mesh, [D0 if self.trains else D1]),
            "whole": sharded(torch.zeros(33), mesh, [R]),
            "fixed": sharded(torch.zeros(7), mesh, [R]),
        }
        if self.trains:
            self.locals()[-1].fill_(-1)

    def locals(self):
        return [tensor if type(tensor) is torch.Tensor else tensor._local_tensor for tensor in self.tensors.values()]

    def refit(self, joined, kind=None):
        import reshard

        kind = kind or reshard.Refit
        return kind(self.tensors, group=joined) if self.trains else kind(target=self.tensors, group=joined)

    def update(self, version):
        for tensor in self.locals()[:-1] if self.trains else ():
            tensor.fill_(version)

    def versions(self):
        """Those of which there is anything."""
        return sorted({value for tensor in self.locals()[:-1] for value in tensor.unique().tolist()})


def harmed(step, harm, armed=True):
    """A Refit to which `harm()` is done right before a step, while it is armed."""
    import reshard

    def hurt(self, *arguments):
        if Harmed.armed:
            harm()
        return getattr(reshard.Refit, f"_{step}")(self, *arguments)

    Harmed = type("Harmed", (reshard.Refit,), {f"_{step}": hurt, "armed": armed})
    return Harmed


def harm_of(fault, member):
    """What does the harm, on the victim."""

    def harm():
        if fault.harm in ("kill", "restart"):
            jobs.die()
        elif fault.harm == "stop":
            jobs.stop_for(TIMEOUT_MS / 10_000)
        elif fault.harm == "stop for long":
            jobs.stop_for(3 * TIMEOUT_MS / 1000)
        elif fault.harm == "store":
            os.kill(member.server, signal.SIGKILL)
        else:
            raise RuntimeError("on purpose")

    return harm


def slow_store(fault, is_victim):
    """The store answers late from now on. Returns what arms the victim: it is then stopped for long within a call."""
    from reshard.torch.shared_store import SharedStore

    ask = SharedStore._ask
    left = [0]  # calls before the harm; 0: none

    def ask_slowly(store, call):
        def slow():
            left[0] -= 1
            if left[0] == 0 and is_victim:
                jobs.stop_for(3 * TIMEOUT_MS / 1000)
            time.sleep(SLOW_ANSWER)
            return call()

        return ask(store, slow)

    SharedStore._ask = ask_slowly

    def arm():
        left[0] = fault.store_call

    return arm


class Ended(NamedTuple):
    """How a rank came out of the refit that came to harm, and of the one after it."""

    error: str
    versions: list  # of the weights
    version: int | None  # that the object says
    # (versions, generation, counted from the first in which all met) after all have joined again; None: nobody could
    again: tuple | None


def _live(member, fault):
    import reshard

    spare = member.rank == fault.world
    rank = fault.victim if spare else member.rank
    weights = Weights(fault, rank)
    store = member.store()

    in_store = fault.harm == "stop in a store call"

    def join(timeout=HANG / 3):
        return reshard.join(store, rank, fault.world, timeout=timeout)

    def join_in_short():
        """With less time for an answer of the store than the stop takes; where many ranks share a core that may be too
        short to meet in, which is not what is tried here."""
        for _ in range(9):
            try:
                return join(2 * TIMEOUT_MS / 1000)
            except reshard.PeerError:
                continue
        return join(2 * TIMEOUT_MS / 1000)

    error, versions, version, before = "", [], None, 0
    if spare:
        # Not before the other one is dead.
        store.wait(["process"])
        process = os.pidfd_open(int(store.get("process")))
        select.select([process], [], [])
    else:
        if rank == fault.victim:
            store.set("process", str(os.getpid()))
        arm = slow_store(fault, rank == fault.victim) if in_store else None
        is_harmed = rank == fault.victim and not in_store
        kind = harmed(fault.step, harm_of(fault, member), armed=False) if is_harmed else None
        with join_in_short() if in_store else join() as joined:
            before = joined.generation - 1
            refit = weights.refit(joined, kind)
            for call in range(fault.calls):
                weights.update(call + 1)
                refit(changed_only=fault.changed_only)
                assert weights.versions() == [call + 1]
            weights.update(fault.calls + 1)
            if fault.harm == "store":  # not while others still see who has finished
                torch.ops.reshard.all_gather(torch.ones(1), 0, joined.span.name)
            if kind:
                kind.armed = True
            if arm:
                arm()
            version = refit.version
            try:
                if fault.step in ("discover", "plan"):
                    refit = weights.refit(joined, kind)
                refit(changed_only=fault.changed_only)
            except Exception as caught:
                error = f"{type(caught).__name__}: {caught}"
            version = refit.version or version
            versions = weights.versions()
        if kind:
            kind.armed = False
    if fault.harm in ("kill", "store"):
        return Ended(error, versions, version, None)
    weights.update(100)
    with join() as joined:
        refit = weights.refit(joined)
        refit(changed_only=fault.changed_only)
        again = weights.versions(), joined.generation - before
        weights.update(101)
        refit(changed_only=True)
        assert weights.versions() == [101]
        assert weights.locals()[-1].unique().tolist() == [-1]
    return Ended(error, versions, version, again)


def run(fault):
    """The Outcomes of all ranks."""
    sizes = [*fault.sizes, 1] if fault.harm == "restart" else list(fault.sizes)
    dead = (fault.victim,) if fault.harm in ("kill", "restart") else ()
    env = {"RESHARD_TIMEOUT_MS": str(TIMEOUT_MS), "TORCH_CPP_LOG_LEVEL": "FATAL"}
    return jobs.run_jobs(sizes, _live, fault, env=env, victims=dead, timeout=HANG)


def judge(fault, outcomes):
    """What is wrong with them, as texts."""
    complaints = []

    def hold(true, what, outcome):
        if not true:
            complaints.append(f"{what}: {outcome}")

    dies = fault.harm in ("kill", "restart")
    new = fault.calls + 1
    known = set()  # what ranks have that say which version that is
    for rank, outcome in enumerate(outcomes):
        victim = rank == fault.victim
        if victim and dies:
            hold("SIGKILL" in outcome.ended, "the victim is not dead", outcome)
            continue
        hold(outcome.ok, "it hung, or failed otherwise", outcome)
        if not outcome.ok:
            continue
        ended = outcome.value
        if fault.harm in ("restart", "stop", "stop for long", "exception", "stop in a store call"):
            hold(ended.again == ([100], 2), "not the weights after all joined again", outcome)
        if rank == fault.world:
            continue  # the one that took the victim's place
        trains = rank < fault.sizes[0]
        hold(ended.versions in ([new],) if trains else ended.versions in ([new - 1], [new]), "half a version", outcome)
        undetermined = ended.error.startswith("UndeterminedError")
        hold(not undetermined or fault.harm == "store", "undetermined", outcome)
        if not (undetermined or (victim and fault.harm == "exception")):
            known.add(ended.version)
            hold(trains or ended.versions == [ended.version], "not the version that the refit says", outcome)
            hold(not ended.error or ("installed here" in ended.error) == (ended.version == new), "the error", outcome)
        if fault.harm in ("stop", "stop in a store call"):
            hold(not ended.error or f"rank {fault.victim}" in ended.error, "the culprit", outcome)
        elif fault.harm != "store" and not victim:
            hold(f"rank {fault.victim}" in ended.error, "the culprit", outcome)
            hold(ended.version == (new - 1 if fault.step in BEFORE_COMMIT else new), "the version", outcome)
    hold(len(known) <= 1, f"versions {known}", "all ranks")
    return complaints
