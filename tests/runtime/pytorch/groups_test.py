#!/usr/bin/env python3
"""Process groups: sub-groups, several at a time, shut down and started again; processes that leave the ordinary way."""

import datetime
import os
import subprocess
import sys
import tempfile
import time
import unittest

import torch
import torch.distributed as dist

import gloo
from checks import ChecksTest, main

OPS = torch.ops.reshard
LEAVING = """
import sys, datetime, torch, torch.distributed as dist
sys.path.insert(0, sys.argv[1])
import gloo
gloo.load_library()
rank, world, store = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
limit = datetime.timedelta(seconds=30)
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=world, timeout=limit)
y = torch.ops.reshard.all_reduce(torch.ones(3), "sum", gloo.world_name())
assert y.tolist() == [world] * 3
if "destroy" in sys.argv:
    dist.destroy_process_group()
"""


def check_subgroups(c):
    """Ranks are those of the group; other groups are busy with other things meanwhile."""
    evens, odds = dist.new_group([0, 2]), dist.new_group([3, 1])
    backwards = dist.new_group([3, 2, 1, 0])
    mine = evens if c.rank % 2 == 0 else odds
    number = dist.get_group_rank(mine, c.rank)
    for i in range(20):
        if c.rank % 2 == 0:
            got = c.run("evens", lambda: OPS.all_gather(torch.tensor([float(c.rank)]), 0, evens.group_name))
            c.equal("evens", got, torch.tensor([0.0, 2.0]))
        else:
            x = torch.arange(2.0)[None] + 10 * number + i
            got = c.run("odds", lambda: OPS.redistribute(x, "{X:2}", "[<X>2, 2]", "[2, <X>2]", odds.group_name))
            c.equal("odds", got, torch.tensor([[number + i], [10.0 + number + i]]))
        if i % 5 == 0:
            got = c.run("all", lambda: OPS.all_reduce(torch.tensor(1.0), "sum", c.group))
            c.equal("all", got, torch.tensor(4.0))
    order = dist.get_process_group_ranks(backwards)
    got = c.run("backwards", lambda: OPS.all_gather(torch.tensor([float(c.rank)]), 0, backwards.group_name))
    c.equal("in the order of the group's ranks", got, torch.tensor([float(r) for r in order]))
    got = c.run("gather", lambda: OPS.gather(torch.tensor([c.rank]), 1, 0, mine.group_name))
    wanted = torch.tensor(dist.get_process_group_ranks(mine)) if number == 1 else None
    c.equal("gather to rank 1 of the group", got, wanted)


def check_error_in_a_subgroup(c):
    """Named by its rank in the group; other groups do not notice."""
    pair = dist.new_group([1, 3])
    if c.rank in (1, 3):
        bad = c.rank == 3
        c.raises(
            "an error of rank 1 of the group",
            lambda: OPS.all_gather(torch.ones(2), 5 if bad else 0, pair.group_name),
            *([] if bad else ["rank 1"]),
        )
        c.run("afterwards", lambda: OPS.all_gather(torch.ones(2), 0, pair.group_name))
    c.equal("all", c.run("all", lambda: OPS.all_reduce(torch.tensor(1.0), "sum", c.group)), torch.tensor(4.0))


def check_loss_in_a_subgroup(c):
    """A lost group stays lost; others go on."""
    pair, others = dist.new_group([0, 1]), dist.new_group([2, 3])
    if c.rank == 0:
        error = c.raises(
            "rank 1 of the group stalls", lambda: OPS.all_reduce(torch.ones(2), "sum", pair.group_name), "rank 1"
        )
        begin = time.monotonic()
        c.raises("a later call", lambda: OPS.all_reduce(torch.ones(2), "sum", pair.group_name), "rank 1")
        c.true("at once", time.monotonic() - begin < 1, error)
    elif c.rank == 1:
        time.sleep(3)
        c.raises("the late rank", lambda: OPS.all_reduce(torch.ones(2), "sum", pair.group_name))
    else:
        for _ in range(10):
            got = c.run("another group", lambda: OPS.all_reduce(torch.ones(2), "sum", others.group_name))
            c.equal("another group", got, torch.full((2,), 2.0))
            time.sleep(0.1)


def check_started_again(c, folder):
    """torch.distributed shut down and started again: nothing of the old group is left."""
    for i in range(3):
        got = c.run(f"round {i}", lambda: OPS.all_gather(torch.tensor([c.rank]), 0, gloo.world_name()))
        c.equal(f"round {i}", got, torch.arange(c.world))
        dist.barrier()
        dist.destroy_process_group()
        dist.init_process_group(
            "gloo",
            init_method=f"file://{folder}/again{i}",
            rank=c.rank,
            world_size=c.world,
            timeout=datetime.timedelta(seconds=30),
        )


def check_one_rank(c):
    """A group of one; every operation is local."""
    alone = [dist.new_group([r]) for r in range(c.world)][c.rank]
    x = torch.arange(6.0).reshape(1, 2, 3)
    c.equal("all_reduce", c.run("all_reduce", lambda: OPS.all_reduce(x, "avg", alone.group_name)), x)
    c.equal(
        "redistribute",
        c.run("redistribute", lambda: OPS.redistribute(x, "{X:1}", "[<X>1, 2, 3]", "[1, <2,X>2, 3]", alone.group_name)),
        x,
    )
    c.raises(
        "a mesh larger than the group",
        lambda: OPS.redistribute(x, "{X:2}", "[<X>2, 2, 3]", "[2, 2, 3]", alone.group_name),
    )


class GroupsTest(ChecksTest):
    def test_groups(self):
        for function in (check_subgroups, check_error_in_a_subgroup, check_one_rank):
            with self.subTest(function=function.__name__):
                self.on_ranks(4, [function])

    def test_loss_in_a_subgroup(self):
        self.on_ranks(4, [check_loss_in_a_subgroup], env={"RESHARD_TIMEOUT_MS": "1500"})

    def test_started_again(self):
        for store in ("file", "tcp"):
            with self.subTest(store=store), tempfile.TemporaryDirectory() as folder:
                self.on_ranks(3, [check_started_again], folder, store=store)


class LeavingTest(unittest.TestCase):
    """Processes that end the ordinary way end well: no hang, no crash that Gloo alone does not have."""

    def leave(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            environment = {
                **os.environ,
                "GLOO_SOCKET_IFNAME": "lo",
                "OMP_NUM_THREADS": "1",
                "RESHARD_TIMEOUT_MS": "10000",
            }
            processes = [
                subprocess.Popen(
                    [
                        sys.executable,
                        "-c",
                        LEAVING,
                        os.path.dirname(os.path.abspath(__file__)),
                        str(rank),
                        "2",
                        folder + "/store",
                        *arguments,
                    ],
                    env=environment,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for rank in range(2)
            ]
            for process in processes:
                try:
                    _, errors = process.communicate(timeout=60)
                except subprocess.TimeoutExpired:
                    for each in processes:
                        each.kill()
                        each.communicate()
                    self.fail("a process did not end")
                self.assertEqual(0, process.returncode, errors[-2000:])

    def test_with_destroy_process_group(self):
        self.leave("destroy")

    def test_without(self):
        self.leave()


if __name__ == "__main__":
    main("groups")
