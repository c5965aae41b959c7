#!/usr/bin/env python3
"""When DTensor follows reshard's plans, what that saves, and that it comes and goes as it says."""

import contextlib
import itertools
import logging
import random
import unittest

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor import _api, _dispatch, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta
from torch.distributed.tensor.debug import CommDebugMode

import gloo
from checks import ChecksTest, main

R, S0, S1 = Replicate(), Shard(0), Shard(1)


def line(c):
    return DeviceMesh("cpu", torch.arange(c.world))


def grid(**options):
    return DeviceMesh("cpu", torch.arange(4).reshape(2, 2), **options)


def counted(function):
    """What it returns, the collectives that DTensor ran, and the bytes that reshard received, 0 if it moved nothing."""
    import reshard

    before = len(reshard.recent_operations())
    with CommDebugMode() as mode:
        result = function()
    ran = len(reshard.recent_operations()) > before
    return result, mode.get_total_counts(), reshard.last_timings()["received_bytes"] if ran else 0


def check_bytes(c):
    """DTensor gathers in host memory what only changes its dimension; a plan moves what has to move."""
    import reshard

    whole = torch.arange(64.0 * 64).reshape(64, 64)
    x = distribute_tensor(whole, line(c), [S0])
    mine = 64 * 64 * 4 // c.world
    y, collectives, received = counted(lambda: x.redistribute(placements=[S1]))
    c.true("without", (collectives, received) == (1, 0), f"{collectives} collectives, {received} bytes")
    with reshard.dtensor_redistribution():
        z, collectives, received = counted(lambda: x.redistribute(placements=[S1]))
        c.equal("S(0) -> S(1)", z.to_local(), y.to_local())
        wanted = (0, mine * (c.world - 1) // c.world)
        c.true("S(0) -> S(1)", (collectives, received) == wanted, f"{collectives}, {received} instead of {wanted}")
        _, collectives, received = counted(lambda: x.full_tensor())
        c.true("one gather stays DTensor's", (collectives, received) == (1, 0), f"{collectives}, {received}")
        # An operator that cannot work on its inputs as they are.
        other = distribute_tensor(whole, line(c), [S1])
        total, collectives, received = counted(lambda: x + other)
        c.true("an addition", (collectives, received) == wanted, f"{collectives}, {received} instead of {wanted}")
        c.equal("an addition", total.full_tensor(), whole + whole)
        _, collectives, received = counted(lambda: x.redistribute(placements=[S1], async_op=True))
        c.true("async_op is DTensor's", (collectives, received) == (1, 0), f"{collectives}, {received}")
        pending = x.redistribute(placements=[R], async_op=True)
        c.equal("of one in flight", pending.redistribute(placements=[S1]).to_local(), y.to_local())
        number = distribute_tensor(torch.ones(8), line(c), [S0]).sum()
        _, collectives, received = counted(lambda: number.full_tensor())
        c.true("a sum", (collectives, received) == (1, 0), f"{collectives}, {received}")
    _, collectives, _ = counted(lambda: x.redistribute(placements=[S1]))
    c.true("afterwards", collectives == 1, f"{collectives}")


def check_fewer_collectives(c):
    """As many bytes, but one exchange instead of two."""
    import reshard

    x = distribute_tensor(torch.arange(64.0).reshape(8, 8), grid(), [S0, S1])
    with reshard.dtensor_redistribution():
        full, collectives, received = counted(lambda: x.full_tensor())
    c.equal("both gathered", full, torch.arange(64.0).reshape(8, 8))
    c.true("both gathered", (collectives, received) == (0, 64 * 3), f"{collectives}, {received}")


def check_flattened(c):
    """Where DTensor loses rows: uneven shards of shards, once the mesh has been flattened (PyTorch issue 194457)."""
    import reshard

    mesh = grid(mesh_dim_names=("a", "b"))
    mesh["a", "b"]._flatten()
    for rows, cols in ((5, 3), (6, 6), (7, 5), (9, 4)):
        whole = torch.arange(1.0 + rows * cols)[1:].reshape(rows, cols)
        for before, after in itertools.product(itertools.product((R, S0, S1), repeat=2), repeat=2):
            x = distribute_tensor(whole, mesh, before)
            wanted = distribute_tensor(whole, mesh, after).to_local()
            with reshard.dtensor_redistribution():
                y = x.redistribute(placements=after)
            c.equal(f"{rows}x{cols} {before} -> {after}", y.to_local(), wanted)


FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int8, torch.int64, torch.bool, torch.complex64)


def check_random_pairs(c, seed):
    """Of tensors of any dtype and strides, partial in any way: what DTensor gives, or more where it refuses."""
    import reshard
    from reshard.torch import inside_dtensor

    rng = random.Random(seed)
    mesh = grid()
    for number in range(120):
        torch.manual_seed(seed + number)  # the same tensor on all ranks, but for partial ones
        shape = [rng.choice((1, 2, 3, 5, 8)) for _ in range(rng.randint(1, 3))]
        dtype = rng.choice(DTYPES)
        partial = Partial(rng.choice(("sum", "avg", "min", "max", "product")))
        choices = [R] + [Shard(dim) for dim in range(len(shape))]
        source, target = (tuple(rng.choices(choices + more, k=2)) for more in ([partial], []))
        whole = (torch.rand(shape) * 8).to(dtype)
        start = [R if placement.is_partial() else placement for placement in source]
        local = distribute_tensor(whole, mesh, start, src_data_rank=None).to_local()
        if start != list(source):
            local = local + torch.tensor(c.rank).to(dtype)
        if local.dim() > 1 and rng.random() < 0.5:
            local = local.transpose(0, 1).contiguous().transpose(0, 1)
        x = DTensor.from_local(local, mesh, source, run_check=False, shape=whole.shape, stride=whole.stride())
        what = f"seed {seed}, {number}: {dtype} {shape} {source} -> {target}"
        own = None
        with contextlib.suppress(RuntimeError, NotImplementedError, ValueError):
            own = x.redistribute(placements=target)
        with reshard.dtensor_redistribution():
            ours = c.run(what, lambda: x.redistribute(placements=target)) if own is not None else None
        if own is None or ours is None:
            continue
        c.true(what, ours._spec == own._spec, f"{ours._spec} instead of {own._spec}")
        got, wanted = ours.to_local(), own.to_local()
        tolerance = 0.05 if dtype in (torch.bfloat16, torch.float16) else 1e-5
        same = got.shape == wanted.shape and got.dtype == wanted.dtype
        c.true(what, same and torch.allclose(got, wanted, rtol=tolerance, atol=tolerance), f"{got} instead of {wanted}")
    taken = [way is not None for way in inside_dtensor._ways[mesh].values()]
    c.true("of both kinds", 0 < sum(taken) < len(taken), f"{sum(taken)} of {len(taken)}")


def check_what_stays(c):
    import reshard

    torch.manual_seed(3)
    whole = torch.randn(8, 8)
    with reshard.dtensor_redistribution():
        norm = torch.linalg.vector_norm(distribute_tensor(whole, line(c), [S0]))
        c.true("a norm", torch.allclose(norm.full_tensor(), torch.linalg.vector_norm(whole)), norm)
        table = distribute_tensor(torch.arange(32.0).reshape(16, 2), line(c), [S0])
        index = distribute_tensor(torch.tensor([1, 15, 7, 0]), line(c), [R])
        found = F.embedding(index, table).redistribute(placements=[R])
        c.equal("an embedding", found.to_local(), torch.arange(32.0).reshape(16, 2)[[1, 15, 7, 0]])
        half = DeviceMesh("cpu", [1, 3])
        x = distribute_tensor(whole, half, [S0])
        y = x.redistribute(placements=[S1])
        c.true("a mesh of others", y.to_local().numel() == (32 if c.rank in (1, 3) else 0), y.to_local().shape)
        if c.rank in (1, 3):
            c.equal("a part of the job", y.to_local(), whole.chunk(2, 1)[c.rank // 2])
        mesh = line(c)
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
            fake = DTensor.from_local(torch.empty(2, 8), mesh, [S0], run_check=False)
            fake = c.run("fake tensors", lambda: fake.redistribute(placements=[S1]))
        c.true("fake tensors", fake is not None and tuple(fake.to_local().shape) == (8, 2), fake)
        c.raises("the other mesh", lambda: x.redistribute(line(c), [S1]), "cross device mesh", kind=NotImplementedError)


def check_compiled(c):
    """A compiled function keeps what PyTorch traces; around it plans are taken."""
    import reshard

    x = distribute_tensor(torch.arange(64.0).reshape(8, 8), line(c), [S0])
    compiled = torch.compile(lambda x: (x + 1).redistribute(placements=[S1]) * 2, backend="aot_eager", fullgraph=True)
    with reshard.dtensor_redistribution():
        y = c.run("compiled", lambda: compiled(x))
    c.equal("compiled", y.full_tensor(), (torch.arange(64.0).reshape(8, 8) + 1) * 2)


def check_nesting(c):
    import reshard

    own = _redistribute.redistribute_local_tensor
    where = (_redistribute, _api, _dispatch)

    def replaced():
        return [module.redistribute_local_tensor is not own for module in where]

    with reshard.dtensor_redistribution(), reshard.dtensor_redistribution():
        c.true("within", all(replaced()))
    c.true("after both", not any(replaced()))
    reshard.install()
    reshard.install()
    with contextlib.suppress(KeyError), reshard.dtensor_redistribution():
        raise KeyError
    reshard.uninstall()
    c.true("installed once more", all(replaced()))
    reshard.uninstall()
    c.true("uninstalled", not any(replaced()))
    c.raises("uninstalled once too often", reshard.uninstall, "install", kind=RuntimeError)


def check_agreement(c):
    """Every rank decides the same, also of uneven tensors."""
    from reshard.torch import inside_dtensor

    rng = random.Random(7)
    mesh = grid(mesh_dim_names=("a", "b"))
    mesh["a", "b"]._flatten()
    decisions = []
    for _ in range(150):
        shape = torch.Size(rng.choice((0, 1, 3, 5, 8)) for _ in range(rng.randint(1, 3)))
        meta = TensorMeta(shape, torch.empty(shape, device="meta").stride(), rng.choice((torch.float32, torch.int8)))
        choices = [R, Partial()] + [Shard(dim) for dim in range(len(shape))]
        source, target = rng.choices(choices, k=2), rng.choices([R, *choices[2:]], k=2)
        specs = [DTensorSpec(mesh, tuple(placements), meta) for placements in (source, target)]
        decisions.append(inside_dtensor._decide(*specs) is not None)
    everyone = [None] * c.world
    dist.all_gather_object(everyone, decisions)
    c.true("decisions", all(those == decisions for those in everyone))
    c.true("of both kinds", 0 < sum(decisions) < len(decisions), f"{sum(decisions)} of {len(decisions)}")


def check_gradients_of_operators(c):
    """What an operator did to its inputs is undone in the backward pass."""
    import reshard

    x = distribute_tensor(torch.arange(16.0).reshape(4, 4), line(c), [S0])
    with reshard.dtensor_redistribution():
        x = x.detach().requires_grad_()
        y = (x.redistribute(placements=[S1]) ** 3).sum()
        (gradient,) = torch.autograd.grad(y, x)
    c.equal("gradient", gradient.full_tensor(), 3 * torch.arange(16.0).reshape(4, 4) ** 2)


class InsideDTensorTest(ChecksTest):
    def test_what_it_saves(self):
        self.on_ranks(4, [check_bytes, check_fewer_collectives, check_flattened, check_agreement], timeout=100)

    def test_random_pairs(self):
        self.on_ranks(4, [check_random_pairs], gloo.seed(), timeout=100)

    def test_what_stays(self):
        self.on_ranks(4, [check_what_stays, check_nesting, check_gradients_of_operators], timeout=100)
        self.on_ranks(2, [check_compiled], timeout=100)


class PartsOfPyTorchTest(unittest.TestCase):
    def test_all_are_there(self):
        from reshard.torch import pytorch_hooks

        pytorch_hooks.require()

    def test_one_that_is_not(self):
        import reshard
        from reshard.torch import pytorch_hooks
        from reshard.torch.pytorch_hooks import Part

        missing = (
            Part(_redistribute.__name__, "gone"),
            Part(_redistribute.__name__, "redistribute_local_tensor", ("local_tensor", "other")),
            Part("torch.distributed.tensor._no_such_module", "also_gone"),
        )
        own, parts = _redistribute.redistribute_local_tensor, pytorch_hooks.PARTS
        pytorch_hooks.require.__defaults__ = (missing,)
        try:
            for call in (reshard.install, reshard.dtensor_redistribution().__enter__):
                with self.assertRaises(RuntimeError) as raised:
                    call()
                text = str(raised.exception)
                for word in ("_redistribute.gone", "parameter other", "also_gone", "reshard.redistribute"):
                    self.assertIn(word, text)
                self.assertIn(torch.__version__, text)
                self.assertNotIn("\n", text)
                self.assertIs(_redistribute.redistribute_local_tensor, own)
        finally:
            pytorch_hooks.require.__defaults__ = (parts,)
        with self.assertRaises(RuntimeError):
            reshard.uninstall()


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # DTensor on its own fallbacks
    main("inside_dtensor")
