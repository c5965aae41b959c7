#!/usr/bin/env python3
"""The path of tensors of GPUs over a process group, without a GPU: real Gloo processes, a fake driver, real values.

The communicator, its agreement on the host or on the stream, its watch, the steps and the kernels' code are the real
ones; the driver is that of tests/fakes and the bytes go through the group's backend for host memory, directly or by one
that takes messages in groups (fakes/fake_gpus.cc).
"""

import os
import random
import time
import unittest

import torch
import torch.distributed as dist

import gloo
from checks import Checks, ChecksTest, main
from problems import Problem, random_mesh, random_problem
from redistribute_test import MANY, Rank, golden_problems

FAKES = os.environ.get("RESHARD_TORCH_FAKES", str(gloo.ROOT / "build/full/lib/libreshard_torch_fakes.so"))
PAIRS = int(os.environ.get("RESHARD_TEST_PAIRS", "300"))
SHARE = {2: 0.3, 4: 0.4, 8: 0.3}
TIMEOUT = 1.5  # RESHARD_TIMEOUT_MS, in seconds


def redistribute(inputs, problems, on_host):
    return torch.ops.reshard_fake.redistribute(
        inputs,
        problems[0].mesh,
        [p.source for p in problems],
        [p.target for p in problems],
        problems[0].target_mesh or "",
        gloo.world_name(),
        on_host,
    )


def run_groups(rank, _world, groups, seed, on_host):
    """groups: lists of problems that move together. Returns the failures of this rank."""
    mine = Rank(rank)
    for problems in groups:
        mine.call(lambda inputs, p=problems: redistribute(inputs, p, on_host), problems, seed)
        if len(mine.failures) >= MANY:
            break
    # Again, with what was prepared, into other memory.
    for problems in groups[:20]:
        mine.call(lambda inputs, p=problems: redistribute(inputs, p, on_host), problems, f"{seed} again")
    for complaint in torch.ops.reshard_fake.complaints():
        mine.fail("the driver", complaint)
    return mine.failures


class ValuesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gloo.load_library()
        torch.ops.load_library(FAKES)

    def run_on(self, world, groups, on_host, seed=0):
        outcomes = gloo.run_ranks(world, run_groups, groups, seed, on_host, timeout=240)
        failures = [failure for mine in gloo.values(outcomes) for failure in mine]
        if failures:
            self.fail("\n".join(text for _, text in sorted(failures)[:MANY]))
        ChecksTest.checks += world * len(groups)

    def test_golden_cases(self):
        for on_host in (True, False):
            self.run_on(8, [[p] for p in golden_problems(8)], on_host)

    def test_random_pairs(self):
        seed = gloo.seed()
        for world, share in SHARE.items():
            rng = random.Random(f"{seed} fakes {world}")
            groups = [[random_problem(rng, world)] for _ in range(int(PAIRS * share))]
            for on_host in (True, False):
                with self.subTest(world=world, on_host=on_host):
                    self.run_on(world, groups, on_host, seed)

    def test_batches(self):
        seed = gloo.seed()
        rng = random.Random(f"{seed} fake batches")
        groups = []
        for _ in range(20):
            mesh = random_mesh(rng, 4)
            groups.append([random_problem(rng, 4, mesh) for _ in range(rng.randint(2, 12))])
        for on_host in (True, False):
            self.run_on(4, groups, on_host, seed)

    def test_all_reduces_of_a_batch_wait_for_what_was_copied_before_them(self):
        """The stages between an all-reduce and a slice lie apart, so each input is first copied to where it happens."""
        mesh = "{X:2,Y:2}"
        least = Problem(mesh, "[12, 13, 12] min<Y,X>", "[12, <X=[13,0]>13, <Y>12]", None, torch.int8, 1)
        sums = Problem(mesh, "[13, 2] sum<X,Y>", "[<~Y>13, <X>2]", None, torch.int8, 2)
        for on_host in (True, False):
            self.run_on(4, [[least, sums], [sums, least]], on_host)


# Errors.


def swap(world, group, x, on_host, target=None):
    mesh, whole = f"{{X:{world}}}", 2 * world
    return torch.ops.reshard_fake.redistribute(
        [x], mesh, [f"[<X>{whole}, {whole}]"], [target or f"[{whole}, <X>{whole}]"], "", group, on_host
    )[0]


def check_errors_on_the_host(c):
    """The group stays usable."""
    rows = torch.arange(c.rank * 4 * c.world, (c.rank + 1) * 4 * c.world, dtype=torch.float32).view(2, -1)
    whole = torch.arange(4 * c.world**2, dtype=torch.float32).view(2 * c.world, -1)
    wanted = whole[:, 2 * c.rank : 2 * c.rank + 2]

    def good():
        return swap(c.world, c.group, rows, True)

    for culprit in range(c.world):
        c.one_rank_errs(
            f"a wrong shape on rank {culprit}",
            culprit,
            good,
            lambda: swap(c.world, c.group, torch.ones(3, 2 * c.world), True),
            wanted=wanted,
        )
        target = f"[{2 * c.world}, {2 * c.world}]" if c.rank == culprit else None
        c.raises(
            f"another target on rank {culprit}",
            lambda t=target: swap(c.world, c.group, rows, True, t),
            "ranks disagree on target",
        )
        # The same problem, but one rank's tensor is the host's.
        mesh, n = f"{{X:{c.world}}}", 2 * c.world
        on_the_host = [rows, mesh, f"[<X>{n}, {n}]", f"[{n}, <X>{n}]", c.group]
        c.raises(
            f"a tensor of the host on rank {culprit}",
            (lambda: torch.ops.reshard.redistribute(*on_the_host)) if c.rank == culprit else good,
            "ranks disagree on operation",
            "tensors on GPUs",
        )
        c.equal("afterwards", c.run("afterwards", good), wanted)


def error_on_the_stream(rank, world, what):
    """Ends the communicator on all ranks, with the same words. The group is of no use afterwards."""
    c = Checks(rank, world)
    rows = torch.ones(2, 2 * c.world)
    culprit = c.world - 1
    c.equal("before", c.run("before", lambda: swap(c.world, c.group, rows, False)), torch.ones(2 * c.world, 2))
    begin = time.monotonic()
    if what == "shape" and c.rank == culprit:
        c.raises(what, lambda: swap(c.world, c.group, torch.ones(3, 2 * c.world), False), "[3, ")
    elif what == "shape":
        c.raises(what, lambda: swap(c.world, c.group, rows, False), f"rank {culprit}")
    else:
        target = f"[{2 * c.world}, {2 * c.world}]" if c.rank == culprit else None
        c.raises(what, lambda: swap(c.world, c.group, rows, False, target), "ranks disagree on target")
    c.true("in time", time.monotonic() - begin < 4 * TIMEOUT, time.monotonic() - begin)
    fragment = "ranks disagree on target" if what == "target" else f"rank {culprit}"
    c.raises("a later call", lambda: swap(c.world, c.group, rows, False), fragment)
    return c.count, c.failures


def lost_work(rank, world):
    """A backend that gives nothing to wait for is an error: what it moves may not have arrived."""
    c = Checks(rank, world)
    rows = torch.ones(2, 2 * c.world)
    c.equal("before", c.run("before", lambda: swap(c.world, c.group, rows, False)), torch.ones(2 * c.world, 2))
    torch.ops.reshard_fake.lose_work(c.group)
    c.raises("without work", lambda: swap(c.world, c.group, rows, False), "no work object", kind=RuntimeError)
    return c.count, c.failures


def live_with_a_victim(rank, world, victim, on_host):
    """A survivor returns (error, seconds until it, error of a later call)."""
    group, rows = gloo.world_name(), torch.ones(2, 2 * world)
    swap(world, group, rows, on_host)
    dist.barrier()
    if rank == victim:
        os._exit(3)
    begin = time.monotonic()
    errors = []
    for _ in range(2):
        try:
            swap(world, group, rows, on_host)
            errors.append("")
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
        if len(errors) == 1:
            waited = time.monotonic() - begin
    return errors[0], waited, errors[1]


def check_no_gpu(c):
    """Tensors of a GPU where there is none, and a transport that is not known."""
    for _ in range(2):
        c.raises("no GPU", lambda: torch.ops.reshard_fake.of_group(c.group, "cuda:0"), "cuda:0", "CUDA")
    os.environ["RESHARD_CUDA_TRANSPORT"] = "pigeons"
    c.raises(
        "an unknown transport",
        lambda: torch.ops.reshard_fake.of_group(c.group, "cuda:0"),
        "pigeons",
        "c10d",
        "nccl",
        kind=ValueError,
    )
    c.raises("another device", lambda: torch.ops.reshard_fake.of_group(c.group, "xpu:0"), "xpu:0")
    c.equal(
        "afterwards",
        c.run("afterwards", lambda: torch.ops.reshard.all_reduce(torch.ones(2), "sum", c.group)),
        torch.full((2,), float(c.world)),
    )


class ErrorsTest(ChecksTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.ops.load_library(FAKES)

    def test_on_the_host(self):
        self.on_ranks(4, [check_errors_on_the_host])

    def test_on_the_stream(self):
        for what in ("shape", "target"):
            with self.subTest(what=what):
                env = {"RESHARD_TIMEOUT_MS": str(int(TIMEOUT * 1000))}
                for count, failures in gloo.values(gloo.run_ranks(3, error_on_the_stream, what, env=env)):
                    ChecksTest.checks += count
                    self.assertFalse(failures)

    def test_a_backend_that_loses_work(self):
        env = {"RESHARD_TIMEOUT_MS": str(int(TIMEOUT * 1000))}
        for count, failures in gloo.values(gloo.run_ranks(2, lost_work, env=env)):
            ChecksTest.checks += count
            self.assertFalse(failures)

    def test_a_rank_that_ends(self):
        for on_host in (True, False):
            with self.subTest(on_host=on_host):
                outcomes = gloo.run_ranks(
                    3,
                    live_with_a_victim,
                    1,
                    on_host,
                    timeout=40,
                    env={"RESHARD_TIMEOUT_MS": str(int(TIMEOUT * 1000))},
                    victims=(1,),
                )
                for o in outcomes:
                    if o.rank == 1:
                        continue
                    self.assertTrue(o.ok, str(o))
                    error, waited, later = o.value
                    self.assertTrue(error and later, f"rank {o.rank}: {o.value}")
                    self.assertLess(waited, 20, f"rank {o.rank}: {o.value}")
                    if on_host:
                        self.assertIn("rank 1", error)

    def test_no_gpu(self):
        self.on_ranks(2, [check_no_gpu])


if __name__ == "__main__":
    main("fake_gpu")
