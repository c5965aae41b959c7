#!/usr/bin/env python3
"""torch.ops.reshard.redistribute and redistribute_batch on Gloo ranks, element by element against reference.py.

Each call is also held to the promises around it: the input keeps its bytes, the output is dense fresh memory, and what
was returned before stays as it was. RESHARD_TEST_SEED repeats a run, RESHARD_TEST_PAIRS sets the number of random
pairs.
"""

import json
import os
import random
import re
import unittest

import torch
import torch.distributed as dist

import gloo
from problems import (
    Problem,
    bytes_of,
    contributions,
    large_shape,
    random_mesh,
    random_problem,
    rearranged,
    reduced,
    same_bits,
    tensor_of_bytes,
    tensor_of_numbers,
    whole_bytes,
)

PAIRS = int(os.environ.get("RESHARD_TEST_PAIRS", "2400"))
SHARE = {2: 0.2, 3: 0.2, 4: 0.25, 7: 0.15, 8: 0.2}  # of the random pairs
BATCHES = 30  # a world
LARGE_PAIRS = 12  # a world
GOLDEN = gloo.ROOT / "tests/golden/cases.json"
SIZE = re.compile(r"\b(?:512|[0-9]{4,})\b")  # of a large dimension
SHOWN = 8
LONGEST = 600  # characters of a failure
MANY = 8  # failures after which a rank stops


def local_input(problem, source, rank):
    """The tensor that this rank passes."""
    if not source.holds(rank):
        return torch.empty(0, dtype=problem.dtype)
    if source.partial:
        whole = contributions(source, problem.dtype, problem.contents)[source.contribution(rank)]
        return tensor_of_numbers(source.local(whole, rank), problem.dtype)
    return tensor_of_bytes(source.local(whole_bytes(source, problem.dtype, problem.contents), rank), problem.dtype)


def reduced_whole(problem, source):
    return reduced(source.partial_op, list(contributions(source, problem.dtype, problem.contents).values()))


def difference(problem, source, target, rank, out):
    """What is wrong with the output of this rank, '' if nothing is. Collective where the target is partial."""
    if target.partial:
        return _partial_difference(problem, source, target, rank, out)
    if not target.holds(rank):
        return "" if out.numel() == 0 and out.dtype == problem.dtype else f"a rank outside got {out}"
    if not source.partial:
        whole = whole_bytes(source, problem.dtype, problem.contents)
        wanted = tensor_of_bytes(target.local(whole, rank), problem.dtype)
        return "" if same_bits(out, wanted) else f"{out} instead of {wanted}"
    wanted = tensor_of_numbers(target.local(reduced_whole(problem, source), rank), problem.dtype)
    return "" if close(out, wanted, source.partial_op) else f"{out} instead of {wanted}"


def close(out, wanted, operation):
    if out.shape != wanted.shape or out.dtype != wanted.dtype:
        return False
    if operation == "avg":  # a factor of 1/3 is not exact
        return torch.allclose(out, wanted, rtol=4 * torch.finfo(out.dtype).eps, atol=4 * torch.finfo(out.dtype).eps)
    return torch.equal(out, wanted)


def _partial_difference(problem, source, target, rank, out):
    """Partial results are free as long as they reduce to the right values."""
    wide = torch.complex128 if problem.dtype.is_complex else torch.float64
    gathered = [None] * dist.get_world_size()
    dist.all_gather_object(gathered, out.to(wide))
    if not target.holds(rank):
        return "" if out.numel() == 0 and out.dtype == problem.dtype else f"a rank outside got {out}"
    wanted = tensor_of_numbers(target.local(reduced_whole(problem, source), rank), problem.dtype)
    if out.shape != wanted.shape or out.dtype != wanted.dtype:
        return f"{out.dtype} {list(out.shape)} instead of {wanted.dtype} {list(wanted.shape)}"
    mine = [i.tolist() for i in target.indices(rank)]
    parts = {}
    for device in target.mesh.devices:
        if [i.tolist() for i in target.indices(device)] == mine and _same_group(target, rank, device):
            parts.setdefault(target.contribution(device), gathered[device])
    total = reduced_tensors(target.partial_op, list(parts.values()))
    return (
        ""
        if close(total.to(problem.dtype), wanted, target.partial_op)
        else f"parts reduce to {total} instead of {wanted}"
    )


def _same_group(target, a, b):
    """Whether two devices differ along the target's partial parts only."""
    mesh = target.mesh
    for axis in mesh.axes:
        rest_a, rest_b = mesh.coordinate(a, axis), mesh.coordinate(b, axis)
        for part in target.partial:
            if part.axis == axis:
                rest_a -= part.coordinate(mesh, a) * part.rest
                rest_b -= part.coordinate(mesh, b) * part.rest
        if rest_a != rest_b:
            return False
    return True


def reduced_tensors(operation, tensors):
    stack = torch.stack(tensors)
    names = {"sum": "sum", "avg": "mean", "prod": "prod", "min": "amin", "max": "amax"}
    return getattr(stack, names[operation])(0)


class Rank:
    """One rank's calls and what went wrong with them."""

    def __init__(self, rank):
        self.rank = rank
        self.failures = []  # (number of the call, text)
        self.calls = 0
        self.kept = None  # the last output and what it was

    def fail(self, what, why):
        self.failures.append((self.calls, " ".join(f"rank {self.rank}, {what}: {why}".split())[:LONGEST]))

    def call(self, function, problems, seed):
        """Runs `function(inputs)` -> outputs for the problems and checks everything about it."""
        self.calls += 1
        rng = random.Random(f"{seed} {self.rank} {self.calls}")
        layouts = [p.layouts() for p in problems]
        inputs = [rearranged(rng, local_input(p, s, self.rank)) for p, (s, _) in zip(problems, layouts)]
        before = [bytes_of(x).clone() for x in inputs]
        what = " and ".join(map(str, problems))
        gloo.note(what)
        try:
            outputs = function(inputs)
        except Exception as error:
            self.fail(what, f"{type(error).__name__}: {error}")
            return
        for problem, (source, target), x, out, bits in zip(problems, layouts, inputs, outputs, before, strict=True):
            wrong = difference(problem, source, target, self.rank, out)
            if wrong:
                self.fail(problem, wrong)
            if not torch.equal(bytes_of(x), bits):
                self.fail(problem, "the input changed")
            if not out.is_contiguous():
                self.fail(problem, f"strides {out.stride()}")
            self._fresh(problem, x, out)
        self.kept = [(out, bytes_of(out).clone()) for out in outputs]

    def _fresh(self, problem, x, out):
        places = [x] + [k for k, _ in self.kept or []]
        if out.numel() and any(out.untyped_storage().data_ptr() == p.untyped_storage().data_ptr() for p in places):
            self.fail(problem, "the output shares memory with the input or an earlier output")
        for kept, bits in self.kept or []:
            if not torch.equal(bytes_of(kept), bits):
                self.fail(problem, "an earlier output changed")


def call_one(problem):
    def call(inputs):
        return [
            torch.ops.reshard.redistribute(
                inputs[0], problem.mesh, problem.source, problem.target, gloo.world_name(), problem.target_mesh
            )
        ]

    return call


def call_batch(problems):
    def call(inputs):
        return torch.ops.reshard.redistribute_batch(
            inputs, problems[0].mesh, [p.source for p in problems], [p.target for p in problems], gloo.world_name()
        )

    return call


def run_groups(rank, _world, groups, seed):
    """groups: lists of problems; a list of several is a batch. Returns the failures of this rank."""
    mine = Rank(rank)
    for problems in groups:
        mine.call(call_one(problems[0]) if len(problems) == 1 else call_batch(problems), problems, seed)
        if len(mine.failures) >= MANY:
            break
    return mine.failures


def call_again(problems):
    """Every problem three times in a row, the way a training loop does."""
    return [group for group in problems for _ in range(3)]


def random_batch(rng, world):
    where = random_mesh(rng, world)
    return [random_problem(rng, world, where) for _ in range(rng.randint(2, 7))]


def sixteenth(size):
    return str(int(size[0]) // 16)


def golden_problems(world):
    """The golden cases of at most `world` devices, large dimensions at a sixteenth."""
    for case in json.loads(GOLDEN.read_text()):
        problem = Problem(
            case["mesh"], case["from"], case["to"], case.get("to_mesh"), torch.bfloat16, len(case["name"])
        )
        source, target = problem.layouts()
        if max(source.mesh.devices + target.mesh.devices) >= world:
            continue
        problem.source, problem.target = (SIZE.sub(sixteenth, text) for text in (problem.source, problem.target))
        yield problem


def named_problems():
    """Pairs that went wrong once, on 3 ranks."""
    return [Problem("{X:3}@[2,0,1]", f"[3] {op}<X>", "[<X>3]", None, torch.float32, 1) for op in ("sum", "max")] + [
        Problem("{}@2", "[]", "[]", None, torch.float32, 1),
        Problem("{X:2}", "[] sum<X>", "[]", "{}@2", torch.float32, 1),
    ]


class RedistributeTest(unittest.TestCase):
    calls = 0
    seed = 0

    @classmethod
    def setUpClass(cls):
        gloo.load_library()
        cls.seed = gloo.seed()

    def run_all(self, world, groups, env=None):
        outcomes = gloo.run_ranks(world, run_groups, groups, self.seed, timeout=150, env=env)
        RedistributeTest.calls += sum(map(len, groups))
        failures = sorted(f for o in outcomes for f in (o.value if o.ok else [(0, str(o))]))  # the earliest calls first
        if failures:
            self.fail(
                f"{len(groups)} calls, {len(failures)} failures\n" + "\n".join(text for _, text in failures[:SHOWN])
            )

    def test_golden(self):
        for world in (2, 4, 8):
            problems = list(golden_problems(world))
            self.assertTrue(problems)
            with self.subTest(world=world):
                self.run_all(world, [[p] for p in problems])

    def test_pairs_that_went_wrong_once(self):
        self.run_all(3, [[p] for p in named_problems()])

    def test_random_pairs(self):
        for world, share in SHARE.items():
            rng = random.Random(self.seed * 10 + world)
            problems = [random_problem(rng, world) for _ in range(int(PAIRS * share))]
            for i, how in enumerate(gloo.SHARING):
                with self.subTest(world=world, sharing=how):
                    part = problems[i :: len(gloo.SHARING)]
                    self.run_all(world, [[p] for p in part], env=gloo.sharing(how, world))

    def test_large_pairs(self):
        """Other ways of sending than small ones."""
        for world in (2, 3, 4):
            rng = random.Random(self.seed * 10 + world + 7)
            for how in gloo.SHARING:
                with self.subTest(world=world, sharing=how):
                    problems = [random_problem(rng, world, shape_of=large_shape) for _ in range(LARGE_PAIRS // 2)]
                    self.run_all(world, [[p] for p in problems], env=gloo.sharing(how, world))

    def test_batches(self):
        for world in SHARE:
            rng = random.Random(self.seed * 10 + world + 5)
            how = rng.choice(gloo.SHARING)
            with self.subTest(world=world, sharing=how):
                batches = [random_batch(rng, world) for _ in range(BATCHES)]
                self.run_all(world, batches, env=gloo.sharing(how, world))

    def test_without_agreement(self):
        for world in (3, 8):
            rng = random.Random(self.seed * 10 + world + 6)
            groups = [[random_problem(rng, world)] for _ in range(100)] + [random_batch(rng, world) for _ in range(10)]
            with self.subTest(world=world):
                self.run_all(world, groups, env={"RESHARD_AGREEMENT": "off"})

    def test_the_same_call_again(self):
        rng = random.Random(self.seed * 10 + 9)
        groups = [[random_problem(rng, 4)] for _ in range(20)] + [random_batch(rng, 4) for _ in range(5)]
        self.run_all(4, call_again(groups))


if __name__ == "__main__":
    program = unittest.main(exit=False)
    result = program.result
    print(f"redistribute: {RedistributeTest.calls} pairs, {len(result.failures) + len(result.errors)} failures")
    raise SystemExit(not result.wasSuccessful())
