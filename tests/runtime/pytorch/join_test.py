#!/usr/bin/env python3
"""One group over two jobs: who meets, who is named when somebody does not, and who may come back."""

import os
import signal
import time
import unittest

import torch
import torch.distributed as dist

import gloo
import jobs

FAST = {"RESHARD_TIMEOUT_MS": "4000"}


def meet(member):
    import reshard

    before = dist.group.WORLD, dist.get_world_size(), dist.get_rank()
    joined = member.join()
    row = torch.tensor([[float(member.rank)]])
    rows = reshard.all_gather(row, 0, joined).flatten().tolist()
    seen = (joined.rank, joined.world, joined.jobs, joined.generation)
    mesh = dist.device_mesh.DeviceMesh("cpu", torch.arange(dist.get_world_size()))
    ids = joined.span.device_ids(mesh)
    total = torch.ones(1)
    dist.all_reduce(total)  # the job's own group works as before
    same = before == (dist.group.WORLD, dist.get_world_size(), dist.get_rank())
    name = joined.span.name
    joined.leave()
    gone = False
    try:
        reshard.recent_operations(name)
    except RuntimeError:
        gone = True
    return rows, seen, ids, total.item(), same, gone


def meet_again(member):
    generations = []
    for _ in range(3):
        with member.join() as joined:
            torch.ops.reshard.all_gather(torch.ones(1, 1), 0, joined.span.name)
            generations.append(joined.generation)
    return generations


def come_late(member, absent):
    if member.rank == absent:
        time.sleep(1.8)
        return "absent"
    begun = time.monotonic()
    try:
        member.join(timeout=1)
    except Exception as error:
        return type(error).__name__, str(error), time.monotonic() - begun


def die_while_connecting(member, victim):
    from reshard.torch import joined

    if member.rank == victim:
        joined.connect_group = lambda *arguments: jobs.die()
    try:
        member.join(timeout=4)
    except Exception as error:
        return type(error).__name__, str(error)


def ask_and_be_stopped(_rank, _world):
    from reshard.torch.shared_store import SharedStore

    class Slow:
        """Takes a moment of the process's own time for an answer."""

        def compare_set(self, key, expected, desired):
            end = time.process_time() + 0.3
            while time.process_time() < end:
                pass
            return desired.encode()

    store = SharedStore(dist.HashStore(), "slow", 1.0)
    store._store = Slow()
    gloo.signal_me_in(0.15, signal.SIGSTOP)
    gloo.signal_me_in(2.5, signal.SIGCONT)
    return store.compare_set("key", "", "answer")


def say_another_world(member):
    try:
        if member.rank == 2:
            member.world += 1
            time.sleep(0.2)
        member.join()
    except Exception as error:
        return type(error).__name__, str(error)


def take_a_number_twice(member):
    if member.rank == 1:
        member.store().set("begun", "1")
    if member.rank == 3:
        member.store().get("begun")
        time.sleep(0.5)
        member.rank = 1
    member.world = 4
    try:
        member.join(timeout=2)
    except Exception as error:
        return type(error).__name__, str(error)


def restart(member, moment):
    """Rank 3 dies; the last process, which waited for that, is its successor."""
    spare = member.rank == 4
    member.world = 4
    if member.rank == 3:
        member.store().set("rank 3", str(os.getpid()))
        if moment == "joined":
            with member.join():
                time.sleep(0.3)
                jobs.die()
        else:  # while it waits: rank 0 is not there yet
            gloo.signal_me_in(3, 9)
            member.join()
    if spare:
        wait_for_death(int(member.store().get("rank 3")))
        member.rank = 3
        return member.join().generation, os.getpid()
    if moment == "joined":
        with member.join() as joined:
            time.sleep(1)
            try:
                torch.ops.reshard.all_gather(torch.ones(1, 1), 0, joined.span.name)
                return "rank 3 is still there"
            except dist.DistBackendError as error:
                if "rank 3" not in str(error):
                    return str(error)
    elif member.rank == 0:
        wait_for_death(int(member.store().get("rank 3")))
        if moment == "waits, and is counted":  # its successor is here already, but has not yet given it up
            time.sleep(1.5)
    joined = member.join(timeout=10)
    return joined.generation, joined.members[3].pid


def wait_for_death(pid):
    """Until the process is no more than an entry in a table: the parent reaps it at the end."""
    while True:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            if file.read().rpartition(")")[2].split()[0] == "Z":
                return
        time.sleep(0.05)


def leave_between(member):
    """Rank 2 leaves the process after its claim has completed the round."""
    from reshard.torch import meeting

    if member.rank == 2:
        meeting.Meeting._stay = lambda self, generation: jobs.die()
    try:
        member.join(timeout=1)
    except Exception as error:
        return type(error).__name__, str(error)


def fail_to_connect(member, how, times):
    """Rank 1's first connections come to nothing."""
    from reshard.torch import joined

    connect = joined.connect_group
    failures = []

    def connect_later(*arguments):
        if member.rank == 1 and len(failures) < times:
            failures.append(how)
            if how == "stands":
                time.sleep(3600)
            raise RuntimeError("connection closed by peer")
        return connect(*arguments)

    joined.connect_group = connect_later
    try:
        with member.join(timeout=4) as group:
            rows = torch.ops.reshard.all_gather(torch.ones(1, 1) * member.rank, 0, group.span.name)
            return group.generation, rows.flatten().tolist()
    except Exception as error:
        return type(error).__name__, str(error)


def lose_the_store(member, how):
    store = member.store()
    store.set(f"connected {member.rank}", "1")
    store.wait(["connected 0", "connected 1"])
    if member.rank == 0:
        time.sleep(0.3)
        os.kill(member.server, how)
    try:
        import reshard

        reshard.join(store, member.rank, 3, timeout=1)  # nobody comes
    except Exception as error:
        return type(error).__name__, str(error)


class Join(unittest.TestCase):
    def test_two_jobs_meet(self):
        for sizes in ([2, 2], [1, 3]):
            for rank, (rows, seen, ids, total, same, gone) in enumerate(gloo.values(jobs.run_jobs(sizes, meet))):
                world = list(range(4))
                self.assertEqual(rows, world)
                self.assertEqual(seen, (rank, 4, [world[: sizes[0]], world[sizes[0] :]], 1))
                job = 0 if rank < sizes[0] else 1
                self.assertEqual(list(ids), [world[: sizes[0]], world[sizes[0] :]][job])
                self.assertEqual(total, sizes[job])
                self.assertTrue(same and gone)

    def test_they_meet_again(self):
        self.assertEqual(gloo.values(jobs.run_jobs([2, 1], meet_again)), [[1, 2, 3]] * 3)

    def test_a_late_rank_is_named(self):
        for outcome in gloo.values(jobs.run_jobs([2, 1], come_late, 1)):
            if outcome != "absent":
                kind, message, seconds = outcome
                self.assertEqual(kind, "PeerError")
                self.assertIn("rank 1 of 3 did not join within 1 s", message)
                self.assertLess(seconds, 10)

    def test_worlds_differ(self):
        outcomes = gloo.values(jobs.run_jobs([2, 1], say_another_world, env=FAST))
        for kind, message in outcomes:
            self.assertEqual(kind, "InputError")
            self.assertRegex(message, r"rank 2 \(process .*\) says that there are 4 ranks, but others here say 3")

    def test_a_number_twice(self):
        outcomes = gloo.values(jobs.run_jobs([3, 1], take_a_number_twice, env=FAST))
        self.assertEqual(outcomes[3][0], "InputError")
        self.assertIn("two processes are rank 1: process", outcomes[3][1])
        for kind, message in outcomes[:3]:
            self.assertEqual(kind, "PeerError")
            self.assertIn("rank 3 of 4 did not join", message)

    def test_a_restarted_rank(self):
        for moment in ("joined", "waits", "waits, and is counted"):
            with self.subTest(moment):
                outcomes = jobs.run_jobs([2, 2, 1], restart, moment, env=FAST, victims=(3,))
                self.assertIn("SIGKILL", outcomes[3].ended)
                others = [outcome for outcome in outcomes if outcome.rank != 3]
                self.assertTrue(all(outcome.ok for outcome in others), "\n".join(map(str, others)))
                self.assertEqual([outcome.value[0] for outcome in others], [2] * 4)
                self.assertEqual(len({outcome.value[1] for outcome in others}), 1)

    def test_one_that_does_not_stay(self):
        outcomes = jobs.run_jobs([2, 1], leave_between, victims=(2,))
        for outcome in outcomes[:2]:
            self.assertEqual(outcome.value[0], "PeerError", str(outcome))
            self.assertIn("rank 2 of 3 came and did not stay", outcome.value[1])

    def test_a_connection_that_fails(self):
        for outcome in gloo.values(jobs.run_jobs([2, 1], fail_to_connect, "fails", 2)):
            self.assertEqual(outcome, (3, [0, 1, 2]))
        for kind, message in gloo.values(jobs.run_jobs([2, 1], fail_to_connect, "fails", 9)):
            self.assertEqual(kind, "PeerError")
            self.assertIn("rank 1 could not connect (connection closed by peer)", message)
        for kind, message in gloo.values(jobs.run_jobs([2, 1], fail_to_connect, "stands", 1)):
            self.assertEqual(kind, "PeerError")
            # Whose timeout ends first, that of this wait or that of a Gloo which waits for rank 1, is a matter of chance.
            self.assertRegex(message, r"ranks? .*\b1\b.*(of 3 did not connect within 4 s|had not yet either)")

    def test_one_that_dies_while_all_connect(self):
        outcomes = jobs.run_jobs([3, 2], die_while_connecting, 3, env=FAST, victims=(3,))
        for outcome in outcomes:
            if outcome.rank == 3:
                continue
            self.assertEqual(outcome.value[0], "PeerError", str(outcome))
            self.assertRegex(outcome.value[1], r"\brank 3 (of 5 did not connect within 4 s and )?ended or stopped meanwhile")
            self.assertNotRegex(outcome.value[1], "ranks ")

    def test_a_store_that_answers_late_to_one_that_was_stopped(self):
        """Time in which a process is stopped is not time in which the store does not answer."""
        for value in gloo.values(gloo.run_ranks(1, ask_and_be_stopped)):
            self.assertEqual(value, "answer")

    def test_the_store_is_lost(self):
        for how in (signal.SIGKILL, signal.SIGSTOP):
            for kind, message in gloo.values(jobs.run_jobs([1, 1], lose_the_store, how)):
                self.assertEqual(kind, "PeerError")
                self.assertIn("the store that the jobs share is lost", message)

    def test_numbers(self):
        import reshard

        for rank, world in ((3, 3), (-1, 2)):
            with self.assertRaisesRegex(ValueError, f"rank {rank} of {world}"):
                reshard.join(dist.HashStore(), rank, world)


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
