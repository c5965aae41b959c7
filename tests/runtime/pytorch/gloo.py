"""Ranks of a Gloo group as forked processes, for the Python tests beside this file.

    outcomes = run_ranks(4, function, argument)         # function(rank, world, argument) on every rank
    values(outcomes)                                    # what they returned; AssertionError if any rank did not return

The parent imports torch and the library once and never runs an operation, so that the children inherit a clean state.
Each child runs one thread, joins the group through a file (or a TCPStore of rank 0), writes its result to a pipe and
leaves by os._exit, since Gloo sometimes aborts at interpreter exit. Whatever happens, run_ranks ends at `timeout` and
leaves no process behind; what a child was doing by then (see note) is part of its outcome.
"""

import ctypes
import dataclasses
import datetime
import faulthandler
import mmap
import os
import pathlib
import pickle
import random
import select
import signal
import socket
import struct
import sys
import tempfile
import time
import traceback

ROOT = pathlib.Path(__file__).resolve().parents[3]
LIBRARY = pathlib.Path(os.environ.setdefault("RESHARD_TORCH_LIBRARY", str(ROOT / "build/full/lib/libreshard_torch.so")))
os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # not the warnings about peers that tests kill
# PyTorch's store asks for the names of its clients, which nothing here needs: a name server that is silent would hold
# ranks up for 5 s, longer than the deadlines of some tests.
os.environ.setdefault("RES_OPTIONS", "timeout:1 attempts:1")
sys.path.append(str(ROOT / "build/full/python"))  # after PYTHONPATH

import torch
import torch.distributed as dist

NOTE_BYTES = 4096
TIMEOUT_MS = 20000  # RESHARD_TIMEOUT_MS unless a test sets its own
GRACE = 25  # seconds that the others have when a rank has failed

_child = None  # in a child: its end of the pipe and its note


def load_library():
    """Makes torch.ops.reshard, and the package where it is there, known to this process and its future children."""
    try:
        import reshard.torch  # noqa: F401
    except ModuleNotFoundError as error:
        if error.name != "reshard":
            raise
        torch.ops.load_library(str(LIBRARY))


@dataclasses.dataclass
class Outcome:
    """How one rank ended: with a value, with an exception, or (ended) without a word."""

    rank: int
    value: object = None
    error: str = ""  # "ValueError: message"
    trace: str = ""
    ended: str = ""  # "killed by SIGKILL", "exit code 3", "stopped at the timeout"
    note: str = ""

    @property
    def ok(self):
        return not self.error and not self.ended

    def __str__(self):
        where = f" (at: {self.note})" if self.note else ""
        return f"rank {self.rank}: {self.trace or self.error or self.ended or repr(self.value)}{where}"


class RanksFailed(AssertionError):
    """A rank did not return a value."""


def values(outcomes):
    if not all(o.ok for o in outcomes):
        raise RanksFailed("\n".join(str(o) for o in outcomes if not o.ok))
    return [o.value for o in outcomes]


def seed():
    """The seed of random tests: RESHARD_TEST_SEED, or a new one. Printed, to run them again."""
    text = os.environ.get("RESHARD_TEST_SEED")
    chosen = int(text) if text else random.SystemRandom().randrange(1 << 31)
    print(f"RESHARD_TEST_SEED={chosen}", flush=True)
    return chosen


# What a rank may call.


def note(text):
    """What this rank does now. The parent shows it when the rank dies or hangs."""
    if _child:
        data = str(text).encode()[: NOTE_BYTES - 4]
        _child.note[: 4 + len(data)] = struct.pack("<I", len(data)) + data


def signal_me_in(seconds, number):
    """Asks the parent for a signal, so that it arrives even while a call holds the interpreter."""
    _child.send(("signal", seconds, int(number)))


def world_name():
    return dist.group.WORLD.group_name


class _Child:
    def __init__(self, pipe, shared):
        self.pipe = pipe
        self.note = shared

    def send(self, message):
        data = pickle.dumps(message)
        data = struct.pack("<Q", len(data)) + data
        while data:
            data = data[os.write(self.pipe, data) :]


def _live(child, rank, world, function, arguments, init_method, group_timeout, env):
    global _child
    _child = child
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: no rank outlives the parent
    faulthandler.register(signal.SIGUSR1, all_threads=False, chain=False)
    os.environ.update(OMP_NUM_THREADS="1", RESHARD_TIMEOUT_MS=str(TIMEOUT_MS), RANK=str(rank), WORLD_SIZE=str(world))
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update({name: value if isinstance(value, str) else value[rank] for name, value in (env or {}).items()})
    torch.set_num_threads(1)
    if init_method is not None:
        timeout = datetime.timedelta(seconds=group_timeout)
        dist.init_process_group("gloo", init_method=init_method, rank=rank, world_size=world, timeout=timeout)
    return function(rank, world, *arguments)


def _run_child(*arguments):
    """Never returns."""
    child = arguments[0]
    try:
        try:
            message = ("value", _live(*arguments))
            pickle.dumps(message[1])
        except BaseException as error:
            message = ("error", f"{type(error).__name__}: {error}", traceback.format_exc())
        child.send(message)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)


def _free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class _Rank:
    """The parent's view of one child."""

    def __init__(self, rank, pid, pipe, shared):
        self.rank, self.pid, self.pipe, self.shared = rank, pid, pipe, shared
        self.received = b""
        self.message = None
        self.signals = []  # (when, number)
        self.open = True

    def read(self):
        data = os.read(self.pipe, 1 << 20)
        self.open = bool(data)
        self.received += data
        while len(self.received) >= 8:
            size = 8 + struct.unpack("<Q", self.received[:8])[0]
            if len(self.received) < size:
                break
            message = pickle.loads(self.received[8:size])
            self.received = self.received[size:]
            if message[0] == "signal":
                self.signals.append((time.monotonic() + message[1], message[2]))
            else:
                self.message = message

    def failed(self):
        return self.message[0] == "error" if self.message else not self.open

    def end(self, late):
        """Reaps the child, by force where it still runs."""
        if self.open and late:
            self._signal(signal.SIGUSR1)  # its Python stack, on stderr
            time.sleep(0.3)
        if self.open and self.message is None:
            self._signal(signal.SIGKILL)
        elif self.open:
            self._wait_a_moment()
        _, status = os.waitpid(self.pid, 0)
        os.close(self.pipe)
        size = struct.unpack("<I", self.shared[:4])[0]
        outcome = Outcome(self.rank, note=self.shared[4 : 4 + size].decode(errors="replace"))
        self.shared.close()
        if self.message is not None and self.message[0] == "value":
            outcome.value = self.message[1]
        elif self.message is not None:
            _, outcome.error, outcome.trace = self.message
        elif late:
            outcome.ended = "stopped at the timeout"
        elif os.WIFSIGNALED(status):
            outcome.ended = f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
        else:
            outcome.ended = f"exit code {os.WEXITSTATUS(status)}"
        return outcome

    def _wait_a_moment(self):
        deadline = time.monotonic() + 2
        while self.open and time.monotonic() < deadline:
            if select.select([self.pipe], [], [], 0.1)[0]:
                self.read()
        if self.open:
            self._signal(signal.SIGKILL)

    def _signal(self, number):
        os.kill(self.pid, number)  # not reaped yet, so the id is still the child's


# Which ranks share memory with each other; between the others messages go over Gloo. That of even ranks is what a group
# over several hosts is like.
SHARING = ("all", "even ranks", "none")


def sharing(how, world):
    """The environment of run_ranks for it."""
    shares = {"all": "11", "even ranks": "10", "none": "00"}[how]
    return {"RESHARD_SHARED_MEMORY": [shares[rank % 2] for rank in range(world)]}


def run_ranks(world, function, *arguments, timeout=60, env=None, group_timeout=None, store="file", victims=()):
    """Runs function(rank, world, *arguments) on `world` forked ranks of one Gloo group and returns their Outcomes.

    victims: ranks that nobody waits for; they are killed when all others are done.
    group_timeout: the group's own, in seconds. env: more environment for the children, a text or one per rank.
    store: "file", "tcp", or None for no group at all.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryDirectory(prefix="reshard-gloo-") as folder:
        init_method = None
        if store is not None:
            init_method = f"file://{folder}/store" if store == "file" else f"tcp://127.0.0.1:{_free_port()}"
        ranks = []
        for rank in range(world):
            read_end, write_end = os.pipe()
            shared = mmap.mmap(-1, NOTE_BYTES)
            pid = os.fork()
            if pid == 0:
                for other in ranks:
                    os.close(other.pipe)
                os.close(read_end)
                _run_child(
                    _Child(write_end, shared),
                    rank,
                    world,
                    function,
                    arguments,
                    init_method,
                    group_timeout or timeout,
                    env,
                )
            os.close(write_end)
            ranks.append(_Rank(rank, pid, read_end, shared))
        late = _attend(ranks, victims, time.monotonic() + timeout)
        return [r.end(late and r.rank not in victims) for r in ranks]


def _attend(ranks, victims, deadline):
    """Reads and signals until all ranks that matter have said their result or left. True: the deadline came first."""
    failed = False
    while any(r.open and r.message is None for r in ranks if r.rank not in victims):
        now = time.monotonic()
        if not failed and any(r.failed() for r in ranks if r.rank not in victims):
            failed = True
            deadline = min(deadline, now + GRACE)
        if now >= deadline:
            return True
        pending = [(when, number, r) for r in ranks for when, number in r.signals]
        for when, number, r in pending:
            if when <= now:
                r.signals.remove((when, number))
                if r.open:
                    os.kill(r.pid, number)
        wake = min([deadline] + [when for when, _, _ in pending if when > now])
        opened = {r.pipe: r for r in ranks if r.open}
        for pipe in select.select(list(opened), [], [], max(0, wake - now))[0]:
            opened[pipe].read()
    return False
