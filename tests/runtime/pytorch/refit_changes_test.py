#!/usr/bin/env python3
"""Refits of what has changed only: what is left out, and that the outcome is always that of a refit of everything."""

import random
import unittest
from collections import Counter

import torch

import gloo
import jobs
from refit_test import FUSED, SAME, STACKED, line, local, numbered, sharded, square

ROUNDS = 12


def bits(tensor):
    return tensor.contiguous().view(torch.uint8) if tensor.dim() else tensor.reshape(1).view(torch.uint8)


class Sides:
    """This rank's part of a case, of which any rank can compute the whole."""

    def __init__(self, member, case):
        self.case = case
        self.meshes = square(member), line(2)(member)
        self.wholes = {name: numbered(shape, dtype) for name, (shape, dtype, _) in case.source.items()}
        source, target = self.parts()
        self.source = source or None
        self.target = target or None
        for tensor in target.values():
            local(tensor).fill_(99)

    def parts(self):
        """What this rank has of the source and, after a refit, of the target."""
        source, target = {}, {}
        if self.meshes[0] is not None:
            for name, whole in self.wholes.items():
                source[name] = sharded(whole, self.meshes[0], self.case.source[name][2])
        if self.meshes[1] is not None:
            for name, (make, dtype, placements) in self.case.target.items():
                target[name] = sharded(make(self.wholes).to(dtype), self.meshes[1], placements)
        return source, target

    def change(self, names, number):
        """One element of each, so that few shards change. Returns of which tensors this rank's shard has."""
        for name in names:
            flat = self.wholes[name].view(-1)
            flat[number % len(flat)] += 1
        source, _ = self.parts()
        changed = {name for name in source if not torch.equal(local(self.source[name]), local(source[name]))}
        for name in changed:
            local(self.source[name]).copy_(local(source[name]))
        return changed

    def check(self, what):
        _, target = self.parts()
        for name, wanted in target.items():
            assert torch.equal(local(self.target[name]), local(wanted)), f"{what}: {name}"


def follow(member, seed, cases):
    return [follow_one(member, seed, *case) for case in cases]


def follow_one(member, seed, case, tight):
    """Random changes. Returns for each round (what, timings, the tensors whose shard has changed here; None: all), and of
    each move (source tensor, its ranks, the problem)."""
    import reshard
    from reshard.torch.refit import exchanges

    pick = random.Random(f"{seed}/{len(case.source)}")
    exchanges._KEPT = 3
    sides = Sides(member, case)
    rounds = []
    with member.join() as joined:
        terms = {"recipe": case.recipe if member.rank == 0 else None, "group": joined}
        limit = None
        if tight:
            whole = reshard.Refit(sides.source, sides.target, **terms).explain()
            limit = max(rank["memory_bytes"] for rank in whole["ranks"]) - 1
        refit = reshard.Refit(sides.source, sides.target, memory_limit=limit, **terms)
        names = list(case.source)

        def call(what, changed, everything=False, **options):
            changed = sides.change(changed, pick.randrange(1 << 20))
            version = refit.version
            refit(changed_only=True, **options)
            assert version is None or refit.version == version + 1
            sides.check(what)
            rounds.append((what, refit.timings(), None if everything else changed))

        call("the first", names[:1], everything=True)
        for number in range(ROUNDS):
            count = (0, 1, len(names))[number] if number < 3 else pick.randint(0, len(names))
            call(f"round {number}", pick.sample(names, count))
        sides.change(names[:1], 5)
        refit()
        sides.check("everything")
        call("after one of everything", names[:1], everything=True)
        call("nothing again", [])
        for some, _ in refit._exchanges._some.values():
            for rank in range(member.world):
                assert limit is None or refit._schedule.memory(rank, some) <= limit, limit
        assert len(refit._exchanges._some) <= 3
        return rounds, [(move.view.source, set(move.source_elements), problem(move)) for move in refit._schedule.moves]


def problem(move):
    mesh, target_mesh = move.source.mesh, move.target.mesh
    return {"mesh": mesh, "from": move.source.layout, "to_mesh": target_mesh, "to": move.target.layout, "dtype": str(move.wire)}


def bound_of(problems):
    """What each rank lacks, every move being planned alone."""
    import reshard

    lacks = Counter()
    for one in problems:
        for device in reshard.plan_batch([one])["devices"]:
            lacks[device["device"]] += device["recv_bytes_bound"]
    return lacks


def by_hand(member):
    """The owner of a target, or of one replica of the source, writes to it."""
    import reshard

    weights = {"w": torch.arange(12.0).view(3, 4), "v": torch.ones(5), "e": torch.empty(0)}
    mine = {name: weight.clone() for name, weight in weights.items()}
    counts = []
    with member.join() as joined:
        refit = reshard.Refit(mine, group=joined) if member.job == 0 else reshard.Refit(target=mine, group=joined)

        def call():
            refit(changed_only=True)
            for name, weight in weights.items():
                assert torch.equal(bits(mine[name]), bits(weight)), f"call {len(counts)}: {name}: {mine[name]}"
            counts.append(refit.timings()["moves"])

        call()
        if member.rank == 2:
            mine["w"][1, 2] = 77
        call()
        if member.rank == 3:
            mine["v"].copy_(weights["v"])  # what is there already
        call()
        if member.rank == 1:
            mine["v"][0] = 5  # one of two replicas
        refit(changed_only=True)
        counts.append(refit.timings()["moves"])
    return counts


def of_bits(member, seed):
    """Values that compare equal and are not the same, and the other way round."""
    import reshard

    pick = random.Random(seed)
    nan = torch.tensor([0x7FC00000, 0x7FC00001, 0], dtype=torch.int32).view(torch.float32)
    weight = torch.cat([nan, torch.zeros(61)])
    mine = weight.clone()
    counts = []
    with member.join() as joined:
        refit = reshard.Refit([mine], group=joined) if member.job == 0 else reshard.Refit(target=[mine], group=joined)

        def call(change=None):
            if change is not None:
                change(weight.view(torch.int32))
                if member.job == 0:
                    mine.view(torch.int32).copy_(weight.view(torch.int32))
            refit(changed_only=True)
            assert torch.equal(mine.view(torch.int32), weight.view(torch.int32)), f"call {len(counts)}: {mine}"
            counts.append(refit.timings()["moves"])

        def set_(place, value):
            return lambda words: words[place].fill_(value)

        call()
        call()  # NaN is what it was
        call(set_(1, 0x7FC00002))  # another NaN
        call(set_(5, -(1 << 31)))  # 0.0 to -0.0
        call(set_(5, 0))
        for _ in range(8):
            place, bit = pick.randrange(64), pick.randrange(31)
            call(lambda words: words[place].bitwise_xor_(1 << bit))
        call(lambda words: words[:4].copy_(words[:4].flip(0)))  # elements that change places
        call()
    return counts


def end_badly(member, how):
    """A version that is given up between two that are installed; returns the error, and what the next refit moves."""
    import reshard

    class Failing(reshard.Refit):
        def _wire(self, moves):
            if member.rank == 1:
                raise RuntimeError("on purpose")
            return super()._wire(moves)

    weight = torch.zeros(8)
    mine = weight.clone()
    error = ""
    with member.join() as joined:
        refit = Failing if how == "abort" else reshard.Refit
        refit = refit([mine], group=joined) if member.job == 0 else refit(target=[mine], group=joined)
        weight += 1
        if member.job == 0:
            mine.copy_(weight)
        try:
            if how == "disagree":
                refit(changed_only=member.rank == 1)
            refit(changed_only=True)
        except Exception as caught:
            error = f"{type(caught).__name__}: {caught}"
        assert member.job == 0 or not mine.any(), "a version that was given up is installed"
        assert "on purpose" in refit._ended or how != "abort" or member.rank != 1, refit._ended
    with member.join(timeout=20) as joined:
        refit = reshard.Refit([mine], group=joined) if member.job == 0 else reshard.Refit(target=[mine], group=joined)
        counts = []
        for _ in range(2):
            refit(changed_only=True)
            counts.append(refit.timings()["moves"])
        assert torch.equal(mine, weight)
    return error, counts


def no_room(member):
    """Where the changed moves alone do not fit the memory limit, all are moved."""
    import reshard
    from reshard.errors import LimitError

    def refuse(moves):
        raise LimitError("no room")

    mine = [torch.full((4,), float(member.job)), torch.full((4,), float(member.job))]
    with member.join() as joined:
        refit = reshard.Refit(mine, group=joined) if member.job == 0 else reshard.Refit(target=mine, group=joined)
        refit(changed_only=True)
        refit._schedule.rounds_of = refuse
        if member.job == 0:
            mine[1] += 1
        refit(changed_only=True)
        return refit.timings()["moves"], mine[1].tolist()


class Changes(unittest.TestCase):
    def test_random_changes(self):
        cases = [(SAME, False), (FUSED, False), (STACKED, False), (FUSED, True)]
        of_ranks = gloo.values(jobs.run_jobs([4, 2], follow, gloo.seed(), cases))
        some = 0
        for place in range(len(cases)):
            moves = of_ranks[0][place][1]
            for rounds in zip(*(rank[place][0] for rank in of_ranks)):
                what, _, everything = rounds[0]
                changed = {(name, rank) for rank, (_, _, names) in enumerate(rounds) for name in names or ()}
                wanted = [
                    problem
                    for name, ranks, problem in moves
                    if everything is None or any((name, rank) in changed for rank in ranks)
                ]
                some += 0 < len(wanted) < len(moves)
                lacks = bound_of(wanted)
                for rank, (_, timings, _) in enumerate(rounds):
                    with self.subTest(what, case=place, rank=rank):
                        self.assertEqual(timings["moves"], len(wanted))
                        self.assertEqual(timings["skipped_moves"], len(moves) - len(wanted))
                        self.assertEqual(timings["received_bytes"], lacks[rank])
                        self.assertEqual(timings["received_bytes_bound"], lacks[rank])
                received, sent = (sum(one[1][f"{way}_bytes"] for one in rounds) for way in ("received", "sent"))
                self.assertEqual(received, sent)
        self.assertGreater(some, ROUNDS)

    def test_written_by_hand(self):
        for counts in gloo.values(jobs.run_jobs([2, 2], by_hand)):
            self.assertEqual(counts, [2, 1, 0, 1])

    def test_bits(self):
        for counts in gloo.values(jobs.run_jobs([1, 1], of_bits, gloo.seed())):
            self.assertEqual(counts, [1, 0, 1, 1, 1, *[1] * 8, 1, 0])

    def test_a_version_that_is_given_up(self):
        differ = "changed_only is True on rank 1 and False on ranks 0 and 2"
        for how, wanted in (("abort", "on purpose|rank 1"), ("disagree", differ)):
            with self.subTest(how):
                env = {"RESHARD_TIMEOUT_MS": "2000"}
                for error, counts in gloo.values(jobs.run_jobs([2, 1], end_badly, how, env=env)):
                    self.assertRegex(error, wanted)
                    self.assertEqual(counts, [1, 0])

    def test_no_room_for_a_part(self):
        for rank, outcome in enumerate(gloo.values(jobs.run_jobs([1, 1], no_room))):
            self.assertEqual(outcome, (2, [1.0] * 4), rank)


if __name__ == "__main__":
    gloo.load_library()
    unittest.main()
