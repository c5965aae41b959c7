"""Ranks of several jobs as forked processes (see gloo.py): each job has a default group, and all share a store.

    outcomes = run_jobs([4, 2], function, argument)     # function(member, argument) on every rank of both

The store's server is a process of its own, which a test may kill.
"""

import contextlib
import dataclasses
import datetime
import os
import signal
import tempfile
import time

import torch.distributed as dist

import gloo


@dataclasses.dataclass
class Member:
    """What a rank knows of itself."""

    job: int
    job_rank: int
    rank: int  # over all jobs
    world: int
    port: int  # of the store
    server: int  # its process

    def store(self):
        return dist.TCPStore("127.0.0.1", self.port, None, False, datetime.timedelta(seconds=20), wait_for_workers=False)

    def join(self, **options):
        import reshard

        return reshard.join(self.store(), self.rank, self.world, **options)


@contextlib.contextmanager
def store_server():
    """(port, process) of a TCPStore."""
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read_end)
            store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
            os.write(write_end, str(store.port).encode())
            os.close(write_end)
            time.sleep(600)
        finally:
            os._exit(0)
    os.close(write_end)
    try:
        yield int(os.read(read_end, 16)), pid
    finally:
        os.close(read_end)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def run_jobs(sizes, function, *arguments, **options):
    """The Outcomes of all ranks, job after job; options are those of gloo.run_ranks."""
    with store_server() as (port, server), tempfile.TemporaryDirectory(prefix="reshard-jobs-") as folder:
        return gloo.run_ranks(sum(sizes), _live, sizes, folder, port, server, function, arguments, store=None, **options)


def _live(rank, world, sizes, folder, port, server, function, arguments):
    job, job_rank = next((j, rank - sum(sizes[:j])) for j in range(len(sizes)) if rank < sum(sizes[: j + 1]))
    dist.init_process_group("gloo", init_method=f"file://{folder}/{job}", rank=job_rank, world_size=sizes[job])
    return function(Member(job, job_rank, rank, world, port, server), *arguments)


def stop_for(seconds):
    """This process stands still."""
    gloo.signal_me_in(seconds, signal.SIGCONT)
    os.kill(os.getpid(), signal.SIGSTOP)


def die():
    os.kill(os.getpid(), signal.SIGKILL)
