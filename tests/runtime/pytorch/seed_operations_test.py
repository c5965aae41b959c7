#!/usr/bin/env python3
"""The sequence- and context-parallel operations against their closed forms, and their errors, on Gloo ranks."""

import itertools

import torch

from checks import ChecksTest, main

OPS = torch.ops.reshard
WORLDS = (1, 2, 3, 4)


def numbers(shape, rank, dtype=torch.float32):
    """Different on every rank and in every element."""
    count = 1
    for n in shape:
        count *= n
    return (torch.arange(count) + 1000 * rank).reshape(shape).to(dtype)


def on_all(c, shape, dtype=torch.float32):
    """The inputs of all ranks."""
    return [numbers(shape, p, dtype) for p in range(c.world)]


def strided(x):
    """The same values, not contiguous."""
    return torch.stack([x, x], -1)[..., 1]


# all_to_all_single: [B, D, l, *S] <-> [B, d, L, *S].


def split_to_full(inputs, r, zigzag):
    count = len(inputs)
    b, big_d, l = inputs[0].shape[:3]
    d, length = big_d // count, l * count
    out = torch.empty([b, d, length, *inputs[0].shape[3:]], dtype=inputs[0].dtype)
    q = length // (2 * count) if zigzag else l
    for s in range(length):
        if zigzag:
            k = s // q
            p, u = (k, s % q) if k < count else (2 * count - 1 - k, q + s % q)
        else:
            p, u = s // l, s % l
        out[:, :, s] = inputs[p][:, r * d : (r + 1) * d, u]
    return out


def full_to_split(inputs, r, zigzag):
    count = len(inputs)
    b, d, length = inputs[0].shape[:3]
    l = length // count
    out = torch.empty([b, count * d, l, *inputs[0].shape[3:]], dtype=inputs[0].dtype)
    q = length // (2 * count)
    for p, t in itertools.product(range(count), range(l)):
        if zigzag:
            k = r if t // q == 0 else 2 * count - 1 - r
            s = k * q + t % q
        else:
            s = r * l + t
        out[:, p * d : (p + 1) * d, t] = inputs[p][:, :, s]
    return out


def check_all_to_all_single(c):
    closed_forms = {"split_to_full": split_to_full, "full_to_split": full_to_split}
    inverse = {"split_to_full": "full_to_split", "full_to_split": "split_to_full"}
    for kind, zigzag, spatial, dtype in itertools.product(
        closed_forms, (True, False), ((), (3,), (2, 3)), (torch.float32, torch.bfloat16, torch.int64)
    ):
        split = kind == "split_to_full"
        shape = [2, 3 * c.world if split else 3, 4 if split else 4 * c.world, *spatial]
        inputs = on_all(c, shape, dtype)
        what = f"all_to_all_single {kind} zigzag={zigzag} {shape} {dtype}"
        x = strided(inputs[c.rank]) if spatial else inputs[c.rank]
        got = c.run(what, lambda: OPS.all_to_all_single(x, c.group, kind, zigzag))
        c.equal(what, got, closed_forms[kind](inputs, c.rank, zigzag))
        c.fresh(what, got, x)
        c.equal(f"{what}: input", x, numbers(shape, c.rank, dtype))
        back = c.run(what, lambda: OPS.all_to_all_single(got, c.group, inverse[kind], zigzag))
        c.equal(f"{what} and back", back, inputs[c.rank])


def check_all_to_all_single_sizes(c):
    for kind, zigzag in itertools.product(("split_to_full", "full_to_split"), (True, False)):
        what = f"all_to_all_single {kind} zigzag={zigzag}"
        split = kind == "split_to_full"
        for length in (0, 2 * c.world, 6 * c.world):
            shape = [1, c.world, length // c.world] if split else [1, 1, length]
            inputs = on_all(c, shape)
            wanted = (split_to_full if split else full_to_split)(inputs, c.rank, zigzag)
            c.equal(
                f"{what} L={length}",
                c.run(what, lambda: OPS.all_to_all_single(inputs[c.rank], c.group, kind, zigzag)),
                wanted,
            )
        shape = [1, c.world, 3] if split else [1, 1, 3 * c.world]  # L = 3P: fine without zigzag
        if not zigzag:
            inputs = on_all(c, shape)
            wanted = (split_to_full if split else full_to_split)(inputs, c.rank, False)
            c.equal(
                f"{what} l=3", c.run(what, lambda: OPS.all_to_all_single(inputs[c.rank], c.group, kind, False)), wanted
            )


def check_all_to_all_single_errors(c):
    p = c.world

    def call(shape, kind, zigzag):
        return lambda: OPS.all_to_all_single(torch.zeros(shape), c.group, kind, zigzag)

    sequence = f"Sequence length {3 * p} is not divisible by num_chunks {2 * p}"
    c.raises("zigzag, full_to_split, L=3P", call([1, 2, 3 * p], "full_to_split", True), sequence, kind=ValueError)
    c.raises("zigzag, split_to_full, l=3", call([1, p, 3], "split_to_full", True), sequence, kind=ValueError)
    c.raises("unknown type", call([1, p, 2 * p], "full_to_full", True), "Unknown type full_to_full", kind=ValueError)
    for shape in ([4, 4], [4], [1, p, 2 * p, 1, 1, 1]):
        c.raises(f"{len(shape)} dimensions", call(shape, "split_to_full", False), kind=ValueError)
    if p > 1:
        c.raises(
            "full_to_split, L % P",
            call([1, 2, 2 * p + 1], "full_to_split", False),
            "divisible",
            kind=(ValueError, RuntimeError),
        )
        c.raises(
            "split_to_full, D % P",
            call([1, p + 1, 2], "split_to_full", False),
            "divisible",
            kind=(ValueError, RuntimeError),
        )


# The sequence-parallel set.


def all_to_all_4d(inputs, r, scatter_dim):
    count = len(inputs)
    if scatter_dim == 2:
        h = inputs[0].shape[2] // count
        return torch.cat([x[:, :, r * h : (r + 1) * h] for x in inputs], 1)
    s = inputs[0].shape[1] // count
    return torch.cat([x[:, r * s : (r + 1) * s] for x in inputs], 2)


def check_all_to_all_4d(c):
    for scatter_dim, dtype in itertools.product((2, 1), (torch.float32, torch.bfloat16, torch.int32)):
        gather_dim = 3 - scatter_dim
        shape = [2, 3, 2 * c.world, 5] if scatter_dim == 2 else [2, 3 * c.world, 2, 5]
        inputs = on_all(c, shape, dtype)
        what = f"all_to_all_4d ({scatter_dim}, {gather_dim}) {shape} {dtype}"
        for x in (inputs[c.rank], strided(inputs[c.rank])):
            got = c.run(what, lambda x=x: OPS.all_to_all_4d(x, scatter_dim, gather_dim, c.group))
            c.equal(what, got, all_to_all_4d(inputs, c.rank, scatter_dim))
            c.fresh(what, got, x)
        back = c.run(what, lambda: OPS.all_to_all_4d(got, gather_dim, scatter_dim, c.group))
        c.equal(f"{what} and back", back, inputs[c.rank])
    empty = torch.zeros(2, 0, 2 * c.world, 5)
    c.equal(
        "all_to_all_4d of nothing",
        c.run("empty", lambda: OPS.all_to_all_4d(empty, 2, 1, c.group)),
        torch.zeros(2, 0, 2, 5),
    )


def check_all_to_all_4d_errors(c):
    if c.world == 1:
        return  # no check of the dimensions there
    x = torch.zeros(1, 2 * c.world, 2 * c.world, 2)
    c.raises("3-D", lambda: OPS.all_to_all_4d(x[0], 2, 1, c.group), "input must be 4D tensor, got")
    for pair in ((2, 2), (1, 1), (-2, 1), (2, -3), (4, 1)):
        c.raises(
            f"all_to_all_4d {pair}",
            lambda pair=pair: OPS.all_to_all_4d(x, *pair, c.group),
            f"Invalid scatter_dim={pair[0]}, gather_dim={pair[1]}",
            kind=RuntimeError,
        )
    for size in (-1, 2 * c.world + 1, 2**62):
        c.raises(
            f"gather_size {size}",
            lambda size=size: OPS.all_to_all_4d(x[:, :4], 2, 1, c.group, size),
            f"gather_size {size} over {c.world} ranks",
            kind=ValueError,
        )
    if c.world > 2:  # the last rank has fewer, and the others think that it has as many
        heads = torch.zeros(1, c.world, 1 if c.rank == c.world - 1 else 2, 2)
        c.raises("uneven heads without gather_size", lambda: OPS.all_to_all_4d(heads, 1, 2, c.group), kind=RuntimeError)


def chunk_of(x, dim, r, count):
    """The r-th of `count` chunks of ceil(n / count) elements."""
    each = -(-x.shape[dim] // count)
    index = [slice(None)] * x.dim()
    index[dim] = slice(r * each, (r + 1) * each)
    return x[tuple(index)]


def check_all_to_all_4d_uneven(c):
    p, r = c.world, c.rank
    for scatter_dim, n, dtype in itertools.product((2, 1), (1, 5, 7, 2 * p - 1), (torch.float64, torch.bfloat16)):
        gather_dim = 3 - scatter_dim
        shape = [2, 3, n, 5] if scatter_dim == 2 else [2, n, 3, 5]
        inputs = [each.requires_grad_() for each in on_all(c, shape, dtype)]
        what = f"all_to_all_4d ({scatter_dim}, {gather_dim}) {shape} {dtype}"
        x = inputs[r]
        got = c.run(what, lambda: OPS.all_to_all_4d(x, scatter_dim, gather_dim, c.group))
        c.equal(what, got, torch.cat([chunk_of(each, scatter_dim, r, p) for each in inputs], gather_dim))
        back = c.run(f"{what} and back", lambda: OPS.all_to_all_4d(got, gather_dim, scatter_dim, c.group, n))
        c.equal(f"{what} and back", back, x)
        if got is None or back is None:
            continue
        # Gradients: of what rank q returns, its weights, of which each rank gets those of its own 3 elements.
        weights = [numbers(list(chunk_of(x, scatter_dim, q, p).shape), 7 * q, dtype) for q in range(p)]
        weights = [each.repeat_interleave(p, gather_dim) for each in weights]
        wanted = torch.cat([each.narrow(gather_dim, 3 * r, 3) for each in weights], scatter_dim)
        (gradient,) = c.run(f"{what}, gradient", lambda: torch.autograd.grad(got, x, weights[r], retain_graph=True)) or (0,)
        c.equal(f"{what}, gradient", gradient, wanted)
        y = got.detach().requires_grad_()
        again = c.run(f"{what} and back", lambda: OPS.all_to_all_4d(y, gather_dim, scatter_dim, c.group, n))
        upstream = [numbers(shape, 3 * q, dtype) for q in range(p)]
        (gradient,) = c.run(f"{what} and back, gradient", lambda: torch.autograd.grad(again, y, upstream[r])) or (0,)
        c.equal(
            f"{what} and back, gradient",
            gradient,
            torch.cat([chunk_of(each, scatter_dim, r, p) for each in upstream], gather_dim),
        )


def check_all_gather(c):
    for shape, dtype in itertools.product(
        ([3], [2, 3], [2, 3, 4], [2, 0, 3]), (torch.float32, torch.float16, torch.uint8, torch.bool)
    ):
        inputs = on_all(c, shape, dtype)
        for dim in range(-len(shape), len(shape)):
            what = f"all_gather {shape} dim {dim} {dtype}"
            x = strided(inputs[c.rank])
            got = c.run(what, lambda: OPS.all_gather(x, dim, c.group))
            c.equal(what, got, torch.cat(inputs, dim))
            c.fresh(what, got, x)
    for dim in (2, -3):
        c.raises(f"all_gather dim {dim} of 2", lambda dim=dim: OPS.all_gather(torch.zeros(2, 2), dim, c.group))
    c.raises("all_gather of 0-d", lambda: OPS.all_gather(torch.zeros([]), 0, c.group))


def check_all_gather_with_unpad(c):
    inputs = on_all(c, [2, 3, 4])
    for dim in (-1, 0, 1, 2):
        whole = torch.cat(inputs, dim)
        size = whole.size(dim)
        for length in (0, 1, size - 1, size, size + 5):
            what = f"all_gather_with_unpad dim {dim} length {length} of {size}"
            got = c.run(what, lambda: OPS.all_gather_with_unpad(inputs[c.rank], length, dim, c.group))
            c.equal(what, got, whole.narrow(dim, 0, min(size, length)))
            c.true(
                f"{what} shares memory", got.untyped_storage().data_ptr() != inputs[c.rank].untyped_storage().data_ptr()
            )


def check_shard(c):
    for shape, dtype in itertools.product(([7], [2, 5, 3], [1, 1, 8], [0, 3], [12, 12]), (torch.float32, torch.int64)):
        x = numbers(shape, 0, dtype)
        for dim in range(-len(shape), len(shape)):
            length = shape[dim]
            m = -(-length // c.world)
            padding = list(shape)
            padding[dim] = m * c.world - length
            wanted = torch.cat([x, torch.zeros(padding, dtype=dtype)], dim).narrow(dim, c.rank * m, m)
            what = f"shard {shape} dim {dim} {dtype}"
            got = c.run(what, lambda: OPS.shard(x, dim, c.group)) or (None, None)
            c.equal(what, got[0], wanted)
            c.fresh(what, got[0], x)
            c.true(f"{what}: length", got[1] == length, f"{got[1]} instead of {length}")
            if got[0] is not None:
                back = c.run(what, lambda: OPS.all_gather_with_unpad(got[0], got[1], dim, c.group))
                c.equal(f"{what} and back", back, x)
    c.raises("shard dim 2 of 2", lambda: OPS.shard(torch.zeros(2, 2), 2, c.group))


def check_gather(c):
    for shape, dst in itertools.product(([3], [2, 3, 4], [0, 2]), range(c.world)):
        inputs = on_all(c, shape)
        for dim in range(-len(shape), len(shape)):
            what = f"gather {shape} dim {dim} to {dst}"
            got = c.run(what, lambda: OPS.gather(inputs[c.rank], dst, dim, c.group))
            c.equal(what, got, torch.cat(inputs, dim) if c.rank == dst else None)
            c.fresh(what, got, inputs[c.rank])
    for dst in (c.world, -1):
        c.raises(f"gather to {dst}", lambda dst=dst: OPS.gather(torch.zeros(2), dst, 0, c.group))


def check_all_reduce(c):
    floats = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
    integers = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
    reduce = {
        "sum": lambda t: t.sum(0),
        "avg": lambda t: t.double().mean(0),
        "min": lambda t: t.amin(0),
        "max": lambda t: t.amax(0),
        "prod": lambda t: t.prod(0),
    }
    for op, dtype in itertools.product(reduce, floats + integers):
        if op == "avg" and dtype in integers:
            continue
        inputs = [(torch.arange(24) * (p + 1) % 3 + 1).reshape(4, 6).to(dtype) for p in range(c.world)]
        wanted = reduce[op](torch.stack(inputs).to(torch.int64 if dtype in integers else torch.float64)).to(dtype)
        for x in (inputs[c.rank], inputs[c.rank].t().contiguous().t()):
            what = f"all_reduce {op} {dtype}"
            before = x.clone()
            got = c.run(what, lambda x=x: OPS.all_reduce(x, op, c.group))
            c.true(what, got is not None and got.shape == wanted.shape and got.dtype == dtype, got)
            if got is not None:
                c.true(
                    what,
                    torch.allclose(
                        got.double(), wanted.double(), rtol=torch.finfo(dtype).eps if op == "avg" else 0, atol=0
                    ),
                    f"{got} instead of {wanted}",
                )
            c.equal(f"{what}: input", x, before)
            c.true(
                f"{what} shares memory",
                got is None or got.untyped_storage().data_ptr() != x.untyped_storage().data_ptr(),
            )
    c.equal(
        "all_reduce of 0-d",
        c.run("0-d", lambda: OPS.all_reduce(torch.tensor(2.0), "sum", c.group)),
        torch.tensor(2.0 * c.world),
    )
    c.equal(
        "all_reduce of nothing",
        c.run("empty", lambda: OPS.all_reduce(torch.zeros(0, 3), "sum", c.group)),
        torch.zeros(0, 3),
    )
    c.raises("all_reduce mul", lambda: OPS.all_reduce(torch.zeros(2), "mul", c.group), "mul")


def overlapping(inputs, r, width):
    a = [x[:, :, x.shape[2] // 2 - width : x.shape[2] // 2] for x in inputs]
    b = [x[:, :, x.shape[2] - width :] for x in inputs]
    last = len(inputs) - 1
    return (a[r - 1] if r > 0 else torch.zeros_like(a[0])), (b[r + 1] if r < last else a[r])


def check_exchange_overlapping_regions(c):
    for width, dtype in itertools.product((1, 2, 4), (torch.float32, torch.bfloat16)):
        inputs = on_all(c, [2, 3, 8], dtype)
        for x in (inputs[c.rank], strided(inputs[c.rank])):
            what = f"exchange_overlapping_regions {width} {dtype}"
            got = c.run(what, lambda x=x: OPS.exchange_overlapping_regions(x, width, c.group)) or (None, None)
            for part, wanted in zip(got, overlapping(inputs, c.rank, width)):
                c.equal(what, part, wanted)
                c.fresh(what, part, x)
    c.raises("width above half", lambda: OPS.exchange_overlapping_regions(torch.zeros(1, 1, 8), 5, c.group))
    c.raises("negative width", lambda: OPS.exchange_overlapping_regions(torch.zeros(1, 1, 8), -1, c.group))
    c.raises("odd length", lambda: OPS.exchange_overlapping_regions(torch.zeros(1, 1, 7), 1, c.group))


# The helpers of the Python package.


def check_helpers(c):
    import reshard

    for length, count in itertools.product(range(0, 20), range(1, 9)):
        pad = -length % count
        c.true(
            f"compute_padding_for_sp({length}, {count})",
            tuple(reshard.compute_padding_for_sp(length, count)) == (length + pad, pad),
        )
    x = numbers([2, 3, 4], 0)
    c.equal("pad", reshard.pad_sequence_tensor(x, 5), torch.cat([x, torch.zeros(2, 2, 4)], 1))
    c.equal(
        "pad dim 2",
        reshard.pad_sequence_tensor(x, 6, seq_dim=2, pad_value=-1.0),
        torch.cat([x, torch.full((2, 3, 2), -1.0)], 2),
    )
    c.equal("pad dim -1", reshard.pad_sequence_tensor(x, 6, seq_dim=-1), torch.cat([x, torch.zeros(2, 3, 2)], 2))
    c.true(
        "long enough: the tensor itself",
        reshard.pad_sequence_tensor(x, 3) is x and reshard.pad_sequence_tensor(x, 1) is x,
    )
    c.equal("unpad", reshard.unpad_sequence_tensor(x, 2, 1), x[:, :2])
    c.equal("unpad dim 2", reshard.unpad_sequence_tensor(x, 3, 2), x[..., :3])
    c.true(
        "unpad is a view",
        reshard.unpad_sequence_tensor(x, 2, 1).untyped_storage().data_ptr() == x.untyped_storage().data_ptr(),
    )
    for _ in range(2):
        c.run("warmup", reshard.warmup)
    check_all_gather_with_unpad(c)  # still in step


# One rank errs: all hear of it, the group goes on.


def check_one_rank_errs(c):
    if c.world == 1:
        return
    p, g = c.world, c.group
    ones = torch.ones(1, 2 * p, 2 * p, 2)
    mesh, source, target = f"{{X:{p}}}", f"[1, <X>{2 * p * p}, {2 * p}, 2]", f"[1, {2 * p * p}, <X>{2 * p}, 2]"
    cases = {
        "all_to_all_single": (
            lambda: OPS.all_to_all_single(ones, g, "split_to_full", True),
            lambda: OPS.all_to_all_single(ones[0, 0], g, "split_to_full", True),
        ),
        "all_to_all_single type": (
            lambda: OPS.all_to_all_single(ones, g, "split_to_full", True),
            lambda: OPS.all_to_all_single(ones, g, "nothing", True),
        ),
        "all_to_all_4d": (lambda: OPS.all_to_all_4d(ones, 2, 1, g), lambda: OPS.all_to_all_4d(ones[0], 2, 1, g)),
        "all_gather": (lambda: OPS.all_gather(ones, 1, g), lambda: OPS.all_gather(ones, 9, g)),
        "all_gather_with_unpad": (
            lambda: OPS.all_gather_with_unpad(ones, 3, 1, g),
            lambda: OPS.all_gather_with_unpad(ones, -1, 1, g),
        ),
        "gather": (lambda: OPS.gather(ones, 0, 1, g), lambda: OPS.gather(ones, p, 1, g)),
        "all_reduce": (lambda: OPS.all_reduce(ones, "sum", g), lambda: OPS.all_reduce(ones, "nothing", g)),
        "exchange_overlapping_regions": (
            lambda: OPS.exchange_overlapping_regions(ones[0], 1, g),
            lambda: OPS.exchange_overlapping_regions(ones[0], 99, g),
        ),
        "redistribute": (
            lambda: OPS.redistribute(ones, mesh, source, target, g),
            lambda: OPS.redistribute(ones[0], mesh, source, target, g),
        ),
        "redistribute, its text": (
            lambda: OPS.redistribute(ones, mesh, source, target, g),
            lambda: OPS.redistribute(ones, mesh, source, "[<Q>4", g),
        ),
        "redistribute_batch": (
            lambda: OPS.redistribute_batch([ones] * 2, mesh, [source] * 2, [target] * 2, g)[1],
            lambda: OPS.redistribute_batch([ones] * 2, mesh, [source] * 2, [target], g)[1],
        ),
    }
    for culprit, (name, (good, bad)) in itertools.product(range(p), cases.items()):
        c.one_rank_errs(f"{name}, an error of rank {culprit}", culprit, good, bad)


def check_ranks_disagree(c):
    """Each rank is right by itself."""
    if c.world == 1:
        return
    odd = c.rank == c.world - 1
    x = torch.ones(2, 2 * c.world, 2 * c.world, 2)

    def disagree(what, function):
        c.raises(what, function, "ranks disagree on", str(c.world - 1))
        c.equal(
            f"{what}, afterwards",
            c.run(what, lambda: OPS.all_reduce(torch.ones(2), "sum", c.group)),
            torch.full((2,), float(c.world)),
        )

    disagree("another shape", lambda: OPS.all_gather(x[:1] if odd else x, 1, c.group))
    disagree("another dtype", lambda: OPS.all_gather(x.double() if odd else x, 1, c.group))
    disagree("another dim", lambda: OPS.all_gather(x, 2 if odd else 1, c.group))
    disagree("another op", lambda: OPS.all_reduce(x, "max" if odd else "sum", c.group))
    disagree("another dst", lambda: OPS.gather(x, 1 if odd else 0, 1, c.group))
    disagree(
        "another type", lambda: OPS.all_to_all_single(x, c.group, "full_to_split" if odd else "split_to_full", False)
    )
    disagree("another operation", lambda: OPS.all_reduce(x, "sum", c.group) if odd else OPS.all_gather(x, 1, c.group))


CHECKS = [
    check_all_to_all_single,
    check_all_to_all_single_sizes,
    check_all_to_all_single_errors,
    check_all_to_all_4d,
    check_all_to_all_4d_errors,
    check_all_to_all_4d_uneven,
    check_all_gather,
    check_all_gather_with_unpad,
    check_shard,
    check_gather,
    check_all_reduce,
    check_exchange_overlapping_regions,
    check_helpers,
    check_one_rank_errs,
    check_ranks_disagree,
]


class SeedOperationsTest(ChecksTest):
    pass


def _add(function):
    def test(self):
        for world in WORLDS:
            with self.subTest(world=world):
                self.on_ranks(world, [function])

    setattr(SeedOperationsTest, function.__name__.replace("check_", "test_"), test)


for each in CHECKS:
    _add(each)

if __name__ == "__main__":
    main("seed operations")
