#!/usr/bin/env python3
"""Ranks that are killed, stall, exit or raise: the others get an error that names the culprit, in time; none hangs.

Also ranks that disagree, after which the group goes on.
"""

import concurrent.futures
import dataclasses
import itertools
import multiprocessing
import os
import re
import signal
import time
import unittest

import torch
import torch.distributed as dist

import gloo
from checks import ChecksTest, main

OPS = torch.ops.reshard
TIMEOUT = 1.5  # RESHARD_TIMEOUT_MS, in seconds
WITHIN = TIMEOUT + 1
SLACK = 3  # for a slow machine: an upper guard against hanging
LATER = 0.5 + 1  # a later call fails at once
WORLDS = (2, 3, 4, 8)
AT_ONCE = 3  # groups
STEPS = ("before the first call", "between calls", "during a large call")
LARGE = 1 << 20  # elements of a tensor


def end_by(manner):
    """The victim's end. Returns in no case but `raise`."""
    if manner == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if manner == "exit":
        os._exit(3)
    if manner == "stall":
        time.sleep(600)
    raise ValueError("the victim had enough")


def small_call(world, group):
    return OPS.redistribute(
        torch.ones(2, 2 * world),
        f"{{X:{world}}}",
        f"[<X>{2 * world}, {2 * world}]",
        f"[{2 * world}, <X>{2 * world}]",
        group,
    )


def large_call(world, group, tensors):
    n = LARGE // world * world
    return OPS.redistribute_batch(
        tensors, f"{{X:{world}}}", [f"[<X>{world}, {n}]"] * len(tensors), [f"[{world}, <X>{n}]"] * len(tensors), group
    )


def live_with_victims(rank, world, victims, manner, step):
    """A survivor returns (error, seconds until it, error of a later call, seconds until that one)."""
    group = gloo.world_name()
    if step != "before the first call":
        small_call(world, group)
        small_call(world, group)
    dist.barrier()  # all have joined, all calls so far are over
    tensors = [torch.ones(1, LARGE // world * world)] * (2 if world > 4 else 4)
    if rank in victims and step == "during a large call":
        gloo.signal_me_in(0.05, signal.SIGSTOP if manner == "stall" else signal.SIGKILL)
    elif rank in victims:
        end_by(manner)
    function = (
        (lambda: large_call(world, group, tensors))
        if step == "during a large call"
        else (lambda: small_call(world, group))
    )
    error, start = None, time.monotonic()
    while error is None and time.monotonic() - start < 20:
        gloo.note(f"waiting, {step}")
        begin = time.monotonic()
        try:
            function()
        except Exception as e:
            error = f"{type(e).__name__}: {e}"
    waited = time.monotonic() - begin
    gloo.note("a later call")
    begin = time.monotonic()
    try:
        small_call(world, group)
        later = None
    except Exception as e:
        later = f"{type(e).__name__}: {e}"
    return error, waited, later, time.monotonic() - begin


def ranks_named_in(error):
    """{1, 2} of "rank 1 is gone ..." and "ranks 1, 2 are gone ..." together."""
    lists = re.findall(r"\branks? (\d+(?:, \d+)*)", error or "")
    return {int(rank) for text in lists for rank in text.split(", ")}


@dataclasses.dataclass
class Case:
    world: int
    victims: tuple
    manner: str
    step: str
    agreement: str = "every"
    store: str = "file"
    sharing: str = "all"


def wrong_with(case):
    """What survivors of the case do wrong, and the longest that one waited for its error, in seconds."""
    outcomes = gloo.run_ranks(
        case.world,
        live_with_victims,
        case.victims,
        case.manner,
        case.step,
        timeout=30,
        env={
            "RESHARD_TIMEOUT_MS": str(int(TIMEOUT * 1000)),
            "RESHARD_AGREEMENT": case.agreement,
            **gloo.sharing(case.sharing, case.world),
        },
        group_timeout=60,
        victims=case.victims,
        store=case.store,
    )
    wrong, slowest = [], 0.0
    for o in outcomes:
        if o.rank in case.victims:
            continue
        if not o.ok:
            wrong.append(str(o))
            continue
        error, waited, later, later_waited = o.value
        slowest = max(slowest, waited)
        if not ranks_named_in(error) & set(case.victims):
            wrong.append(f"rank {o.rank}: none of the ranks {case.victims} in the error: {error}")
        if waited > WITHIN + SLACK:
            wrong.append(f"rank {o.rank}: the error came after {waited:.2f} s: {error}")
        if later is None or later_waited > LATER:
            wrong.append(f"rank {o.rank}: a later call took {later_waited:.2f} s: {later}")
    return wrong, slowest


class LostRankTest(unittest.TestCase):
    sharing = "all"
    runs = 0
    slowest = 0.0

    @classmethod
    def setUpClass(cls):
        gloo.load_library()

    def lose(self, cases):
        """Every survivor names a victim, in time. Groups wait for deadlines most of the time: several do at once."""
        cases = [dataclasses.replace(case, sharing=self.sharing) for case in cases]
        with concurrent.futures.ProcessPoolExecutor(AT_ONCE, multiprocessing.get_context("fork")) as pool:
            for case, (wrong, slowest) in zip(cases, pool.map(wrong_with, cases)):
                LostRankTest.runs += 1
                LostRankTest.slowest = max(self.slowest, slowest)
                with self.subTest(case=case):
                    self.assertFalse(wrong, "\n".join(wrong[:5]))

    @classmethod
    def tearDownClass(cls):
        print(
            f"{cls.runs} losses, the slowest error after {cls.slowest:.2f} s with a timeout of {TIMEOUT} s", flush=True
        )

    def victims(self, world):
        return range(world) if world < 8 else (0, 3, 7)

    def test_killed(self):
        self.lose(
            Case(world, (victim,), "kill", step)
            for world in WORLDS
            for victim, step in itertools.product(self.victims(world), STEPS)
        )

    def test_stalled(self):
        self.lose(
            Case(world, (victim,), "stall", STEPS[(victim + world) % 3])
            for world in WORLDS
            for victim in self.victims(world)
        )

    def test_exited_and_raised(self):
        self.lose(
            Case(world, (victim,), manner, STEPS[(victim + world) % 2])
            for world in WORLDS
            for victim in self.victims(world)
            for manner in ("exit", "raise")
        )

    def test_without_agreement(self):
        self.lose(
            Case(world, (victim,), manner, STEPS[(victim + world + len(manner)) % 3], "off")
            for world in WORLDS
            for victim in self.victims(world)
            for manner in ("kill", "stall")
        )

    def test_the_store_goes_too(self):
        """Rank 0 keeps the TCPStore."""
        self.lose(
            Case(3, (0,), manner, step, store="tcp") for manner, step in itertools.product(("kill", "stall"), STEPS)
        )

    def test_two_at_once(self):
        self.lose(
            Case(world, victims, manner, STEPS[1], agreement)
            for world, victims, manner, agreement in (
                (4, (1, 2), "kill", "every"),
                (4, (0, 3), "stall", "every"),
                (8, (2, 6), "exit", "every"),
                (8, (1, 7), "kill", "off"),
                (4, (0, 1), "stall", "off"),
            )
        )


class LostOverMessagesTest(LostRankTest):
    """Nobody shares memory: all goes over Gloo."""

    sharing = "none"


class LostOverBothTest(LostRankTest):
    sharing = "even ranks"


# Ranks that disagree.


def find_the_gone(rank, world, manner):
    """What a rank is told of the others: before they have met, when they have, and when the last one has ended."""
    group, everybody = gloo.world_name(), list(range(world))
    said = [OPS._gone_ranks(group, everybody)]
    small_call(world, group)
    said.append(OPS._gone_ranks(group, everybody))
    small_call(world, group)
    if rank == world - 1:
        end_by(manner)
    while world - 1 not in OPS._gone_ranks(group, everybody):
        time.sleep(0.01)
    return said


class GoneTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        gloo.load_library()

    def test_only_those_that_have_ended(self):
        for manner in ("kill", "exit"):
            *others, _ = gloo.run_ranks(3, find_the_gone, manner)
            self.assertEqual(gloo.values(others), [[[], []]] * 2, manner)


def check_disagreement(c):
    p, g = c.world, c.group
    mesh, source, target = f"{{X:{p}}}", f"[<X>{p}, {p}]", f"[{p}, <X>{p}]"
    x = torch.ones(1, p)

    def good():
        return OPS.redistribute(x, mesh, source, target, g)

    bad = {
        "target": lambda: OPS.redistribute(x, mesh, source, f"[{p}, {p}]", g),
        "source": lambda: OPS.redistribute(torch.ones(p, 1), mesh, f"[{p}, <X>{p}]", target, g),
        "dtype": lambda: OPS.redistribute(x.double(), mesh, source, target, g),
        "shape": lambda: OPS.redistribute(torch.ones(1, 2 * p), mesh, f"[<X>{p}, {2 * p}]", f"[{p}, <X>{2 * p}]", g),
        "mesh": lambda: OPS.redistribute(
            x, f"{{X:{p}}}@[{','.join(str(i) for i in reversed(range(p)))}]", source, target, g
        ),
    }
    for culprit, (field, function) in itertools.product(range(p), bad.items()):
        what = f"another {field} on rank {culprit}"
        text = c.raises(
            what,
            function if c.rank == culprit else good,
            f"ranks disagree on {field}" if field != "shape" else "ranks disagree on",
        )
        missing = [i for i in range(p) if str(i) not in text]
        c.true(f"{what}: both sets of ranks", not missing or ("-" in text or p > 4), f"no {missing} in: {text}")
        c.equal(f"{what}, afterwards", c.run(what, good), torch.ones(p, 1))


def check_batch_disagreement(c):
    p, g = c.world, c.group
    mesh, source, target = f"{{X:{p}}}", f"[<X>{p}, {p}]", f"[{p}, <X>{p}]"
    xs = [torch.ones(1, p)] * 3
    for culprit in range(p):
        targets = [target] * 2 + [f"[{p}, {p}]" if c.rank == culprit else target]
        c.raises(
            f"another target in the batch of rank {culprit}",
            lambda t=targets: OPS.redistribute_batch(xs, mesh, [source] * 3, t, g),
            "ranks disagree on",
        )
        count = 2 if c.rank == culprit else 3
        c.raises(
            f"fewer tensors on rank {culprit}",
            lambda n=count: OPS.redistribute_batch(xs[:n], mesh, [source] * n, [target] * n, g),
            "ranks disagree on",
        )
        got = c.run("afterwards", lambda: OPS.redistribute_batch(xs, mesh, [source] * 3, [target] * 3, g))
        c.true("afterwards", got is not None and all(torch.equal(y, torch.ones(p, 1)) for y in got), got)


def check_wrong_local_shape(c):
    """A rank whose tensor does not fit the layout: an error of that rank."""
    p, g = c.world, c.group
    mesh, source, target = f"{{X:{p}}}", f"[<X>{p}, {p}]", f"[{p}, <X>{p}]"
    for culprit in range(p):
        c.one_rank_errs(
            f"a wrong shape on rank {culprit}",
            culprit,
            lambda: OPS.redistribute(torch.ones(1, p), mesh, source, target, g),
            lambda: OPS.redistribute(torch.ones(2, p), mesh, source, target, g),
            wanted=torch.ones(p, 1),
        )


def check_late_rank(c):
    """Late, but within the timeout."""
    time.sleep(0.7 if c.rank == c.world - 1 else 0)
    c.equal(
        "a late rank",
        c.run("a late rank", lambda: OPS.all_reduce(torch.ones(2), "sum", c.group)),
        torch.full((2,), float(c.world)),
    )


class DisagreementTest(ChecksTest):
    def test_disagreement(self):
        for world in WORLDS:
            with self.subTest(world=world):
                self.on_ranks(world, [check_disagreement, check_batch_disagreement, check_wrong_local_shape])

    def test_late(self):
        for world, agreement in itertools.product((2, 4), ("every", "off")):
            with self.subTest(world=world, agreement=agreement):
                self.on_ranks(
                    world, [check_late_rank], env={"RESHARD_TIMEOUT_MS": "1500", "RESHARD_AGREEMENT": agreement}
                )


if __name__ == "__main__":
    main("failure")
