#!/usr/bin/env python3
"""Gradients of every differentiable operation, in double precision, next to numeric ones on real Gloo ranks.

The numeric gradient is that of L = sum over ranks of <y_r, g_r> with respect to the inputs of all ranks: every input
element is moved up and down in turn, on all ranks that hold it, and all ranks run the operation. For `redistribute*` a
replicated element counts once, as input and as output, and g is equal on all ranks that hold it.
"""

import itertools

import numpy as np
import torch
import torch.distributed as dist

from checks import ChecksTest, main
from reference import Layout, Mesh

OPS = torch.ops.reshard
STEP = 0.5  # the operations are linear
EMPTY = ([0], [0, 3], [2, 0])  # what ranks outside a mesh pass: any of these is right


def noise(shape, *seeds):
    generator = np.random.default_rng(list(seeds))
    return torch.from_numpy(np.asarray(generator.integers(-8, 9, shape) / 4.0))


def total_over_ranks(values):
    """values: what every rank adds to L at each point; the same list on every rank afterwards."""
    t = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(t)
    return t


def flat(results):
    """The tensors among what an operation returned."""
    results = results if isinstance(results, (tuple, list)) else [results]
    return [r for r in results if isinstance(r, torch.Tensor)]


def inner(ys, gs, weights):
    return sum(float((y * g * w).sum()) for y, g, w in zip(ys, gs, weights) if y.numel())


def numeric_gradient(c, function, x, gs, weights, places):
    """places: per element of the whole problem (key), in the same order on every rank, this rank's flat positions in x.

    Returns the gradient of L for every place, in order.
    """
    values = []
    for positions in places:
        for sign in (1, -1):
            moved = x.detach().clone()
            moved.view(-1)[positions] += sign * STEP
            values.append(inner(flat(function(moved)), gs, weights))
    totals = total_over_ranks(values).reshape(-1, 2)
    return (totals[:, 0] - totals[:, 1]) / (2 * STEP)


def separate_places(c, x):
    """Every element of every rank by itself."""
    sizes = [None] * c.world
    dist.all_gather_object(sizes, x.numel())
    return [([i] if rank == c.rank else []) for rank in range(c.world) for i in range(sizes[rank])]


def replicated_places(_c, x):
    """The input is the same on all ranks."""
    return [[i] for i in range(x.numel())]


def check_gradient(c, what, function, x, outputs, places, scale=1.0, weights=None, gs=None):
    """The gradient of `function` at x against the numeric one. outputs: its results' shapes."""
    gs = gs or [noise(shape, c.rank, 7, i) for i, shape in enumerate(outputs)]
    weights = weights or [torch.ones(()) for _ in gs]
    wanted = numeric_gradient(c, function, x, gs, weights, places) * scale
    leaf = x.detach().clone().requires_grad_()
    ys = flat(c.run(f"{what}: forward", lambda: function(leaf)))
    if any(not y.requires_grad for y in ys):
        c.fail(what, "the result does not require grad")
        return
    gs = [g if g.numel() else torch.zeros_like(y) for g, y in zip(gs, ys)]
    got = c.run(f"{what}: backward", lambda: torch.autograd.grad(ys, leaf, gs))
    if got is None:
        return
    mine = torch.zeros_like(leaf).reshape(-1)
    for positions, value in zip(places, wanted):
        mine[positions] = value
    c.close(what, got[0], mine.reshape(leaf.shape))


def check_operations(c):
    p, g = c.world, c.group
    cases = [
        (
            "all_to_all_single",
            lambda x, k=kind, z=zigzag: OPS.all_to_all_single(x, g, k, z),
            [1, 2 * p, 2, 2] if kind == "split_to_full" else [1, 2, 2 * p, 2],
            [[1, 2, 2 * p, 2] if kind == "split_to_full" else [1, 2 * p, 2, 2]],
            1.0,
        )
        for kind, zigzag in itertools.product(("split_to_full", "full_to_split"), (True, False))
    ]
    cases += [
        ("all_to_all_4d (2, 1)", lambda x: OPS.all_to_all_4d(x, 2, 1, g), [2, 2, p, 2], [[2, 2 * p, 1, 2]], 1.0),
        ("all_to_all_4d (1, 2)", lambda x: OPS.all_to_all_4d(x, 1, 2, g), [2, 2 * p, 1, 2], [[2, 2, p, 2]], 1.0),
        ("all_gather dim 0", lambda x: OPS.all_gather(x, 0, g), [2, 3], [[2 * p, 3]], 1.0),
        ("all_gather dim -1", lambda x: OPS.all_gather(x, -1, g), [2, 3], [[2, 3 * p]], 1.0),
        (
            "all_gather_with_unpad",
            lambda x: OPS.all_gather_with_unpad(x, 3 * p - 2, 1, g),
            [2, 3],
            [[2, 3 * p - 2]],
            1.0,
        ),
        (
            "all_gather_with_unpad, nothing off",
            lambda x: OPS.all_gather_with_unpad(x, 3 * p, 1, g),
            [2, 3],
            [[2, 3 * p]],
            1.0,
        ),
        ("all_reduce sum", lambda x: OPS.all_reduce(x, "sum", g), [2, 3], [[2, 3]], 1.0),
        ("all_reduce avg", lambda x: OPS.all_reduce(x, "avg", g), [2, 3], [[2, 3]], 1.0),
        (
            "exchange_overlapping_regions",
            lambda x: OPS.exchange_overlapping_regions(x, 2, g),
            [1, 2, 6],
            [[1, 2, 2]] * 2,
            1.0,
        ),
        (
            "exchange_overlapping_regions, whole chunks",
            lambda x: OPS.exchange_overlapping_regions(x, 3, g),
            [1, 1, 6],
            [[1, 1, 3]] * 2,
            1.0,
        ),
    ]
    for name, function, shape, outputs, scale in cases:
        x = noise(shape, c.rank)
        check_gradient(c, name, function, x, outputs, separate_places(c, x), scale)
    for length, dim in ((2 * p, 0), (2 * p + 1, 0), (3, -1), (1, 1)):
        shape = [length, 2] if dim == 0 else [2, length]
        x = noise(shape, 3)
        out = list(shape)
        out[dim] = -(-length // p)
        check_gradient(
            c,
            f"shard {shape} dim {dim}",
            lambda x, d=dim: OPS.shard(x, d, g)[0],
            x,
            [out],
            replicated_places(c, x),
            1.0 / p,
        )


def check_gather(c):
    """dst's gradient is scattered. The other ranks have no result: another use of x leads their backward there."""
    for dst in range(c.world):
        x, w, gradient = noise([2, 3], c.rank), noise([2, 3], c.rank, 4), noise([2, 3 * c.world], dst, 5)
        leaf = x.clone().requires_grad_()
        got = c.run(f"gather to {dst}: forward", lambda: OPS.gather(leaf, dst, 1, c.group))
        loss = (leaf * w).sum() + ((got * gradient).sum() if c.rank == dst else 0)
        grads = c.run(f"gather to {dst}: backward", lambda: torch.autograd.grad(loss, leaf))
        if grads is not None:
            c.close(f"gather to {dst}", grads[0], w + gradient[:, 3 * c.rank : 3 * c.rank + 3])


# redistribute: a replicated element counts once.

PAIRS = {  # by world: mesh, source, target
    2: [
        ("{X:2}", "[<X>5]", "[5]"),
        ("{X:2}", "[5]", "[<X>5]"),
        ("{X:2}", "[<X>4, 3]", "[4, <X>3]"),
        ("{X:2}", "[3] sum<X>", "[3]"),
        ("{X:2}", "[3] sum<X>", "[<X>3]"),
        ("{X:2}", "[3] avg<X>", "[3]"),
        ("{X:2}", "[3] avg<X>", "[<X>3]"),
        ("{X:2}", "[<2,~X>8]", "[<X>8]"),
        ("{X:2}", "[] sum<X>", "[]"),
        ("{X:2}", "[3]", "[3]"),
    ],
    3: [
        ("{X:3}", "[<X>7]", "[7]"),
        ("{X:3}", "[7] sum<X>", "[<X>7]"),
        ("{X:3}", "[7] avg<X>", "[7]"),
        ("{X:2}@1", "[<X>4]", "[4]"),
        ("{X:3}@[2,0,1]", "[<X>2, 3]", "[2, <X>3]"),
    ],
    4: [
        ("{X:2,Y:2}", "[<X,Y>5]", "[<Y,X>5]"),
        ("{X:2,Y:2}", "[<X>3, <Y>2]", "[3, 2]"),
        ("{X:2,Y:2}", "[3, 2]", "[<Y>3, 2]"),
        ("{X:2,Y:2}", "[<X>4] sum<Y>", "[<Y>4]"),
        ("{X:2,Y:2}", "[<X>4] avg<Y>", "[4]"),
        ("{X:2,Y:2}", "[3] sum<X,Y>", "[<X>3] sum<Y>"),
        ("{X:2,Y:2}", "[3] avg<X,Y>", "[<X>3]"),
        ("{X:2,Y:2}", "[3] sum<X>", "[<Y>3]"),
        ("{X:2,Y:2}", "[<X=[3,1]>4]", "[<Y>4]"),
        ("{X:4}", "[3] sum<X:(1)2>", "[<X>3]"),
        ("{X:2,Y:2}", "[<X>3] sum<Y>", "[3] sum<Y>"),
    ],
}
ACROSS = [
    ("{X:4}", "[<X>6]", "{Y:2}@[3,1]", "[<Y>6]"),
    ("{X:2,Y:2}", "[<X>3, <Y>2]", "{Z:3}@1", "[<Z>3, 2]"),
    ("{X:2}", "[3] sum<X>", "{Y:2}@2", "[<Y>3]"),
    ("{X:2}@2", "[3]", "{Y:4}", "[<Y>3]"),
    ("{X:2}", "[<X>4, 2]", "{Y:2}@2", "[4, <Y>2]"),
    ("{X:2}@[3,0]", "[]", "{}@1", "[]"),
]


def whole_places(c, layout):
    """Each (contribution, element) once, at all ranks that hold it."""
    places = {}
    for device in layout.mesh.devices:
        for element in itertools.product(*layout.indices(device)):
            places.setdefault((layout.contribution(device), tuple(map(int, element))), [])
    if layout.holds(c.rank):
        for position, element in enumerate(itertools.product(*layout.indices(c.rank))):
            places[layout.contribution(c.rank), tuple(map(int, element))].append(position)
    return [places[key] for key in sorted(places)]


class Pair:
    """The input, the output gradient and the weights of one redistribution on this rank."""

    def __init__(self, c, mesh, source, target, target_mesh=None):
        self.mesh, self.source_text, self.target_text, self.target_mesh = mesh, source, target, target_mesh
        self.source = Layout(source, Mesh(mesh))
        self.target = Layout(target, Mesh(target_mesh or mesh))
        self.what = f"{mesh} {source} -> {target_mesh or ''} {target}"
        self.x = self.value(c, self.source, 1)
        self.g = self.value(c, self.target, 2, by_contribution=False)
        self.weight = torch.zeros(())
        if self.target.holds(c.rank):
            self.weight = 1.0 / torch.from_numpy(self.target.multiplicity(c.rank)).double()
        self.places = whole_places(c, self.source)

    @staticmethod
    def value(c, layout, number, by_contribution=True):
        """Equal on all ranks that hold the same element (of the same contribution)."""
        if not layout.holds(c.rank):
            return torch.empty(EMPTY[c.rank % len(EMPTY)], dtype=torch.float64)
        seeds = layout.contribution(c.rank) if by_contribution else ()
        return torch.from_numpy(layout.local(noise(layout.shape, number, *seeds).numpy(), c.rank))

    def run(self, c, x):
        return OPS.redistribute(x, self.mesh, self.source_text, self.target_text, c.group, self.target_mesh)


def check_redistribute(c):
    pairs = [Pair(c, *p) for p in PAIRS[c.world]]
    if c.world == 4:
        pairs += [Pair(c, mesh, source, target, other) for mesh, source, other, target in ACROSS]
    for pair in pairs:
        check_gradient(
            c,
            f"redistribute {pair.what}",
            lambda x, pair=pair: pair.run(c, x),
            pair.x,
            None,
            pair.places,
            weights=[pair.weight],
            gs=[pair.g],
        )


def check_redistribute_batch(c):
    meshes = {p[0] for p in PAIRS[c.world]}
    for mesh in sorted(meshes):
        pairs = [Pair(c, *p) for p in PAIRS[c.world] if p[0] == mesh]
        sources, targets = [p.source_text for p in pairs], [p.target_text for p in pairs]
        wanted = [numeric_gradient(c, lambda x, p=p: p.run(c, x), p.x, [p.g], [p.weight], p.places) for p in pairs]
        leaves = [p.x.clone().requires_grad_() for p in pairs]
        ys = c.run(f"batch on {mesh}", lambda: OPS.redistribute_batch(leaves, mesh, sources, targets, c.group))
        gs = [p.g if p.g.numel() else torch.zeros_like(y) for p, y in zip(pairs, ys or [])]
        grads = ys and c.run(f"batch on {mesh}: backward", lambda: torch.autograd.grad(ys, leaves, gs))
        for pair, grad, values in zip(pairs, grads or [], wanted):
            mine = torch.zeros_like(pair.x).reshape(-1)
            for positions, value in zip(pair.places, values):
                mine[positions] = value
            c.close(f"batch: {pair.what}", grad, mine.reshape(pair.x.shape))
        if len(leaves) > 1 and ys:  # only the first output is used
            ys = OPS.redistribute_batch(leaves, mesh, sources, targets, c.group)
            grads = c.run(f"batch on {mesh}: one output used", lambda: torch.autograd.grad(ys[0], leaves[0], gs[0]))
            if grads:
                mine = torch.zeros_like(pairs[0].x).reshape(-1)
                for positions, value in zip(pairs[0].places, wanted[0]):
                    mine[positions] = value
                c.close(f"batch on {mesh}: one output used", grads[0], mine.reshape(pairs[0].x.shape))


def check_double_backward(c):
    """Where nothing is partial, the gradient of <gradient(g), v> with respect to g is the operation on v."""
    p = c.world
    cases = [
        (
            f"all_to_all_single {kind} {zigzag}",
            lambda x, k=kind, z=zigzag: OPS.all_to_all_single(x, c.group, k, z),
            noise([1, 2 * p, 2] if kind == "split_to_full" else [1, 2, 2 * p], c.rank, 1),
            noise([1, 2 * p, 2] if kind == "split_to_full" else [1, 2, 2 * p], c.rank, 2),
        )
        for kind, zigzag in itertools.product(("split_to_full", "full_to_split"), (True, False))
    ]
    cases += [
        (
            f"all_to_all_4d {dims}",
            lambda x, d=dims: OPS.all_to_all_4d(x, *d, c.group),
            noise([1, 2 * p, 2 * p, 2], c.rank, 1),
            noise([1, 2 * p, 2 * p, 2], c.rank, 2),
        )
        for dims in ((2, 1), (1, 2))
    ]
    for mesh, source, target in PAIRS[p]:
        if "<" in source + target and "sum" not in source and "avg" not in source:
            pair = Pair(c, mesh, source, target)
            cases.append(
                (
                    f"redistribute {pair.what}",
                    lambda x, pair=pair: pair.run(c, x),
                    pair.x,
                    Pair.value(c, pair.source, 4),
                )
            )
    for what, function, x, v in cases:
        leaf = x.clone().requires_grad_()
        y = c.run(f"{what}: forward", lambda: function(leaf))
        if y is None or not y.requires_grad:
            c.fail(what, "the result does not require grad")
            continue
        g = torch.ones_like(y).requires_grad_()
        first = c.run(f"{what}: backward", lambda: torch.autograd.grad(y, leaf, g, create_graph=True))
        if first is None:
            continue
        c.true(f"{what}: a gradient with a graph", first[0].requires_grad)
        second = c.run(f"{what}: double backward", lambda: torch.autograd.grad(first[0], g, v))
        if second is not None:
            c.close(f"{what}: double backward", second[0], function(v))


def check_no_gradient(c):
    """min, max and prod have none, and say so."""
    for op in ("min", "max", "prod"):
        x = noise([3], c.rank).requires_grad_()
        c.raises(f"all_reduce {op}", lambda x=x, op=op: OPS.all_reduce(x, op, c.group).sum().backward(), "grad")
        mesh, source = f"{{X:{c.world}}}", f"[3] {op}<X>"
        c.raises(
            f"redistribute {op}",
            lambda x=x, s=source: OPS.redistribute(x, mesh, s, "[3]", c.group).sum().backward(),
            "grad",
        )
        with torch.no_grad():
            c.run(f"all_reduce {op} under no_grad", lambda x=x, op=op: OPS.all_reduce(x, op, c.group))


def check_gradient_forms(c):
    """What autograd may hand to a backward: expanded and strided gradients; inputs that need none."""
    x = noise([2, 2 * c.world], c.rank).requires_grad_()
    mesh, source, target = (
        f"{{X:{c.world}}}",
        f"[<X>{2 * c.world}, {2 * c.world}]",
        f"[{2 * c.world}, <X>{2 * c.world}]",
    )
    y = OPS.redistribute(x, mesh, source, target, c.group)
    c.close("expanded gradient", torch.autograd.grad(y.sum(), x, retain_graph=True)[0], torch.ones_like(x))
    g = noise([2, 2 * c.world], c.rank, 3)
    back = OPS.redistribute(g.t().contiguous(), mesh, target, source, c.group)
    c.close("strided gradient", torch.autograd.grad(y, x, g.t())[0], back)
    plain = noise([2, 2 * c.world], c.rank)
    a, b = OPS.redistribute_batch([x, plain], mesh, [source] * 2, [target] * 2, c.group)
    c.true("requires_grad is that of the input, or of all", a.requires_grad)
    c.close(
        "batch with a plain input", torch.autograd.grad((a * 2).sum() + b.sum().detach(), x)[0], torch.full_like(x, 2)
    )
    half = noise([2, 2 * c.world], c.rank).bfloat16().requires_grad_()
    grad = torch.autograd.grad(OPS.redistribute(half, mesh, source, target, c.group).float().sum(), half)[0]
    c.true("the gradient has the input's dtype", grad.dtype == torch.bfloat16, grad.dtype)


CHECKS = [
    check_operations,
    check_gather,
    check_redistribute,
    check_redistribute_batch,
    check_double_backward,
    check_no_gradient,
    check_gradient_forms,
]


class GradientsTest(ChecksTest):
    pass


def _add(function):
    def test(self):
        for world in (2, 3, 4):
            with self.subTest(world=world):
                self.on_ranks(world, [function])

    setattr(GradientsTest, function.__name__.replace("check_", "test_"), test)


for each in CHECKS:
    _add(each)

if __name__ == "__main__":
    main("gradients")
