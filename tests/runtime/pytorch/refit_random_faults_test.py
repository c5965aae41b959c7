#!/usr/bin/env python3
"""Ranks of either side that are killed and come back before each step of a refit, and faults at random.

usage: refit_random_faults_test.py                     a few of both, chosen by the seed
       refit_random_faults_test.py --all               each step and side
       refit_random_faults_test.py --faults 500 [--seed N] [--at-once 8]
       refit_random_faults_test.py --stops 100     each stopped for long within a call of a slow store
"""

import argparse
import concurrent.futures
import multiprocessing
import random
import sys
import time
import unittest
from collections import Counter

import gloo
from refit_faults import HARMS, STEPS, Fault, judge, run

RESTARTS = [Fault("restart", step, victim, (1, 2), changed_only=True) for step in STEPS for victim in (0, 2)]


def random_fault(pick):
    sizes = pick.randint(1, 3), pick.randint(1, 3)
    return Fault(
        harm=pick.choice(HARMS),
        step=pick.choice(STEPS),
        victim=pick.randrange(sum(sizes)),
        sizes=sizes,
        calls=pick.randint(1, 3),
        changed_only=pick.random() < 0.5,
    )


def stops(pick, count):
    """Each side, stopped within one call after the other."""
    return [
        Fault("stop in a store call", "acknowledge", victim % 2 * sizes[0], sizes, store_call=1 + call % 12)
        for victim, call, sizes in ((i, i // 2, (pick.randint(1, 2), pick.randint(1, 2))) for i in range(count))
    ]


def judged(fault):
    begun = time.monotonic()
    return judge(fault, run(fault)), time.monotonic() - begun


def all_of(faults, at_once):
    """(fault, complaints, seconds) of each, as they end. Some at once: most of their time they wait."""
    context = multiprocessing.get_context("fork")
    with concurrent.futures.ProcessPoolExecutor(at_once, mp_context=context) as pool:
        running = {pool.submit(judged, fault): fault for fault in faults}
        for done in concurrent.futures.as_completed(running):
            yield running[done], *done.result()


class Faults(unittest.TestCase):
    faults: list[Fault] = []

    def test_faults(self):
        for fault, complaints, _ in all_of(self.faults, at_once=8):
            with self.subTest(str(fault)):
                self.assertEqual(complaints, [], "\n".join(complaints))


def many(faults, seed, at_once):
    failed, longest, kinds = 0, 0.0, Counter()
    begun = time.monotonic()
    for fault, complaints, seconds in all_of(faults, at_once):
        kinds[fault.harm] += 1
        longest = max(longest, seconds)
        failed += bool(complaints)
        for complaint in complaints:
            print(f"{fault}\n  {complaint}", flush=True)
    print(
        f"{kinds.total()} faults of seed {seed} in {time.monotonic() - begun:.0f} s ({dict(kinds)}), {failed} failed; "
        f"the longest took {longest:.1f} s"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--at-once", type=int, default=8)
    arguments = parser.parse_args()
    gloo.load_library()
    if arguments.faults or arguments.stops:
        seed = gloo.seed() if arguments.seed is None else arguments.seed
        pick = random.Random(seed)
        faults = [random_fault(pick) for _ in range(arguments.faults)] + stops(pick, arguments.stops)
        sys.exit(many(faults, seed, arguments.at_once))
    pick = random.Random(gloo.seed())
    Faults.faults = RESTARTS
    if not arguments.all:
        Faults.faults = pick.sample(RESTARTS, 4) + [random_fault(pick) for _ in range(3)] + pick.sample(stops(pick, 24), 3)
    unittest.main(argv=sys.argv[:1])
