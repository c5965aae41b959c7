#!/usr/bin/env python3
"""Ranks of a refit that die or stand still at each of its steps: no rank is ever left with half of a version, and the
others hear of whom it was. Those that come back: refit_random_faults_test.py.

All cases of a test run at once, each with three processes of its own: rank 0 trains, ranks 1 and 2 serve.
"""

import os
import signal
import unittest

import torch
import torch.distributed as dist

import gloo
import jobs
from refit_faults import BEFORE_COMMIT, STEPS, harmed

RANKS = 3
TIMEOUT_MS = 2000
VICTIMS = (0, 2)


def victim_of(case):
    return VICTIMS[case % 2]


class Server:
    """A rank and its weights, all of which have the number of their version as their value."""

    def __init__(self, member, case, rank):
        self.member, self.case, self.rank = member, case, rank
        self.trains = rank == 0
        self.weights = {"w": torch.zeros(64, 16), "v": torch.zeros(33)}

    def join(self):
        import reshard

        return reshard.join(self.member.store(), self.rank, RANKS, name=f"case {self.case}", timeout=20)

    def refit(self, joined, kind=None):
        import reshard

        kind = kind or reshard.Refit
        return kind(self.weights, group=joined) if self.trains else kind(target=self.weights, group=joined)

    def update(self, version):
        if self.trains:
            for weight in self.weights.values():
                weight.fill_(version)

    def versions(self):
        """Those of which there is anything."""
        return sorted({value for weight in self.weights.values() for value in weight.unique().tolist()})


def one_case(member, steps, harm):
    """(the error or "", the versions of the weights, the version that the object says)."""
    case, rank = divmod(member.rank, RANKS)
    server = Server(member, case, rank)
    harmful = rank == victim_of(case)
    step = steps[case // len(VICTIMS)]
    with server.join() as joined:
        refit = server.refit(joined)
        server.update(1)
        refit()
        assert server.versions() == [1]
        server.update(2)
        error = ""
        version = refit.version
        try:
            refit = server.refit(joined, harmed(step, harm) if harmful else None)
            refit()
            version = refit.version
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
            version = refit.version or version
        return error, server.versions(), version


def kill():
    jobs.die()


def stand_still():
    jobs.stop_for(3 * TIMEOUT_MS / 1000)  # longer than the others wait for it to commit, and then to install


class Faults(unittest.TestCase):
    def outcomes(self, harm, steps=STEPS, victims=VICTIMS):
        cases = len(steps) * len(victims)
        dead = [RANKS * case + victim_of(case) for case in range(cases)] if harm is kill else ()
        env = {"RESHARD_TIMEOUT_MS": str(TIMEOUT_MS)}
        outcomes = jobs.run_jobs([1] * (RANKS * cases), one_case, steps, harm, env=env, victims=dead, timeout=120)
        for case in range(cases):
            yield steps[case // len(victims)], victim_of(case), outcomes[RANKS * case : RANKS * (case + 1)]

    def check_survivors(self, step, victim, outcomes):
        for rank, outcome in enumerate(outcomes):
            if rank == victim:
                continue
            self.assertTrue(outcome.ok, f"{step}, {victim}: {outcome}")
            error, versions, version = outcome.value
            self.assertIn(f"rank {victim}", error, f"{step}, {victim}: {outcome}")
            wanted = 1 if step in BEFORE_COMMIT else 2
            self.assertEqual(versions, [2 if rank == 0 else wanted], f"{step}, {victim}: {outcome}")
            self.assertEqual(version, wanted)
            if wanted == 2:
                self.assertIn("installed here", error)

    def test_one_dies(self):
        for step, victim, outcomes in self.outcomes(kill):
            with self.subTest(step=step, victim=victim):
                self.assertIn("SIGKILL", outcomes[victim].ended)
                self.check_survivors(step, victim, outcomes)

    def test_one_stands_still(self):
        for step, victim, outcomes in self.outcomes(stand_still):
            with self.subTest(step=step, victim=victim):
                self.check_survivors(step, victim, outcomes)
                # It goes on later, and comes to the version of the others.
                self.assertTrue(outcomes[victim].ok, str(outcomes[victim]))
                error, versions, _ = outcomes[victim].value
                committed = step not in BEFORE_COMMIT
                self.assertEqual(bool(error), not committed, error)
                self.assertEqual(versions, [2 if victim == 0 or committed else 1])


def lose_the_store(member, step):
    server = Server(member, 0, member.rank)
    kill_server = lambda: os.kill(member.server, signal.SIGKILL)  # noqa: E731
    with server.join() as joined:
        refit = server.refit(joined, harmed(step, kill_server) if member.rank == 0 else None)
        server.update(1)
        try:
            refit()
        except Exception as error:
            return type(error).__name__, str(error), server.versions()


def lose_memory(member):
    """The target of rank 2 is freed: a version is given up, and every rank hears why."""
    server = Server(member, 0, member.rank)
    with server.join() as joined:
        refit = server.refit(joined)
        server.update(1)
        refit()
        server.update(2)
        if member.rank == 2:
            server.weights["v"].untyped_storage().resize_(0)
            del server.weights["v"]
        errors = []
        for _ in range(2):
            try:
                refit()
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
        return errors, server.versions()


class Decisions(unittest.TestCase):
    """What a rank reads in the store, without the other processes."""

    def committers(self, timeout=0.2, world=2, gone=()):
        from reshard.torch.refit.commit import Committer
        from reshard.torch.shared_store import SharedStore

        store = dist.HashStore()
        made = []
        for rank in range(world):
            shared = SharedStore(store, "refit", 5)
            self.addCleanup(shared.close)
            made.append(Committer(shared, "1.1", rank, world, timeout, lambda ranks: [r for r in ranks if r in gone]))
        begun = made[0].begin()
        for one in made:
            one.follow(begun)
        return store, made

    def later(self, store):
        """A refit of the next generation begins."""
        from reshard.torch.refit.commit import Committer
        from reshard.torch.shared_store import SharedStore

        shared = SharedStore(store, "refit", 5)
        self.addCleanup(shared.close)
        one = Committer(shared, "2.1", 0, 1, 0.2, lambda ranks: [])
        one.follow(one.begin())
        return one

    def test_the_last_to_acknowledge_commits(self):
        _, (a, b) = self.committers()
        a.acknowledge()
        b.acknowledge()
        self.assertEqual(b._store.add(b._key("count"), 1), 1)  # one that died before it could see that it is the last
        self.assertEqual(a.decide(), 1)

    def test_one_that_acknowledged_and_was_not_counted(self):
        _, (a, b) = self.committers()
        for one in (a, b):
            one.acknowledge()
        self.assertEqual(a.decide(), 1)  # after its time: both have acknowledged

    def test_given_up(self):
        _, (a, b) = self.committers()
        a.acknowledge()
        with self.assertRaisesRegex(reshard_errors().PeerError, "version 1 was given up.*rank 1 did not acknowledge"):
            a.decide()
        b.acknowledge()  # too late
        with self.assertRaisesRegex(reshard_errors().PeerError, "rank 1 did not acknowledge"):
            b.decide()

    def test_nobody_waits_for_one_that_is_gone(self):
        _, (a, b, c) = self.committers(timeout=600, world=3, gone=[2])
        a.acknowledge()
        b.acknowledge()
        for one in (a, b):
            with self.assertRaisesRegex(reshard_errors().PeerError, "version 1 was given up.*rank 2 did not acknowledge, and is gone"):
                one.decide()

    def test_the_last_to_acknowledge_is_gone(self):
        _, (a, b) = self.committers(timeout=600, gone=[1])
        for one in (a, b):
            one.acknowledge()
        self.assertEqual(a.decide(), 1)
        with self.assertRaisesRegex(reshard_errors().PeerError, "installed here; rank 1 did not finish installing it, and is gone"):
            a.finish()

    def test_one_that_has_finished_may_leave(self):
        _, (a, b) = self.committers(timeout=600)
        for one in (a, b):
            one.acknowledge()
        self.assertEqual(a.decide(), 1)
        self.assertEqual(b.decide(), 1)
        a._find_gone = lambda ranks: (b._store.set(b._key("installed", 1), "1"), ranks)[1]  # between two looks
        a.finish()

    def test_a_later_refit_has_begun(self):
        store, (a, b) = self.committers()
        self.assertEqual(self.later(store).version, 0)
        for one in (a, b):
            one.acknowledge()
        with self.assertRaisesRegex(reshard_errors().PeerError, "a later refit has begun"):
            a.decide()

    def test_committed_and_a_later_one_has_begun(self):
        store, (a, b) = self.committers()
        for one in (a, b):
            one.acknowledge()
        self.assertEqual(a.decide(), 1)
        later = self.later(store)
        self.assertEqual(later.version, 1)
        self.assertEqual(b.decide(), 1)
        later.acknowledge()
        self.assertEqual(later.decide(), 2)

    def test_the_others_have_gone_on(self):
        store, (a, b) = self.committers()
        for one in (a, b):
            one.acknowledge()
        a.decide()
        later = self.later(store)
        later.acknowledge()
        later.decide()
        with self.assertRaisesRegex(reshard_errors().PeerError, "the others have version 2 already"):
            b.decide()

    def test_a_store_that_has_forgotten(self):
        store, (a, b) = self.committers()
        for one in (a, b):
            one.acknowledge()
        store.delete_key("refit/committed")
        with self.assertRaisesRegex(reshard_errors().UndeterminedError, "version 1 is undetermined"):
            a.decide()


def reshard_errors():
    import reshard.errors

    return reshard.errors


class Ends(unittest.TestCase):
    def test_the_store_is_lost(self):
        for step in ("commit", "install"):
            with self.subTest(step):
                env = {"RESHARD_TIMEOUT_MS": "2000"}
                for kind, message, versions in gloo.values(jobs.run_jobs([1, 2], lose_the_store, step, env=env)):
                    self.assertIn(kind, ("UndeterminedError", "PeerError"))
                    if kind == "UndeterminedError":
                        self.assertIn("is undetermined", message)
                    else:
                        self.assertEqual((step, versions), ("install", [1]))
                        self.assertIn("installed here", message)
                    self.assertLess(len(versions), 2)

    def test_memory_that_is_lost(self):
        for rank, (errors, versions) in enumerate(gloo.values(jobs.run_jobs([1, 2], lose_memory))):
            self.assertIn("v: its storage was freed", errors[0])
            self.assertIn("this refit has ended", errors[1])
            self.assertEqual(versions, [2 if rank == 0 else 1])


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
