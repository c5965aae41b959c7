"""Checks on every rank of a group, collected instead of raised, so that no rank leaves the others waiting.

def check_something(c):                      # on every rank
    c.equal("what", torch.ops.reshard...., wanted)
    c.raises("what", lambda: ..., "fragment", kind=ValueError)

failures = run_checks(4, [check_something])  # in the parent
"""

import sys
import unittest

import torch
import torch.distributed as dist

import gloo

SHOWN = 12
LONGEST = 600  # characters of a failure


class Checks:
    def __init__(self, rank, world):
        self.rank = rank
        self.world = world
        self.group = gloo.world_name()
        self.count = 0
        self.failures = []  # (number of the check, text)

    def fail(self, what, why):
        text = " ".join(f"rank {self.rank} of {self.world}, {what}: {why}".split())
        self.failures.append((self.count, text[:LONGEST]))

    def true(self, what, condition, why="not so"):
        self._begin(what)
        if not condition:
            self.fail(what, why)

    def _begin(self, what):
        self.count += 1
        gloo.note(what)

    def run(self, what, function):
        """The value of function(), or None with a failure."""
        self._begin(what)
        try:
            return function()
        except Exception as error:
            self.fail(what, f"{type(error).__name__}: {error}")
            return None

    def equal(self, what, got, wanted):
        """Exactly the same values, shape and dtype."""
        self._begin(what)
        if got is None or wanted is None:
            if got is not wanted:
                self.fail(what, f"{got} instead of {wanted}")
        elif got.shape != wanted.shape or got.dtype != wanted.dtype:
            self.fail(what, f"{got.dtype} {list(got.shape)} instead of {wanted.dtype} {list(wanted.shape)}")
        elif not torch.equal(got, wanted):
            self.fail(what, f"{got} instead of {wanted}")

    def close(self, what, got, wanted):
        self._begin(what)
        if got is None or got.shape != wanted.shape or got.dtype != wanted.dtype:
            self.fail(what, f"{None if got is None else (got.dtype, list(got.shape))} instead of {list(wanted.shape)}")
        elif not torch.allclose(got, wanted, rtol=1e-9, atol=1e-9):
            self.fail(what, f"{got} instead of {wanted}")

    def fresh(self, what, got, *others):
        """`got` is dense and in memory of its own."""
        self._begin(what)
        if got is None:
            return
        if not got.is_contiguous():
            self.fail(what, f"strides {got.stride()} for shape {list(got.shape)}")
        if got.numel() and any(got.untyped_storage().data_ptr() == o.untyped_storage().data_ptr() for o in others):
            self.fail(what, "shares memory with an input")

    def raises(self, what, function, *fragments, kind=Exception):
        """function() raises a `kind` whose text has all fragments. Returns the text."""
        self._begin(what)
        try:
            got = function()
        except kind as error:
            missing = [f for f in fragments if f.lower() not in str(error).lower()]
            if missing:
                self.fail(what, f"no {missing} in {type(error).__name__}: {error}")
            return str(error)
        except Exception as error:
            self.fail(what, f"{type(error).__name__} instead of {kind}: {error}")
            return str(error)
        self.fail(what, f"no error but {got}")
        return ""

    def one_rank_errs(self, what, culprit, good, bad, *fragments, wanted=None):
        """`bad` on the culprit alone: everyone gets an error, the others one that names it; then `good` works."""
        if self.rank == culprit:
            self.raises(what, bad, *fragments)
        else:
            self.raises(what, good, f"rank {culprit}")
        got = self.run(f"{what}, afterwards", good)
        if wanted is not None:
            self.equal(f"{what}, afterwards", got, wanted)


def _on_rank(rank, world, functions, arguments):
    c = Checks(rank, world)
    for function in functions:
        try:
            function(c, *arguments)
        except Exception as error:
            at = error.__traceback__.tb_next
            while at.tb_next:
                at = at.tb_next
            c.fail(function.__name__, f"{type(error).__name__} in line {at.tb_lineno}: {error}")
        try:
            dist.barrier()
        except RuntimeError as error:
            c.fail(f"after {function.__name__}", error)
            break
    return c.count, c.failures


class ChecksTest(unittest.TestCase):
    """A test that runs checks on groups of ranks."""

    checks = 0

    @classmethod
    def setUpClass(cls):
        gloo.load_library()

    def on_ranks(self, world, functions, *arguments, **options):
        outcomes = gloo.run_ranks(world, _on_rank, functions, arguments, **options)
        failures = sorted(f for o in outcomes for f in (o.value[1] if o.ok else [(1 << 30, str(o))]))
        ChecksTest.checks += sum(o.value[0] for o in outcomes if o.ok)
        if failures:
            self.fail(f"{len(failures)} failures\n" + "\n".join(text for _, text in failures[:SHOWN]))


def main(name):
    """Runs the tests of the calling script; its last line sums up."""
    result = unittest.main(exit=False, verbosity=1).result
    bad = len(result.failures) + len(result.errors)
    print(f"{name}: {ChecksTest.checks} checks in {result.testsRun} tests, {bad} failures")
    sys.exit(0 if result.wasSuccessful() else 1)
