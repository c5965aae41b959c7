#!/usr/bin/env python3
"""reshard.redistribute on DTensors next to DTensor's own answer; where that one refuses or corrupts, reference.py.

Once mesh["a", "b"]._flatten() has been called, DTensor silently corrupts some uneven pairs (PyTorch #194457): there the
reference alone counts.
"""

import itertools
import logging
import random

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard

import gloo
from checks import ChecksTest, main
from problems import contributions, reduced
from reference import Layout, Mesh

SHAPES = ((5, 3), (6, 6), (7, 5), (9, 4))
R, S0, S1 = Replicate(), Shard(0), Shard(1)
PAIRS = [pair for pair in itertools.product(itertools.product((R, S0, S1), repeat=2), repeat=2) if pair[0] != pair[1]]
assert len(PAIRS) == 72
NAMES = ("a", "b", "c")


def make_mesh(shape, devices=None):
    """A DeviceMesh and what reference.py makes of it."""
    devices = list(range(torch.Size(shape).numel())) if devices is None else devices
    axes = ",".join(f"{name}:{size}" for name, size in zip(NAMES, shape))
    mesh = DeviceMesh("cpu", torch.tensor(devices).reshape(shape), mesh_dim_names=NAMES[: len(shape)])
    return mesh, Mesh(f"{{{axes}}}@[{','.join(map(str, devices))}]")


def layout_of(shape, mesh, placements, shard_order=()):
    """The Layout of DTensor placements; shard_order as PyTorch writes it."""
    factors = [[] for _ in shape]
    partial = {}
    for name, placement in zip(NAMES, placements):
        if placement.is_shard():
            factors[placement.dim].append(name)
        elif placement.is_partial():
            partial.setdefault(placement.reduce_op, []).append(name)
    for dim, order in shard_order:
        factors[dim] = [NAMES[d] for d in order]
    text = "[" + ", ".join(f"<{','.join(f)}>{n}" if f else str(n) for f, n in zip(factors, shape)) + "]"
    text += "".join(f" {op}<{','.join(axes)}>" for op, axes in partial.items())
    return Layout(text, mesh)


def strides(shape):
    return torch.empty(shape, device="meta").stride()


class Tensor:
    """A global tensor, and its DTensors without any communication."""

    def __init__(self, c, shape, dtype=torch.float32):
        self.c, self.shape, self.dtype = c, tuple(shape), dtype
        self.whole = torch.arange(1, torch.Size(shape).numel() + 1).reshape(self.shape).to(dtype).numpy()

    def place(self, mesh, axes, placements, shard_order=()):
        layout = layout_of(self.shape, axes, placements, shard_order)
        if not layout.holds(self.c.rank):
            local = torch.empty(0, dtype=self.dtype)
        elif layout.partial:
            parts = contributions(layout, self.dtype, 5)
            self.whole = reduced(layout.partial_op, list(parts.values())).astype(self.whole.dtype)
            local = torch.from_numpy(layout.local(parts[layout.contribution(self.c.rank)], self.c.rank)).to(self.dtype)
        else:
            local = torch.from_numpy(layout.local(self.whole, self.c.rank))
        return DTensor.from_local(
            local, mesh, placements, run_check=False, shape=torch.Size(self.shape), stride=strides(self.shape)
        )

    def check(self, what, got, mesh, axes, placements, shard_order=()):
        """`got` is this tensor, so placed."""
        layout = layout_of(self.shape, axes, placements, shard_order)
        if got is None:
            return
        self.c.true(
            what,
            isinstance(got, DTensor) and tuple(got.shape) == self.shape and got.device_mesh == mesh,
            f"{got} on {getattr(got, 'device_mesh', None)}",
        )
        if not shard_order:
            self.c.true(what, tuple(got.placements) == tuple(placements), f"{got.placements} instead of {placements}")
        local = got.to_local()
        if not layout.holds(self.c.rank):
            self.c.true(what, local.numel() == 0, f"{local} outside the mesh")
        else:
            self.c.equal(what, local, torch.from_numpy(layout.local(self.whole, self.c.rank)))


def redistribute(*arguments, **options):
    import reshard

    return reshard.redistribute(*arguments, **options)


def check_all_pairs(c, flattened):
    """The 72 default-order pairs of a 2x2 mesh."""
    mesh, axes = make_mesh((2, 2))
    if flattened:
        mesh["a", "b"]._flatten()
    for shape, (source, target) in itertools.product(SHAPES, PAIRS):
        tensor = Tensor(c, shape)
        x = tensor.place(mesh, axes, source)
        before = x.to_local().clone()
        what = f"{shape} {source} -> {target} flattened={flattened}"
        got = c.run(what, lambda: redistribute(x, mesh, target))
        tensor.check(what, got, mesh, axes, target)
        c.equal(f"{what}: input", x.to_local(), before)
        if not flattened and got is not None:
            c.equal(f"{what}: DTensor's answer", got.to_local(), x.redistribute(mesh, target).to_local())


def random_placements(rng, mesh_dims, rank, partial):
    choices = [Replicate()] + [Shard(d) for d in range(rank)] + ([partial] * 2 if partial else [])
    return tuple(rng.choice(choices) for _ in range(mesh_dims))


def check_random_pairs(c, mesh_shape, seed):
    """With partial reductions, other ranks and other dtypes."""
    mesh, axes = make_mesh(mesh_shape)
    rng = random.Random(seed * 10 + c.world)
    for number in range(60):
        shape = [rng.choice((1, 2, 3, 5, 8, 9)) for _ in range(rng.randint(1, 3))]
        partial = rng.choice((None, None, Partial("sum"), Partial("avg"), Partial("min"), Partial("max")))
        source = random_placements(rng, len(mesh_shape), len(shape), partial)
        target = random_placements(rng, len(mesh_shape), len(shape), None)
        tensor = Tensor(c, shape, rng.choice((torch.float32, torch.float64)))
        x = tensor.place(mesh, axes, source)
        what = f"{number}: {mesh_shape} {shape} {source} -> {target}"
        got = c.run(what, lambda: redistribute(x, mesh, target))
        tensor.check(what, got, mesh, axes, target)
        if got is not None:
            c.equal(f"{what}: DTensor's answer", got.to_local(), x.redistribute(mesh, target).to_local())


ORDERS = (((0, (1, 0)),), ((0, (0, 1)),), ((1, (1, 0)),))


def check_shard_orders(c):
    """The second mesh dimension is applied first: DTensor has no call for it."""
    mesh, axes = make_mesh((2, 2))
    for shape, order in itertools.product(SHAPES, ORDERS):
        tensor = Tensor(c, shape)
        target = (Shard(order[0][0]),) * 2
        for source in itertools.product((R, S0, S1), repeat=2):
            x = tensor.place(mesh, axes, source)
            what = f"{shape} {source} -> {target} in order {order}"
            got = c.run(what, lambda: redistribute(x, mesh, target, shard_order=order))
            tensor.check(what, got, mesh, axes, target, order)
            if got is not None:
                back = c.run(f"{what} and back", lambda: redistribute(got, mesh, source))
                tensor.check(f"{what} and back", back, mesh, axes, source)


def check_strided_shards(c):
    """What FSDP2 with tensor parallelism makes: the second mesh dimension applied first."""
    mesh, axes = make_mesh((2, 2))
    for shape, target in itertools.product(((8, 3), (4, 4)), itertools.product((R, S0, S1), repeat=2)):
        tensor = Tensor(c, shape)
        layout = Layout(f"[<b,a>{shape[0]}, {shape[1]}]", axes)
        local = torch.from_numpy(layout.local(tensor.whole, c.rank))
        x = DTensor.from_local(local, mesh, [_StridedShard(0, split_factor=2), S0], run_check=False)
        what = f"{shape} _StridedShard -> {target}"
        got = c.run(what, lambda: redistribute(x, mesh, target))
        tensor.check(what, got, mesh, axes, target)


def check_other_meshes(c):
    """From one mesh to another, which DTensor refuses."""
    grid, grid_axes = make_mesh((2, 2))
    others = [
        make_mesh((4,)),
        make_mesh((4,), [3, 1, 0, 2]),
        make_mesh((2, 2), [3, 2, 1, 0]),
        make_mesh((2,), [3, 1]),
        make_mesh((1,), [2]),
    ]
    for shape, (other, other_axes) in itertools.product(SHAPES, others):
        tensor = Tensor(c, shape)
        targets = itertools.product((R, S0, S1), repeat=other.ndim)
        for source, target in itertools.product(((S0, S1), (R, S0), (S1, S1)), targets):
            what = f"{shape} {source} -> {target} on {other_axes.text}"
            got = c.run(what, lambda: redistribute(tensor.place(grid, grid_axes, source), other, target))
            tensor.check(what, got, other, other_axes, target)
            if got is not None:
                back = c.run(f"{what} and back", lambda: redistribute(got, grid, source))
                tensor.check(f"{what} and back", back, grid, grid_axes, source)


def check_gradients(c):
    """The same gradients as DTensor's own redistribution."""
    mesh, axes = make_mesh((2, 2))
    for shape, (source, target) in itertools.product(((5, 3), (6, 6)), PAIRS):
        tensor = Tensor(c, shape, torch.float64)
        gradient = Tensor(c, shape, torch.float64)
        gradient.whole = gradient.whole[::-1] * 0.5
        g = gradient.place(mesh, axes, target)
        what = f"gradient of {shape} {source} -> {target}"
        x = tensor.place(mesh, axes, source).requires_grad_()
        grads = c.run(what, lambda: torch.autograd.grad(redistribute(x, mesh, target), x, g))
        wanted = torch.autograd.grad(x.redistribute(mesh, target), x, g)
        if grads is not None:
            c.equal(what, grads[0].full_tensor(), torch.from_numpy(gradient.whole.copy()))
            c.equal(f"{what}: DTensor's answer", grads[0].full_tensor(), wanted[0].full_tensor())


def check_several(c):
    """redistribute_all, and meshes without names."""
    import reshard

    mesh, axes = make_mesh((2, 2))
    tensors = [Tensor(c, shape) for shape in SHAPES]
    for source, target in PAIRS[::7]:
        xs = [t.place(mesh, axes, source) for t in tensors]
        got = c.run(f"all {source} -> {target}", lambda: reshard.redistribute_all(xs, mesh, target))
        for tensor, y in zip(tensors, got or []):
            tensor.check(f"all {tensor.shape} {source} -> {target}", y, mesh, axes, target)
    unnamed = DeviceMesh("cpu", torch.arange(4).reshape(2, 2))
    for source, target in PAIRS[::11]:
        x = tensors[0].place(unnamed, axes, source)
        tensors[0].check(
            f"unnamed {source} -> {target}",
            c.run("unnamed", lambda: redistribute(x, unnamed, target)),
            unnamed,
            axes,
            target,
        )
        tensors[0].check(
            f"its own mesh {source} -> {target}",
            c.run("own mesh", lambda: redistribute(x, None, target)),
            unnamed,
            axes,
            target,
        )


def check_slices(c):
    """The rows of a mesh, each with tensors of its own and at its own pace."""
    mesh, _ = make_mesh((2, 2))
    row = mesh["b"]
    first = c.rank // 2 * 2
    axes = Mesh(f"{{a:2}}@{first}")  # reference names its axes a, b, ...
    for i, (source, target) in enumerate([((S0,), (S1,)), ((S1,), (R,)), ((R,), (S0,))] * (2 if first else 3)):
        tensor = Tensor(c, (5 + first + i, 3))
        what = f"row {first}, {source} -> {target}"
        tensor.check(
            what, c.run(what, lambda: redistribute(tensor.place(row, axes, source), row, target)), row, axes, target
        )


def check_errors(c):
    mesh, axes = make_mesh((2, 2))
    tensor = Tensor(c, (6, 6))
    x = tensor.place(mesh, axes, (S0, S1))
    c.raises("a plain tensor", lambda: redistribute(torch.ones(3), mesh, (R, R)))
    c.raises("too few placements", lambda: redistribute(x, mesh, (R,)))
    c.raises("a dimension that is not there", lambda: redistribute(x, mesh, (Shard(2), R)))
    c.raises(
        "an order that names another dimension", lambda: redistribute(x, mesh, (S0, S1), shard_order=((0, (1, 0)),))
    )
    tensor.check("afterwards", c.run("afterwards", lambda: redistribute(x, mesh, (R, S0))), mesh, axes, (R, S0))
    tensor.check(
        "negative dimension", c.run("negative", lambda: redistribute(x, mesh, (R, Shard(-2)))), mesh, axes, (R, S0)
    )


class DTensorTest(ChecksTest):
    def test_all_pairs(self):
        for flattened in (False, True):
            with self.subTest(flattened=flattened):
                self.on_ranks(4, [check_all_pairs], flattened, timeout=100)

    def test_random_pairs(self):
        seed = gloo.seed()
        for shape in ((2,), (4,), (2, 2), (8,), (2, 4), (2, 2, 2)):
            with self.subTest(shape=shape):
                self.on_ranks(torch.Size(shape).numel(), [check_random_pairs], shape, seed, timeout=100)

    def test_what_dtensor_refuses(self):
        for function in (check_shard_orders, check_strided_shards, check_other_meshes, check_several, check_slices):
            with self.subTest(function=function.__name__):
                self.on_ranks(4, [function], timeout=100)

    def test_gradients(self):
        self.on_ranks(4, [check_gradients], timeout=100)

    def test_errors(self):
        self.on_ranks(4, [check_errors])


if __name__ == "__main__":
    logging.disable(logging.WARNING)  # DTensor on its own fallbacks
    main("dtensor")
