"""Ranks of a Gloo group as forked processes that time cases on request."""
import os
import pickle
import statistics
import struct
import sys
import tempfile
import time
import traceback

import torch
import torch.distributed as dist


class World:
    """`ranks` processes with `environment`. Between requests they sleep, so that several worlds can take turns."""

    def __init__(self, ranks, environment):
        self.meeting = tempfile.mktemp(prefix="torch_bench.")
        self.children = []
        for rank in range(ranks):
            to_child, to_parent = os.pipe(), os.pipe()
            pid = os.fork()
            if pid == 0:
                os.environ.update(environment)
                os.close(to_child[1])
                os.close(to_parent[0])
                _serve(rank, ranks, self.meeting, to_child[0], to_parent[1])  # does not return
            os.close(to_child[0])
            os.close(to_parent[1])
            self.children.append((pid, to_child[1], to_parent[0]))

    def _ask(self, request):
        for _, pipe, _ in self.children:
            _send(pipe, request)
        replies = [_receive(pipe) for _, _, pipe in self.children]
        failures = [reply for reply in replies if isinstance(reply, str)]
        if failures:
            sys.exit(failures[0])
        return replies

    def prepare(self, case, mode):
        """Makes the inputs, and runs everything once to see that the results are right."""
        self._ask(("prepare", case, mode))

    def round(self):
        """{contender: seconds a call on the slowest rank}."""
        replies = self._ask(("round",))
        return {name: max(reply[name] for reply in replies) for name in replies[0]}

    def forget(self):
        self._ask(("forget",))

    def close(self):
        # A request, not just the end of the pipe: processes that were forked later hold the pipe open.
        for pid, to_child, to_parent in self.children:
            _send(to_child, ("leave",))
            os.close(to_child)
            os.close(to_parent)
            os.waitpid(pid, 0)
        if os.path.exists(self.meeting):
            os.unlink(self.meeting)


def _send(pipe, message):
    data = pickle.dumps(message)
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(pipe, data):]


def _read(pipe, size):
    data = b""
    while len(data) < size:
        part = os.read(pipe, size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _receive(pipe):
    try:
        return pickle.loads(_read(pipe, struct.unpack("<Q", _read(pipe, 8))[0]))
    except EOFError:
        return "a rank ended without a word"


def _serve(rank, ranks, meeting, requests, replies):
    contenders = {}
    try:
        torch.set_num_threads(1)
        # As launchers bind ranks: otherwise two of them share a core in some rounds and not in others.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
        dist.init_process_group("gloo", store=dist.FileStore(meeting, ranks), rank=rank, world_size=ranks)
        import reshard.torch  # noqa: F401  loads the library, which reads the environment
        while True:
            request = _receive(requests)
            if request == ("leave",) or isinstance(request, str):
                break
            if request[0] == "prepare":
                case, mode = request[1:]
                contenders = case.contenders(rank, mode)
                calls = {name: _calls(contender) for name, contender in contenders.items()}
                _send(replies, True)
            elif request[0] == "round":
                _send(replies, {name: _time(contender, calls[name]) for name, contender in contenders.items()})
            else:
                contenders = {}
                _send(replies, True)
    except BaseException:  # the parent prints it
        _send(replies, traceback.format_exc())
    os._exit(0)  # Gloo now and then aborts at interpreter exit


def _calls(contender):
    """How many calls make some 10 ms: the same number on every rank."""
    contender()
    seconds = torch.tensor(_time(contender, 1))
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return max(1, min(100, int(0.01 / seconds.item())))


def _time(contender, calls):
    # The median call: a rank that lost the processor for a moment, which is another program's doing, does not count.
    dist.barrier()
    seconds = []
    for _ in range(calls):
        begin = time.perf_counter()
        contender()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)
