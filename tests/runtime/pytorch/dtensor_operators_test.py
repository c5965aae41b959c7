#!/usr/bin/env python3
"""Operators of PyTorch's own database on DTensors: results, placements and gradients under
reshard.dtensor_redistribution() are those without it.

Every operator is called with its first sample, whose tensors are placed in several ways, chosen by the operator's name.
Plans are taken wherever there is one, cheaper or not. By default a sample of the database; `--all` runs the whole and
takes minutes.
"""

import contextlib
import logging
import random
import sys
import types
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.utils._pytree import tree_leaves, tree_map

import gloo
from checks import Checks, ChecksTest, main

WAYS = 2  # placements of each operator
EVERY = 24  # of the operators that the default test takes beside those below
ALWAYS = """
    __getitem__ addmm bmm cat clamp cumsum einsum gather index_select linalg.vector_norm logsumexp matmul max mean mm mv
    nn.functional.cross_entropy nn.functional.embedding nn.functional.layer_norm nn.functional.linear
    nn.functional.scaled_dot_product_attention permute prod reshape scatter softmax sort split stack std sum topk
    transpose tril var view where
""".split()
# Memory as it was found.
UNINITIALIZED = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


def database():
    """By name, without the variants that only take other arguments."""
    if "expecttest" not in sys.modules:
        with contextlib.suppress(ModuleNotFoundError):
            import expecttest  # noqa: F401
    if "expecttest" not in sys.modules:
        # The database lies beside test cases that need it; it itself does not.
        sys.modules["expecttest"] = types.ModuleType("expecttest")
        sys.modules["expecttest"].TestCase = unittest.TestCase
    from torch.testing._internal import common_methods_invocations, common_utils

    for module in (common_methods_invocations, common_utils):
        module.L, module.M, module.S, module.XS = 24, 12, 4, 2  # sizes that divide
    found = {}
    for op in common_methods_invocations.op_db:
        found.setdefault(op.name, op)
    return found


def placed(tensor, mesh, rng):
    if not isinstance(tensor, torch.Tensor):
        return tensor
    if mesh is None:
        return tensor.detach().clone()
    choices = [Replicate()]
    if tensor.dtype != torch.bool:
        choices += [Shard(dim) for dim, size in enumerate(tensor.shape) if size > 1 and size % mesh.size() == 0]
    return distribute_tensor(tensor.detach(), mesh, rng.choices(choices, k=mesh.ndim), src_data_rank=None)


def called(op, mesh, way, context):
    """(results, gradients), of plain tensors where there is no mesh."""
    torch.manual_seed(5)
    dtype = torch.float32 if torch.float32 in op.dtypes else torch.int64
    sample = next(iter(op.sample_inputs("cpu", dtype, requires_grad=False)))
    rng = random.Random(f"{op.name} {way}")
    given = tree_map(lambda leaf: placed(leaf, mesh, rng), (sample.input, sample.args, sample.kwargs))
    leaves = [leaf for leaf in tree_leaves(given) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()]
    if op.supports_autograd:
        for leaf in leaves:
            leaf.requires_grad_()
    first, arguments, options = given
    with context:
        results = [leaf for leaf in tree_leaves(op(first, *arguments, **options)) if isinstance(leaf, torch.Tensor)]
        flowing = [result for result in results if result.requires_grad]
        gradients = []
        if flowing:
            ones = [torch.ones_like(result) for result in flowing]
            gradients = torch.autograd.grad(flowing, leaves, ones, allow_unused=True)
    return results, [gradient for gradient in gradients if gradient is not None]


def everyone(value):
    flag = torch.tensor(int(value))
    dist.all_reduce(flag, dist.ReduceOp.MIN)
    return bool(flag)


def whole(tensor):
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def are_same(got, wanted):
    if got.shape != wanted.shape or got.dtype != wanted.dtype:
        return False
    if wanted.dtype.is_floating_point or wanted.dtype.is_complex:
        return torch.allclose(got, wanted, rtol=1e-4, atol=1e-4, equal_nan=True)
    return torch.equal(got, wanted)


def check_same(c, what, got, wanted):
    c.true(what, type(got) is type(wanted), f"{type(got)} instead of {type(wanted)}")
    if isinstance(wanted, DTensor):
        c.true(what, got.placements == wanted.placements, f"{got.placements} instead of {wanted.placements}")
    got, wanted = whole(got), whole(wanted)
    c.true(what, are_same(got, wanted), f"{got} instead of {wanted}")


def is_right(op, way, own):
    """Whether PyTorch alone comes to what one process computes."""
    right = called(op, None, way, contextlib.nullcontext())
    return all(
        len(got) == len(wanted) and all(are_same(whole(one), other) for one, other in zip(got, wanted))
        for got, wanted in zip(own, right)
    )


def on_rank(rank, world, names):
    """Of each call, (name, "same" | "refused" | "wrong" with PyTorch alone, plans taken), and the failures."""
    import reshard
    from reshard.torch import inside_dtensor

    warnings.simplefilter("ignore")
    moved = []
    way_of = inside_dtensor._way

    def counting(*specs):
        found = way_of(*specs)
        moved.extend([1] * (found[0] is not None))
        return found

    inside_dtensor._way = counting
    inside_dtensor.own_way = lambda *_: None  # as if DTensor had no way
    c = Checks(rank, world)
    mesh = DeviceMesh("cpu", torch.arange(world).reshape((2, 2) if world == 4 else (world,)))
    known, outcomes = database(), []
    for name in names:
        for way in range(WAYS):
            gloo.note(f"{name} {way}")
            own = None
            try:
                own = called(known[name], mesh, way, contextlib.nullcontext())
            except Exception as error:
                if any(word in str(error) for word in ("Connection closed", "Timed out")):
                    raise  # somebody else failed, and this group with it
            if not everyone(own is not None):
                outcomes.append((name, "refused", 0))
                continue
            moved.clear()
            what, ours, refused = f"{name} {way}", None, ""
            try:
                ours = called(known[name], mesh, way, reshard.dtensor_redistribution())
            except Exception as error:
                refused = f"{type(error).__name__}: {error}"
            if not everyone(ours is not None):
                # A spec that does not say what is there: the error of a plan, and a wrong result without one.
                wrong = not everyone(is_right(known[name], way, own))
                known_by = ("its layout gives", "holds no elements")
                c.true(what, wrong and (ours or any(words in refused for words in known_by)), refused)
                outcomes.append((name, "wrong", len(moved)))
                continue
            outcomes.append((name, "same", len(moved)))
            for kind, got, wanted in zip(("results", "gradients"), ours, own):
                c.true(f"{what}: {kind}", len(got) == len(wanted), f"{len(got)} instead of {len(wanted)}")
                for pair in zip(got, wanted):
                    check_same(c, f"{what}: {kind}", *pair)
    return outcomes, c.count, c.failures


def sample_of(known):
    names = [name for name in known if name not in UNINITIALIZED]
    return sorted({*names[::EVERY], *(name for name in ALWAYS if name in known)})


class DTensorOperatorsTest(ChecksTest):
    def test_sample(self):
        names = sample_of(database())
        for world in (2, 4):
            with self.subTest(world=world):
                ranks = gloo.values(gloo.run_ranks(world, on_rank, names, timeout=100))
                ChecksTest.checks += sum(count for _, count, _ in ranks)
                failures = sorted(text for _, _, failures in ranks for _, text in failures)
                self.assertFalse(failures, "\n".join(failures[:12]))
                summed_up(world, [ranks[0][0]])


def summed_up(world, parts):
    calls = [call for part in parts for call in part]

    def names(of):
        return [name for name, outcome, _ in calls if outcome == of]

    planned = [name for name, _, plans in calls if plans]
    print(
        f"{world} ranks: {len({name for name, *_ in calls})} operators, {len(calls)} calls: "
        f"{len(names('same'))} the same, {len(names('refused'))} that DTensor refuses, {len(names('wrong'))} of which "
        f"its result is wrong ({' '.join(sorted(set(names('wrong'))))}); "
        f"{sum(plans for *_, plans in calls)} redistributions by plans, "
        f"in {len(planned)} calls of {len(set(planned))} operators",
        flush=True,
    )


def run_all():
    """The whole database, in parts, so that one that hangs costs only its part."""
    bad = 0
    known = database()
    for world in (2, 4):
        names, parts, hanging = sorted(known.keys() - UNINITIALIZED), [], []
        while names:
            part, names = names[:40], names[40:]
            outcomes = gloo.run_ranks(world, on_rank, part, timeout=200, group_timeout=10)
            if all(outcome.ok for outcome in outcomes):
                parts.append(outcomes[0].value[0])
                failures = sorted(text for outcome in outcomes for _, text in outcome.value[2])
                bad += len(failures)
                for text in failures:
                    print(text, flush=True)
                continue
            notes = [outcome.note.split()[:1] for outcome in outcomes if not outcome.ok]
            at = min((part.index(name) for [name] in filter(None, notes) if name in part), default=0)
            print(f"{world} ranks: {part[at]}: {[str(o)[-200:] for o in outcomes if not o.ok]}", flush=True)
            hanging.append(part[at])
            names = [*part[:at], *part[at + 1 :], *names]
        summed_up(world, parts)
        print(f"{world} ranks: {len(hanging)} with which a rank waits in vain: {' '.join(hanging)}", flush=True)
    return bad


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # DTensor on its own fallbacks
    if "--all" in sys.argv:
        gloo.load_library()
        sys.exit(1 if run_all() else 0)
    main("dtensor_operators")
