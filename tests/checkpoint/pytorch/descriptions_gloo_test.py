#!/usr/bin/env python3
"""What ranks tell each other of their states: each rank's value arrives, and what all say alike travels once."""

import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from checks import ChecksTest, main
from shared_folder import remove, shared_folder

RANKS = 4


def bytes_of(work):
    """What this rank receives while it works."""
    import reshard

    before = reshard.recent_operations()
    number = before[-1]["number"] if before else -1
    work()
    return sum(one["bytes"] for one in reshard.recent_operations() if one["number"] > number)


def check_gathered(c):
    from reshard.torch.entries import gathered, span_or_alone
    from reshard.torch.mesh_texts import alike

    span = span_or_alone(None)
    cases = {
        "all alike": (lambda rank: {"a": [1, "é", None]}, [[0, 1, 2, 3]]),
        "two kinds": (lambda rank: [rank % 2], [[0, 2], [1, 3]]),
        "one other, longer": (lambda rank: "x" * (5000 if rank == 2 else 3), [[0, 1, 3], [2]]),
        "all different": (lambda rank: {"rank": rank, "text": "y" * 7**rank}, [[0], [1], [2], [3]]),
        "nothing": (lambda rank: None, [[0, 1, 2, 3]]),
    }
    for name, (value, ranks) in cases.items():
        got = c.run(name, lambda: gathered(value(c.rank), span))
        c.true(name, got == [value(rank) for rank in range(RANKS)], f"{str(got)[:200]}")
        c.true(name, [of for of, _ in alike(got)] == ranks, f"{[of for of, _ in alike(got)]} share, not {ranks}")


def check_bytes(c):
    """500 tensors that all ranks describe alike: their names do not travel."""
    import reshard

    mesh = init_device_mesh("cpu", (RANKS,))
    state = {f"layers.{i}.attention.weight": distribute_tensor(torch.zeros(RANKS, 1), mesh, [Shard(0)]) for i in range(500)}
    names = sum(map(len, state))
    folder = shared_folder(c)
    received = bytes_of(lambda: c.run("save", lambda: reshard.save(folder + "/saved", state)))
    c.true("save", received < names, f"{received} bytes for names of {names}")
    received = bytes_of(lambda: c.run("load", lambda: reshard.load(folder + "/saved", state)))
    c.true("load", received < names, f"{received} bytes for names of {names}")
    remove(c, folder)


def gather_over_a_joined_group(rank, folder):
    """In a process without a default group."""
    import reshard
    from reshard.torch.entries import gathered

    with reshard.join(dist.FileStore(f"{folder}/store", 2), rank=rank, world=2, timeout=30) as joined:
        got = gathered({"rank": rank}, joined.span)
    assert got == [{"rank": 0}, {"rank": 1}], got


class DescriptionsTest(ChecksTest):
    def test_descriptions(self):
        self.on_ranks(RANKS, [check_gathered, check_bytes], timeout=60)

    def test_joined(self):
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(gather_over_a_joined_group, (folder,), nprocs=2)
        ChecksTest.checks += 1


if __name__ == "__main__":
    main("descriptions")
