#!/usr/bin/env python3
"""Meta kernels, FakeTensor and torch.compile (aot_eager): what is traced gives the same as what runs, on Gloo ranks."""

import torch
import torch._dynamo
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode

from checks import ChecksTest, main

OPS = torch.ops.reshard
WORLDS = (2, 3)
OPCHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_static")


def numbers(shape, rank, dtype=torch.float32):
    return (torch.arange(torch.Size(shape).numel()).reshape(shape) + 100 * rank).to(dtype)


class Traced:
    """An operation with its arguments; differentiable where `gradient`."""

    def __init__(self, name, overload, arguments, gradient=True):
        self.name, self.overload, self.arguments, self.gradient = name, overload, arguments, gradient

    def __call__(self, x):
        return self.overload(x, *self.arguments)


def cases(c):
    """(operation, its first argument)"""
    p, g = c.world, c.group
    mesh = f"{{X:{p}}}"
    rows, columns = f"[<X>{2 * p + 1}, 6]", f"[{2 * p + 1}, <X>6]"  # the last rank's rows are fewer
    local_rows = [min(3, 2 * p + 1 - 3 * c.rank) if p == 2 else 3 if c.rank < 2 else 1, 6]
    x = numbers(local_rows, c.rank)
    return [
        (Traced("redistribute", OPS.redistribute.default, (mesh, rows, columns, g)), x),
        (Traced("redistribute to replicas", OPS.redistribute.default, (mesh, rows, f"[{2 * p + 1}, 6]", g)), x),
        (
            Traced(
                "redistribute across",
                OPS.redistribute.default,
                (mesh, rows, "[<Y>7, 6]".replace("7", str(2 * p + 1)), g, "{Y:2}"),
            ),
            x,
        ),
        (
            Traced("redistribute a sum", OPS.redistribute.default, (mesh, "[4, 3] sum<X>", "[<X>4, 3]", g)),
            numbers([4, 3], c.rank),
        ),
        (
            Traced("redistribute_batch", OPS.redistribute_batch.default, (mesh, [rows, rows], [columns, rows], g)),
            [x, x + 1],
        ),
        (
            Traced(
                "redistribute_batch across",
                OPS.redistribute_batch.meshes,
                ([mesh, mesh], [rows, rows], [f"[<Y>{2 * p + 1}, 6]", columns], g, ["{Y:2}", mesh], 1 << 20),
            ),
            [x, x + 1],
        ),
        (
            Traced("all_to_all_single", OPS.all_to_all_single.default, (g, "split_to_full", True)),
            numbers([1, 2 * p, 4, 3], c.rank),
        ),
        (
            Traced("all_to_all_single back", OPS.all_to_all_single.default, (g, "full_to_split", False)),
            numbers([1, 2, 4 * p], c.rank),
        ),
        (Traced("all_to_all_4d", OPS.all_to_all_4d.default, (2, 1, g)), numbers([2, 3, 2 * p, 4], c.rank)),
        (Traced("all_to_all_4d back", OPS.all_to_all_4d.default, (1, 2, g)), numbers([2, 3 * p, 2, 4], c.rank)),
        (Traced("all_gather", OPS.all_gather.default, (-1, g)), numbers([2, 3], c.rank)),
        (
            Traced("all_gather_with_unpad", OPS.all_gather_with_unpad.default, (3 * p - 1, 1, g)),
            numbers([2, 3], c.rank),
        ),
        (Traced("shard", OPS.shard.default, (1, g)), numbers([2, 2 * p + 1], 0)),
        (Traced("all_reduce sum", OPS.all_reduce.default, ("sum", g)), numbers([2, 3], c.rank)),
        (Traced("all_reduce max", OPS.all_reduce.default, ("max", g), gradient=False), numbers([2, 3], c.rank)),
        (
            Traced("exchange_overlapping_regions", OPS.exchange_overlapping_regions.default, (2, g)),
            numbers([1, 2, 8], c.rank),
        ),
    ]


def as_list(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


def on_tensors(function, x):
    return [function(t) for t in x] if isinstance(x, list) else function(x)


def check_same_form(c, what, traced, eager):
    """Shapes, strides and dtypes; plain numbers as such."""
    for t, e in zip(as_list(traced), as_list(eager), strict=True):
        if isinstance(e, torch.Tensor):
            form = [(tuple(v.shape), v.dtype, v.stride() if v.numel() else None) for v in (t, e)]
            c.true(what, form[0] == form[1], f"{form[0]} instead of {form[1]}")
        else:
            c.true(what, int(t) == e, f"{t} instead of {e}")


def check_fake_and_meta(c):
    for op, x in cases(c):
        eager = op(x)
        meta = c.run(f"{op.name}: meta", lambda: op(on_tensors(lambda t: torch.empty_like(t, device="meta"), x)))
        if meta is not None:
            check_same_form(c, f"{op.name}: meta", meta, eager)
            c.true(
                f"{op.name}: on meta",
                all(t.device.type == "meta" for t in as_list(meta) if isinstance(t, torch.Tensor)),
            )
        if c.rank == 0:  # alone: nothing is sent
            with FakeTensorMode() as mode:
                fake = c.run(f"{op.name}: fake", lambda: op(on_tensors(mode.from_tensor, x)))
            if fake is not None:
                check_same_form(c, f"{op.name}: fake", fake, eager)
        dist.barrier()


def differentiable(results):
    return [r for r in as_list(results) if isinstance(r, torch.Tensor)]


def check_compile(c):
    for op, x in cases(c):
        torch._dynamo.reset()

        def function(x, op=op):
            return op(on_tensors(lambda t: t * 2, x))

        compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
        eager = as_list(function(x))
        got = c.run(f"{op.name}: compiled", lambda: compiled(x))
        for g, e in zip(as_list(got) if got is not None else [], eager):
            if isinstance(e, torch.Tensor):
                c.equal(f"{op.name}: compiled", g, e)
            else:
                c.true(f"{op.name}: compiled", g == e, f"{g} instead of {e}")
        if op.gradient and got is not None:
            check_compiled_gradient(c, op, function, compiled, x)


def check_compiled_gradient(c, op, function, compiled, x):
    grads = []
    for run in (function, compiled):
        leaves = on_tensors(lambda t: t.clone().double().requires_grad_(), x)
        results = c.run(f"{op.name}: with gradient", lambda: run(leaves))
        if results is None:
            return
        loss = sum((r * r).sum() for r in differentiable(results))
        grads.append(c.run(f"{op.name}: backward", lambda: torch.autograd.grad(loss, leaves)))
    for eager, got in zip(grads[0] or [], grads[1] or []):
        c.equal(f"{op.name}: compiled gradient", got, eager)


def check_another_shape(c):
    """The second shape makes the compiler try symbolic sizes."""
    torch._dynamo.reset()
    p, g = c.world, c.group

    def function(x):
        y = OPS.all_to_all_4d(x, 2, 1, g)
        return OPS.all_gather(OPS.all_to_all_4d(y + 1, 1, 2, g), 1, g)

    compiled = torch.compile(function, backend="aot_eager")
    for s in (3, 4, 5):
        x = numbers([2, s, 2 * p, 4], c.rank)
        c.equal(f"compiled for {s}", c.run(f"compiled for {s}", lambda x=x: compiled(x)), function(x))


def check_all_to_all_v(c):
    p = c.world
    metadata = torch.tensor([[2] * p, [2 * i for i in range(p)], [0] * p])
    src = torch.arange(2 * p) + 100.0 * c.rank
    wanted = torch.cat([torch.arange(2) + 2 * c.rank + 100.0 * q for q in range(p)])

    def function(src, dst, metadata):
        OPS.all_to_all_v(src, dst, metadata, False, False, c.group)
        return dst + 1, metadata[2] * 1

    torch._dynamo.reset()
    for name, run in (("eager", function), ("compiled", torch.compile(function, backend="aot_eager", fullgraph=True))):
        dst, rows = torch.zeros(2 * p), metadata.clone()
        got = c.run(f"all_to_all_v {name}", lambda: run(src, dst, rows))
        if got is not None:
            c.equal(f"all_to_all_v {name}", got[0], wanted + 1)
            c.equal(f"all_to_all_v {name}: counts", got[1], torch.full([p], 2))
            c.equal(f"all_to_all_v {name}: dst", dst, wanted)
            c.equal(f"all_to_all_v {name}: metadata", rows[2], torch.full([p], 2))
    meta = [t.to("meta") for t in (src, torch.zeros(2 * p), metadata)]
    c.run("all_to_all_v meta", lambda: OPS.all_to_all_v(*meta, False, False, c.group))
    c.run(
        "all_to_all_v opcheck",
        lambda: torch.library.opcheck(
            OPS.all_to_all_v.default,
            (src, torch.zeros(2 * p), metadata, False, False, c.group),
            test_utils=("test_schema", "test_faketensor"),
        ),
    )


def check_opcheck(c):
    """PyTorch's own judge of registrations. All ranks run the same calls."""
    for op, x in cases(c):
        x = on_tensors(lambda t: t.double().requires_grad_(), x) if op.gradient else x
        c.run(
            f"{op.name}: opcheck", lambda: torch.library.opcheck(op.overload, (x, *op.arguments), test_utils=OPCHECKS)
        )


class TracingTest(ChecksTest):
    def test_tracing(self):
        for world in WORLDS:
            for function in (
                check_fake_and_meta,
                check_compile,
                check_another_shape,
                check_all_to_all_v,
                check_opcheck,
            ):
                with self.subTest(world=world, function=function.__name__):
                    self.on_ranks(world, [function], timeout=90)


if __name__ == "__main__":
    main("tracing")
