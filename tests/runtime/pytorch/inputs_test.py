#!/usr/bin/env python3
"""Tensors as programs have them: lazy views, expanded ones, parameters, inference mode, many at once, large ones."""

import os
import unittest

import torch

from checks import ChecksTest, main
from problems import same_bits

OPS = torch.ops.reshard
WORLDS = (2, 4)


def there_and_back(c, x, columns):
    """x is this rank's row; returns the transposed layout's part and the row again."""
    p = c.world
    mesh, rows, cols = f"{{X:{p}}}", f"[<X>{p}, {columns}]", f"[{p}, <X>{columns}]"
    y = OPS.redistribute(x, mesh, rows, cols, c.group)
    return y, OPS.redistribute(y, mesh, cols, rows, c.group)


def values(c, columns, dtype):
    """[row of rank 0, row of rank 1, ...]"""
    whole = torch.arange(c.world * columns, dtype=torch.float64).reshape(c.world, columns)
    return (whole * (1 + 2j) if dtype.is_complex else whole).to(dtype)


def check_one(c, what, x, wanted_rows):
    columns = wanted_rows.shape[1]
    got = c.run(what, lambda: there_and_back(c, x, columns))
    if got is not None:
        m = -(-columns // c.world)
        c.equal(what, got[0], wanted_rows[:, c.rank * m : (c.rank + 1) * m].resolve_conj())
        c.equal(f"{what} and back", got[1], wanted_rows[c.rank : c.rank + 1].resolve_conj())
        c.true(f"{what}: not a lazy view", not got[0].is_conj() and not got[0].is_neg())


def check_views(c):
    n = 2 * c.world
    for dtype in (torch.complex64, torch.complex128):
        whole = values(c, n, dtype)
        check_one(c, f"conj {dtype}", whole[c.rank : c.rank + 1].conj(), whole.conj())
        check_one(c, f"imag of conj {dtype}", whole[c.rank : c.rank + 1].conj().imag, whole.conj().imag.resolve_neg())
        check_one(c, f"real {dtype}", whole[c.rank : c.rank + 1].real, whole.real.clone())
        check_one(
            c, f"conj of transposed {dtype}", whole.t().contiguous().t()[c.rank : c.rank + 1].conj(), whole.conj()
        )
        got = c.run(f"sum of conj {dtype}", lambda: OPS.all_reduce(whole[:1].conj(), "sum", c.group))
        c.equal(f"sum of conj {dtype}", got, (whole[:1] * c.world).conj().resolve_conj())
    whole = values(c, n, torch.float32)
    check_one(c, "expanded", torch.tensor([[7.0]]).expand(1, n), torch.full((c.world, n), 7.0))
    check_one(c, "reversed by flip", whole.flip(1)[c.rank : c.rank + 1], whole.flip(1))
    check_one(c, "every second", torch.stack([whole, whole], 2)[:, :, 1][c.rank : c.rank + 1], whole)
    check_one(
        c,
        "as_strided, overlapping",
        torch.arange(n + 1.0).as_strided((1, n), (1, 1), 1),
        torch.arange(1.0, n + 1).repeat(c.world, 1),
    )
    channels_last = (
        torch.arange(16.0 * c.world).reshape(1, 4 * c.world, 2, 2).contiguous(memory_format=torch.channels_last)
    )
    got = c.run("channels_last", lambda: OPS.all_to_all_4d(channels_last, 1, 2, c.group))
    c.equal("channels_last", got, torch.cat([channels_last[:, 4 * c.rank : 4 * c.rank + 4]] * c.world, 2).contiguous())


def check_modes(c):
    n = 2 * c.world
    whole = values(c, n, torch.float32)
    row = whole[c.rank : c.rank + 1]
    with torch.inference_mode():
        check_one(c, "inference mode", row.clone(), whole)
    inside = torch.inference_mode()(lambda: row.clone())()
    check_one(c, "an inference tensor", inside, whole)
    check_one(c, "a Parameter", torch.nn.Parameter(row.clone()), whole)
    y, _ = there_and_back(c, torch.nn.Parameter(row.clone()), n)
    c.true("requires_grad follows", y.requires_grad and not y.is_leaf)
    with torch.no_grad():
        y, _ = there_and_back(c, torch.nn.Parameter(row.clone()), n)
    c.true("no_grad", not y.requires_grad)
    integers = values(c, n, torch.int64)
    check_one(c, "integers", integers[c.rank : c.rank + 1], integers)
    y, _ = there_and_back(c, row.clone().requires_grad_(), n)
    y.add_(1)  # results may be written to, also under autograd
    c.equal("written to", y.detach(), whole[:, 2 * c.rank : 2 * c.rank + 2] + 1)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        check_one(c, "autocast", row.clone(), whole)


def check_refused(c):
    n = 2 * c.world
    row = torch.ones(1, n)
    c.raises("sparse", lambda: there_and_back(c, row.to_sparse(), n))
    c.raises("quantized", lambda: there_and_back(c, torch.quantize_per_tensor(row, 1.0, 0, torch.qint8), n))
    c.raises("functorch", lambda: torch.func.grad(lambda x: there_and_back(c, x, n)[1].sum())(row), "functorch")
    c.raises("an unknown group", lambda: OPS.all_reduce(row, "sum", "no such group"))
    check_one(c, "afterwards", row, torch.ones(c.world, n))


def check_many(c):
    """A thousand small tensors of all kinds in one batch, twice."""
    p = c.world
    dtypes = (torch.float32, torch.bfloat16, torch.int8, torch.float64, torch.bool)
    mesh = f"{{X:{p}}}"
    sources, targets, inputs, wanted = [], [], [], []
    for i in range(1000):
        n = i % 7
        whole = (torch.arange(p * n) + i).remainder(100).reshape(p, n).to(dtypes[i % 5])
        m = -(-n // p)
        sources.append(f"[<X>{p}, {n}]")
        inputs.append(whole[c.rank : c.rank + 1])
        if i % 3:
            targets.append(f"[{p}, <X>{n}]")
            wanted.append(whole[:, min(n, c.rank * m) : min(n, (c.rank + 1) * m)])
        else:
            targets.append(f"[{p}, {n}]")
            wanted.append(whole)
    for time in ("first", "second"):
        got = c.run(
            f"1000 tensors, {time} time", lambda: OPS.redistribute_batch(inputs, mesh, sources, targets, c.group)
        )
        wrong = [i for i, (g, w) in enumerate(zip(got or [], wanted)) if not same_bits(g, w)]
        c.true(f"1000 tensors, {time} time", got is not None and len(got) == 1000 and not wrong, f"wrong: {wrong[:10]}")
        storages = {g.untyped_storage().data_ptr() for g in got or [] if g.numel()}
        c.true("each has its own memory", len(storages) == sum(g.numel() > 0 for g in got or []), len(storages))


def check_large(c, megabytes):
    """Above any bucket; checked without a second copy of everything."""
    p = c.world
    n = megabytes * (1 << 20) // 4 // p * p
    row = torch.arange(n, dtype=torch.int32) + c.rank
    y = c.run(
        f"{megabytes} MiB a rank",
        lambda: OPS.redistribute(row[None], f"{{X:{p}}}", f"[<X>{p}, {n}]", f"[{p}, <X>{n}]", c.group),
    )
    m = n // p
    for q in range(p):
        part = torch.arange(c.rank * m, (c.rank + 1) * m, dtype=torch.int32) + q
        c.true(f"{megabytes} MiB a rank, row {q}", y is not None and torch.equal(y[q], part))
    tensors = [row[None, i * m : (i + 1) * m] for i in range(p)]
    ys = c.run(
        "a batch of large ones",
        lambda: OPS.redistribute_batch(tensors, f"{{X:{p}}}", [f"[<X>{p}, {m}]"] * p, [f"[{p}, {m}]"] * p, c.group),
    )
    for i, y in enumerate(ys or []):
        part = torch.arange(i * m, (i + 1) * m, dtype=torch.int32)
        c.true(f"a batch of large ones, {i}", all(torch.equal(y[q], part + q) for q in range(p)))


def check_beyond_32_bits(c):
    """More than 2^31 bytes and elements from one rank to another."""
    n = (1 << 31) + 4096
    x = torch.empty(0, dtype=torch.int8)
    if c.rank == 0:
        x = torch.ones(n, dtype=torch.int8)
        x[-1] = 100
    y = c.run("2 GiB", lambda: OPS.redistribute(x, "{}", f"[{n}]", f"[{n}]", c.group, "{}@1"))
    if y is not None and c.rank == 1:
        c.true(
            "2 GiB",
            y.numel() == n and int(y[-1]) == 100 and int(y.sum(dtype=torch.int64)) == n - 1 + 100,
            [y.numel(), y[-1]],
        )


class InputsTest(ChecksTest):
    def test_inputs(self):
        for world in WORLDS:
            for function in (check_views, check_modes, check_refused, check_many):
                with self.subTest(world=world, function=function.__name__):
                    self.on_ranks(world, [function])

    def test_large(self):
        for world, megabytes in ((2, 100), (4, 70)):
            with self.subTest(world=world):
                self.on_ranks(world, [check_large], megabytes)

    @unittest.skipUnless(os.environ.get("RESHARD_FULL_SIZE") == "1", "RESHARD_FULL_SIZE=1 takes 8 GiB of memory")
    def test_beyond_32_bits(self):
        self.on_ranks(2, [check_beyond_32_bits], timeout=200, env={"RESHARD_TIMEOUT_MS": "150000"})


if __name__ == "__main__":
    main("inputs")
